package runner

import (
	"github.com/benbjohnson/clock"

	"github.com/keepwell-go/keepwell/backend/runner/spawn"
)

// What the external tests need to see of the inside.

var (
	AppendOutput = appendOutput
	CleanPath    = cleanPath
	NewOutput    = newOutput
	CheckID      = checkID
)

const ReadSize = readSize

type Output = output

func (o *output) Append(stream int, b []byte) { o.append(stream, b) }

// Follow reads at offset what is there for a reader that holds nobody back: the lines that are sent, without the last one.
func (o *output) Follow(off [2]int64) *Follower {
	r, ok := o.attach(off, false)
	if !ok {
		return nil
	}
	return &Follower{r: r, buf: make([]byte, readSize)}
}

type Follower struct {
	r   *reader
	buf []byte
}

// Next returns the next line, and whether there was something.
func (f *Follower) Next() (line []byte, ok bool) {
	switch it := f.r.next(f.buf); it.found {
	case foundData:
		return appendOutput(nil, it.stream, f.buf[:it.to-it.from], it.from), true
	case foundGap:
		return appendLine(nil, map[string]any{"event": "gap", "stream": eventName(it.stream), "from": it.from, "to": it.to}), true
	case foundExit:
		return appendLine(nil, it.exit), true
	default:
		return nil, false
	}
}

func (f *Follower) Leave() { f.r.out.detach(f.r) }

// Held returns the bytes that the output holds.
func (o *output) Held() int64 { return o.size() }

// Crowd makes a sandbox look as if n processes ran in it, or that many fewer.
func (s *Server) Crowd(id string, n int) {
	sb := s.sandbox(id)
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.open += n * len(pipes{})
}

// Finish puts a process that has ended into the history of a sandbox.
func (s *Server) Finish(id string, out *Output) {
	s.sandbox(id).finish(&process{id: "made up", out: out})
}

// Immortal puts a process into a sandbox that nothing can kill, until it is told to die. It writes what is appended to out.
func (s *Server) Immortal(sandbox, id string) (out *Output, die func()) {
	p := &process{id: id, key: id, sb: s.sandbox(sandbox), out: newOutput(), exited: make(chan struct{})}
	p.sb.add(p)
	return p.out, func() {
		close(p.exited)
		p.out.end(p.exit())
	}
}

// Kept returns how much output of ended processes a sandbox keeps.
func (s *Server) Kept(id string) int64 {
	sb := s.sandbox(id)
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.kept
}

type Minter = minter

func NewMinter(c clock.Clock) *Minter { return &minter{clock: c} }

func (m *minter) Mint() string { return m.mint() }

// LaunchUntilRefused makes a sandbox look as if a start were under way that ends when the sandbox refuses starts, as one does that waits
// for others before it. It returns how that start ended.
func (s *Server) LaunchUntilRefused(id string, start func(*spawn.Confinement) error) <-chan error {
	sb := s.sandbox(id)
	_, l, _, _ := sb.begin("waits")
	ended := make(chan error, 1)
	go func() { // ends with the sandbox
		defer sb.launched("waits", l)
		for l.err = start(sb.conf); l.err == nil; l.err = start(sb.conf) {
		}
		ended <- l.err
	}()
	return ended
}

// MkdirAll makes a directory below home as a request does.
func MkdirAll(home, name string) error {
	w, err := newWorkspace(home, 0)
	if err != nil {
		return err
	}
	defer w.close()
	root, err := w.open()
	if err != nil {
		return err
	}
	return w.mkdirAll(root, name)
}
