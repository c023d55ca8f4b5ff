// Package keepwell has no code: it is a table of contents. The library helps programs that start and stop things which outlive them,
// such as containers or remote sessions, and which only an engine elsewhere really knows about. Programs of that kind keep having the
// same few bugs. Each package below removes one, and can be used without the others.
//
//   - [github.com/keepwell-go/keepwell/registry] remembers which objects there are. For one that it does not know it asks the
//     engine anew, once for a whole crowd of callers.
//   - [github.com/keepwell-go/keepwell/registry/fresh] is how that question is shared, and works for any costly question.
//   - [github.com/keepwell-go/keepwell/quota] says yes or no to a new object. Those half created or half removed count as well.
//   - [github.com/keepwell-go/keepwell/sweep] does periodic clean-up: one round at a time, stopping little and forgetting less.
//   - [github.com/keepwell-go/keepwell/probe] checks the health of a dependency for many callers with a single call.
//   - [github.com/keepwell-go/keepwell/bodylimit] turns down a request body that is too large so that the client hears of it.
//   - [github.com/keepwell-go/keepwell/backend] is the interface an engine of sandboxes implements; package backendtest tests it.
//
// The module in refserver is a complete sandbox server built from all of them.
package keepwell
