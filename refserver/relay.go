package refserver

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"go.uber.org/zap"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/internal/gather"
)

const (
	relaySize   = 32 << 10  // bytes that are passed on at once
	relayBusy   = 256 << 10 // the same for a stream that fills them: each write wakes the client
	maxTerminal = 1 << 10   // bytes of the longest last line of a stream
	lookBack    = 4 << 10   // bytes in which a newline is looked for at once
)

// relayBuffers are shared by all streams, since most of the time most streams are silent.
type relayBuffers struct{ pool sync.Pool }

func (p *relayBuffers) get() *[relaySize]byte {
	if b, ok := p.pool.Get().(*[relaySize]byte); ok {
		return b
	}
	return new([relaySize]byte)
}

// relay passes on the lines of a stream as they come. A line that the runner did not finish is held back; a stream that ends
// without its last event is given one, so that its reader never has to guess. exited says that the process was seen to end.
func (s *Server) relay(w http.ResponseWriter, r *http.Request, c *call, from io.Reader) (exited bool) {
	buf := s.buffers.get()
	defer s.buffers.pool.Put(buf)
	lines := lineRelay{to: gather.NewWriter(r.Context(), w), buf: buf[:]}
	if !c.route.starts {
		_ = http.NewResponseController(w).Flush() // a process that is silent has its headers at once
	}
	readErr, writeErr := lines.run(from)
	if last := lines.terminal(); last != "" {
		return last == wire.EventExit
	}
	if writeErr != nil || r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // or a client that still reads would take a part for the whole
	}
	if readErr == io.EOF && !c.route.follows(r) {
		return false // it was asked for what there is, and this is it
	}
	s.log.Warn("stream of a runner broke off", zap.String("sandbox", c.id), zap.Error(readErr))
	lines.fail(wire.Failure{Event: wire.EventError, Error: "the runner of sandbox " + c.id + " was lost", Code: wire.CodeRunnerLost})
	return false
}

// lineRelay copies whole lines.
type lineRelay struct {
	to   *gather.Writer
	buf  []byte
	n    int    // bytes of buf that wait for the end of their line
	torn bool   // a line longer than buf was passed on in part
	last []byte // the last whole line, where it is short enough to be the last event
}

// run copies until the stream ends, and returns how reading ended and how writing failed.
func (l *lineRelay) run(from io.Reader) (readErr, writeErr error) {
	for {
		n, err := from.Read(l.buf[l.n:])
		full := l.n+n == len(l.buf)
		if writeErr := l.pass(n); writeErr != nil {
			return err, writeErr
		}
		if full && len(l.buf) < relayBusy {
			l.buf = append(make([]byte, 0, relayBusy), l.buf[:l.n]...)[:relayBusy]
		}
		if err != nil {
			return err, nil
		}
	}
}

// pass writes what the n bytes just read complete.
func (l *lineRelay) pass(n int) error {
	end := lastNewline(l.buf[l.n:l.n+n]) + 1
	if end > 0 {
		end += l.n
		l.note(l.buf[:end])
	}
	l.n += n
	if end == 0 && l.n == len(l.buf) {
		end, l.torn = l.n, true
	}
	if end == 0 {
		return nil
	}
	if _, err := l.to.Write(l.buf[:end]); err != nil {
		return err
	}
	l.n = copy(l.buf, l.buf[end:l.n])
	return nil
}

// note remembers the last line of block, which ends with it.
func (l *lineRelay) note(block []byte) {
	tail := block[max(0, len(block)-maxTerminal-1):]
	start := bytes.LastIndexByte(tail[:len(tail)-1], '\n') + 1
	l.last = l.last[:0]
	if start > 0 || len(tail) == len(block) && len(tail) <= maxTerminal && !l.torn {
		l.last = append(l.last, tail[start:]...)
	}
	l.torn = false
}

// lastNewline is bytes.LastIndexByte for lines that are long: what looks forward looks at many bytes at once.
func lastNewline(b []byte) int {
	for end := len(b); end > 0; end -= min(end, lookBack) {
		from := max(0, end-lookBack)
		if bytes.IndexByte(b[from:end], '\n') >= 0 {
			return from + bytes.LastIndexByte(b[from:end], '\n')
		}
	}
	return -1
}

// terminal returns the name of the event that ended the stream, or "" if its last line was none of those.
func (l *lineRelay) terminal() string {
	var event wire.Event
	if l.n > 0 || l.torn || json.Unmarshal(l.last, &event) != nil || event.Event != wire.EventExit && event.Event != wire.EventError {
		return ""
	}
	return event.Event
}

// fail writes the last event in place of what did not come.
func (l *lineRelay) fail(f wire.Failure) {
	b, _ := json.Marshal(f) // strings: it cannot fail
	if l.torn {
		b = append([]byte{'\n'}, b...)
	}
	_, _ = l.to.Write(append(b, '\n'))
}
