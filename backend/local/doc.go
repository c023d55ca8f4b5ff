// Package local runs sandboxes on this machine, with nothing to install: the default backend.
//
// It prevents the fault of a server that is the parent of what it serves: a deploy or a crash of the server takes every sandbox with
// it. Here one detached process, the host runner, holds all sandboxes of a state directory. A [Backend] talks to it over a unix
// socket, starts it when nobody answers, and leaves it running at Close. [Host] is that process; refserver runs it as `refserver
// runner --host DIR`.
//
// A sandbox is a directory with a label and a workspace. It is running while the host has it in memory, and stopped otherwise: after a
// Stop, a reboot, or a crash of the host. A create of a stopped id resumes its workspace. What a crashed host left running is killed
// before the next one says that it is stopped. Every step of create and destroy can be cut off: what was never finished is
// removed at the next start, and a destroy that had begun is finished.
//
// The host runner has a session of its own, yet whoever ends all processes of a service ends it too: a systemd unit of the server
// needs KillMode=process for its sandboxes to outlive a restart.
//
// # Confinement
//
// How far a sandbox is shut in depends on the machine and on the user; [Backend.Confinement] tells. When the host runner is root,
// no two sandboxes share a uid, nor do those of other host runners of the machine, since each runner takes its uids from a block
// that it has claimed; a uid is used again only after its processes and files are gone. The homes
// are mounted where their uids can get to, in mounts of the host's own, while the state directory stays closed. As an
// ordinary user there are no uids: then a sandbox is as far from its neighbour as Landlock keeps it. Elsewhere than on Linux nothing is
// confined. None of it is meant for tenants who are hostile.
//
// The environment of the server reaches neither the host nor a sandbox. The environment that a sandbox is created with lives in
// the host's memory alone: it is not on the disk, so a resume brings its own.
package local
