// Package refserver puts the packages of keepwell together into a sandbox server: an HTTP API in front of a [backend.Backend].
//
// It prevents the faults that appear only where correct parts meet. A create that is admitted twice because the quota and the
// registry disagree on who owns an id. A rollback that deletes the workspace of the sandbox it meant to resume. A destroy that
// frees a slot while the engine still runs what held it. A stream that just stops, and leaves its reader to guess whether the
// command ended or the sandbox died. A request that arrives while a sweep is about to stop what the request needs.
//
// The composition follows a few rules, and the files are named after the flows that keep them:
//
//   - Who owns the transition of an id owns its quota token: hold, reserve, create, open, token live, fill; and back in the
//     opposite order. What is registered is therefore always counted.
//   - What could not be determined is kept and counted: a create without an answer stays counted until a list decides, a
//     destroy without an answer leaves the entry and its slot in place.
//   - A request pins what it uses before it looks again, so that a stop either sees the pin or the request sees the stop.
//   - Nothing but the backend says that a sandbox is gone. A runner that does not answer is a reason to ask.
//
// Nothing is lost with a [Server]: the next one learns of every sandbox from the backend, even if this one was killed.
package refserver
