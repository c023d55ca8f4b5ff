// Package keepwell is the map of a library of lifecycle primitives for services that own things outside their own process:
// sandboxes, sessions, containers, pods. Such a service is a cache in front of a backend that holds the truth, and each package
// prevents one fault that these services write again and again. This package has no code; each of the others can be imported alone.
//
//   - [github.com/keepwell-go/keepwell/registry] caches what the backend owns. A miss is answered by a list that began after it,
//     however many callers miss at once.
//   - [github.com/keepwell-go/keepwell/registry/fresh] is the coalescer under it, for any expensive question.
//   - [github.com/keepwell-go/keepwell/quota] admits by counting what lives and what is still being created or torn down.
//   - [github.com/keepwell-go/keepwell/sweep] runs recurring passes that never overlap, and judges what they may stop.
//   - [github.com/keepwell-go/keepwell/probe] shares one bounded, cached health check among all who ask.
//   - [github.com/keepwell-go/keepwell/bodylimit] bounds request bodies, with a refusal that the client gets to read.
//   - [github.com/keepwell-go/keepwell/backend] is the contract with whatever runs the sandboxes; its suite is in backendtest.
//
// The module in refserver puts them together into a sandbox server that runs.
package keepwell
