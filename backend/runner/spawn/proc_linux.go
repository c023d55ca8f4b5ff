package spawn

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// task is what /proc says about one process.
type task struct {
	pid, ppid, pgid, sid int
	uid                  uint32
	groups               []uint32
	born                 uint64 // start time in ticks since boot: with pid it is an identity; 0 when not asked for
	state                byte
	ended                bool // a zombie, all threads gone
}

// pids lists all processes but this one.
func pids() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("spawn: list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("spawn: list processes: %w", err)
	}
	out := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid != os.Getpid() {
			out = append(out, pid)
		}
	}
	return out, nil
}

// reader reads small files of /proc into one buffer. Not safe for concurrent use.
type reader struct{ buf [8 << 10]byte }

// file returns the contents, cut at the size of the buffer, until the next call. gone means that the process is not there any more.
func (r *reader) file(pid int, name string) (data []byte, gone bool, err error) {
	path := "/proc/" + strconv.Itoa(pid) + "/" + name
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		var n int
		if n, err = unix.Read(fd, r.buf[:]); err == nil {
			return r.buf[:n], false, nil
		}
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return nil, true, nil
	}
	return nil, false, fmt.Errorf("spawn: read %s: %w", path, err)
}

// task looks at one process. ok is false when there is no such process.
func (r *reader) task(pid int) (t task, ok bool, err error) {
	data, gone, err := r.file(pid, "status")
	if gone || err != nil {
		return task{}, false, err
	}
	t = parseStatus(data)
	t.pid = pid
	stat, gone, err := r.file(pid, "stat")
	if gone || err != nil {
		return task{}, false, err
	}
	t.born = parseBorn(stat)
	return t, true, nil
}

// parseStatus reads the lines it needs of /proc/PID/status. A name cannot forge a line: line feeds in it are escaped.
func parseStatus(data []byte) task {
	var t task
	threads := 0
	for line := range bytes.Lines(data) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		fields := bytes.Fields(value)
		if len(fields) == 0 {
			continue
		}
		last := number(fields[len(fields)-1])
		switch string(key) {
		case "State":
			t.state = fields[0][0]
		case "PPid":
			t.ppid = last
		case "Uid":
			t.uid = uint32(number(fields[0]))
		case "Groups":
			for _, f := range fields {
				t.groups = append(t.groups, uint32(number(f)))
			}
		case "NSpgid": // the first number is the one in the pid namespace of this /proc
			t.pgid = number(fields[0])
		case "NSsid":
			t.sid = number(fields[0])
		case "Threads":
			threads = last
		}
	}
	// The first thread of a process may be gone while others run: the process then reads Z and is very much alive.
	t.ended = (t.state == 'Z' || t.state == 'X') && threads <= 1
	return t
}

// parseBorn reads field 22 of /proc/PID/stat. The name, field 2, may contain anything but is the last to end in a parenthesis.
func parseBorn(data []byte) uint64 {
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return 0
	}
	born, _ := strconv.ParseUint(string(fields[19]), 10, 64)
	return born
}

func number(b []byte) int {
	n, _ := strconv.Atoi(string(b))
	return n
}

// carries reports whether the environment that the process was executed with has the entry. One that cannot be read has not.
func (r *reader) carries(pid int, entries ...string) bool {
	data, gone, err := r.file(pid, "environ")
	if gone || err != nil {
		return false
	}
	for kv := range bytes.SplitSeq(data, []byte{0}) {
		if slices.Contains(entries, string(kv)) {
			return true
		}
	}
	return false
}

// send signals the very process that t describes: its number may have gone to another since. A process that is gone is no error.
func (r *reader) send(t task, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(t.pid, 0)
	switch {
	case errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM):
		return r.sendByNumber(t, sig)
	case errors.Is(err, unix.ESRCH):
		return nil
	case err != nil:
		return fmt.Errorf("spawn: signal %d: %w", t.pid, err)
	}
	defer unix.Close(fd)
	// The descriptor stands for one process. If that is still t now, it is t whom the signal meets, or nobody.
	if now, ok, err := r.task(t.pid); err != nil || !ok || now.born != t.born {
		return err
	}
	return signalled(t.pid, unix.PidfdSendSignal(fd, sig, nil, 0))
}

// sendByNumber does without descriptors of processes, which Linux has from 5.3 on.
func (r *reader) sendByNumber(t task, sig unix.Signal) error {
	if now, ok, err := r.task(t.pid); err != nil || !ok || now.born != t.born {
		return err
	}
	return signalled(t.pid, unix.Kill(t.pid, sig))
}

func signalled(pid int, err error) error {
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("spawn: signal %d: %w", pid, err)
}

// groupsInUse returns the marks that processes have.
func groupsInUse() (map[uint32]bool, error) {
	all, err := pids()
	if err != nil {
		return nil, err
	}
	var r reader
	used := map[uint32]bool{}
	for _, pid := range all {
		t, ok, err := r.task(pid)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		for _, gid := range t.groups {
			if gid >= firstMark && gid < firstMark+markCount {
				used[gid] = true
			}
		}
	}
	return used, nil
}
