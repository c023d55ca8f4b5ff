// Package spawn starts processes under confinement, waits for them, and ends whole trees of them.
//
// It prevents the fault that every process host meets first: a command is "killed", but what it had started goes on. A
// descendant that called setsid is in no group of ours, one whose parent died is nobody's child any more, and a signal sent to
// a number that was reaped a moment ago reaches a stranger. Here every start carries a mark that its descendants cannot take off,
// orphans are adopted, an exit status has one owner, and a signal is sent only while its number cannot be anybody else's.
//
// # How a process is confined
//
// On Linux one thread of this process enters the sandbox: it gives up gaining privileges and restricts itself with Landlock. Commands
// are forked from that thread, so no helper binary stands between fork and exec, and every command of a sandbox shares one
// Landlock domain. The thread ends when nothing of the sandbox has run for a while. As root each sandbox has a uid of its own besides.
//
// # What is found again
//
// As root, with a uid per sandbox, nothing escapes: the kernel itself says which process belongs to the uid, and each start
// has a supplementary group of its own which its descendants inherit and may not drop. As an ordinary user the Landlock domain does the
// same for the sandbox as a whole where signals are scoped (Linux 6.15). There the tree of one process is what hangs together by parent, session,
// group or environment; a descendant that left all four is ended with the sandbox and not before, unless only one start could have made it.
//
// What cannot be enforced is said by [Abilities.Sentences]. Elsewhere than on Linux processes run unconfined.
package spawn
