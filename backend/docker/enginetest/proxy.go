package enginetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Verdict is what a Proxy does with one request.
type Verdict int

// The verdicts.
const (
	Pass      Verdict = iota // the engine answers
	Refuse                   // 500, and the engine never hears of it
	Missing                  // 404, and the engine never hears of it
	CutBefore                // the connection ends, and the engine never hears of it
	CutAfter                 // the connection ends when the engine has done it
	FailAfter                // 500 when the engine has done it
	Twice                    // the engine is asked twice, and its second answer counts
	Delay                    // the engine is asked a little later
	Hang                     // no answer until the proxy is mended, and then the engine's
	Late                     // no answer until the proxy is mended, and the engine is asked then even if the caller has left
	Claim                    // 200 with no content, and the engine never hears of it
)

// lateness is how much later an engine is asked with Delay.
const lateness = 300 * time.Millisecond

// Proxy stands between a Backend and an engine, on a socket of its own, and makes the engine fail. NewProxy makes one; it is safe
// for concurrent use.
type Proxy struct {
	Socket string // path of the socket
	engine *http.Transport

	mu    sync.Mutex // guards the fields below
	judge func(*http.Request) Verdict
	after func()        // of the next request that is cut when the engine has done it
	words string        // of a refusal
	mend  chan struct{} // closed when what hangs may go on
	seen  []string      // method and path of all requests, while they are counted
	count bool
}

// NewProxy returns a Proxy that lets everything pass, until the end of the test.
func NewProxy(t testing.TB, e *Engine) *Proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "kwp")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Socket: filepath.Join(dir, "s"), mend: make(chan struct{})}
	p.engine = &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.Socket)
	}}
	l, err := net.Listen("unix", p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-served
		p.engine.CloseIdleConnections()
		_ = os.RemoveAll(dir)
	})
	return p
}

// Fault lets judge decide until mend is called, which never fails; words are what a refusal says.
func (p *Proxy) Fault(words string, judge func(*http.Request) Verdict) (mend func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge, p.words = judge, words
	return func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.judge = nil
		close(p.mend)
		p.mend = make(chan struct{})
		return nil
	}
}

// Calls returns what was asked while f ran, each as method and path.
func (p *Proxy) Calls(f func()) []string {
	p.mu.Lock()
	p.count, p.seen = true, nil
	p.mu.Unlock()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count = false
	return p.seen
}

func (p *Proxy) verdict(r *http.Request) (Verdict, string, <-chan struct{}) {
	p.mu.Lock()
	judge, words, mend := p.judge, p.words, p.mend
	if p.count {
		p.seen = append(p.seen, r.Method+" "+r.URL.Path)
	}
	p.mu.Unlock()
	if judge == nil {
		return Pass, "", mend
	}
	return judge(r), words, mend
}

// ServeHTTP does with a request what its verdict says.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v, words, mend := p.verdict(r)
	switch v {
	case Refuse:
		fail(w, http.StatusInternalServerError, words)
	case Missing:
		fail(w, http.StatusNotFound, words)
	case Claim:
		w.WriteHeader(http.StatusOK)
	case CutBefore:
		panic(http.ErrAbortHandler)
	case Delay:
		p.later(w, r)
	case Hang:
		select {
		case <-mend:
			p.forward(w, r)
		case <-r.Context().Done():
		}
	case Late:
		body, _ := io.ReadAll(r.Body)
		<-mend
		p.forward(w, with(r.WithContext(context.WithoutCancel(r.Context())), body))
	case CutAfter:
		p.discard(r)
		p.done()
		panic(http.ErrAbortHandler)
	case FailAfter:
		p.discard(r)
		fail(w, http.StatusInternalServerError, words)
	case Twice:
		body, _ := io.ReadAll(r.Body)
		p.discard(with(r, body))
		p.forward(w, with(r, body))
	default:
		p.forward(w, r)
	}
}

// Afterwards is CutAfter, and makes f run when the engine has done the next request that is cut.
func (p *Proxy) Afterwards(f func()) Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = f
	return CutAfter
}

func (p *Proxy) done() {
	p.mu.Lock()
	f := p.after
	p.after = nil
	p.mu.Unlock()
	if f != nil {
		f()
	}
}

func (p *Proxy) later(w http.ResponseWriter, r *http.Request) {
	late := time.NewTimer(lateness)
	defer late.Stop()
	select {
	case <-late.C:
		p.forward(w, r)
	case <-r.Context().Done():
	}
}

func fail(w http.ResponseWriter, status int, words string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"message":"`+words+`"}`)
}

// with returns r with that body. An engine refuses some requests whose body only might be empty.
func with(r *http.Request, body []byte) *http.Request {
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = http.NoBody, int64(len(body))
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r
}

func (p *Proxy) ask(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", "engine", ""
	return p.engine.RoundTrip(out)
}

func (p *Proxy) discard(r *http.Request) {
	if resp, err := p.ask(r); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) {
	resp, err := p.ask(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_ = http.NewResponseController(w).Flush() // there may be no more for long
	_, _ = io.Copy(flusher{w, http.NewResponseController(w)}, resp.Body)
}

// flusher sends what is written at once, since some answers of an engine go on for long.
type flusher struct {
	w  io.Writer
	rc *http.ResponseController
}

func (f flusher) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	return n, errors.Join(err, f.rc.Flush())
}

// Once gives the verdict on the first request whose path ends so, and lets all others pass.
func Once(end string, v Verdict) func(*http.Request) Verdict {
	var given atomic.Bool
	return func(r *http.Request) Verdict {
		if strings.HasSuffix(r.URL.Path, end) && given.CompareAndSwap(false, true) {
			return v
		}
		return Pass
	}
}
