package docker_test

import (
	"bytes"
	"context"
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
)

// verdict is what the proxy does with one request.
type verdict int

const (
	pass      verdict = iota
	refuse            // 500, and the engine never hears of it
	cutBefore         // the connection ends, and the engine never hears of it
	cutAfter          // the connection ends when the engine has done it
	failAfter         // 500 when the engine has done it
	twice             // the engine is asked twice, and its second answer counts
	hang              // no answer until the proxy is mended
	claim             // 200 with no content, and the engine never hears of it
)

// proxy stands between a Backend and the engine, on a socket of its own.
type proxy struct {
	socket string
	engine *http.Transport

	mu    sync.Mutex // guards the fields below
	judge func(*http.Request) verdict
	after func()        // of the next request that is cut when the engine has done it
	words string        // of a refusal
	mend  chan struct{} // closed when what hangs may go on
	seen  []string      // method and path of all requests, while they are counted
	count bool
}

func newProxy(t testing.TB, e *testEngine) *proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "kwp")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{socket: filepath.Join(dir, "s"), mend: make(chan struct{})}
	p.engine = &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.socket)
	}}
	l, err := net.Listen("unix", p.socket)
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

// fault lets judge decide until the returned function is called.
func (p *proxy) fault(words string, judge func(*http.Request) verdict) (mend func() error) {
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

// calls returns what the engine was asked while f ran.
func (p *proxy) calls(f func()) []string {
	p.mu.Lock()
	p.count, p.seen = true, nil
	p.mu.Unlock()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count = false
	return p.seen
}

func (p *proxy) verdict(r *http.Request) (verdict, string, <-chan struct{}) {
	p.mu.Lock()
	judge, words, mend := p.judge, p.words, p.mend
	if p.count {
		p.seen = append(p.seen, r.Method+" "+r.URL.Path)
	}
	p.mu.Unlock()
	if judge == nil {
		return pass, "", mend
	}
	return judge(r), words, mend
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v, words, mend := p.verdict(r)
	switch v {
	case refuse:
		fail(w, words)
	case claim:
		w.WriteHeader(http.StatusOK)
	case cutBefore:
		panic(http.ErrAbortHandler)
	case hang:
		select {
		case <-mend:
			p.forward(w, r)
		case <-r.Context().Done():
		}
	case cutAfter:
		p.discard(r)
		p.done()
		panic(http.ErrAbortHandler)
	case failAfter:
		p.discard(r)
		fail(w, words)
	case twice:
		body, _ := io.ReadAll(r.Body)
		p.discard(with(r, body))
		p.forward(w, with(r, body))
	default:
		p.forward(w, r)
	}
}

// afterwards makes f run when the engine has done the next request that is cut.
func (p *proxy) afterwards(f func()) verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = f
	return cutAfter
}

func (p *proxy) done() {
	p.mu.Lock()
	f := p.after
	p.after = nil
	p.mu.Unlock()
	if f != nil {
		f()
	}
}

func fail(w http.ResponseWriter, words string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusInternalServerError)
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

func (p *proxy) ask(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", "engine", ""
	return p.engine.RoundTrip(out)
}

func (p *proxy) discard(r *http.Request) {
	if resp, err := p.ask(r); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

func (p *proxy) forward(w http.ResponseWriter, r *http.Request) {
	resp, err := p.ask(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// once gives the verdict on the first request whose path ends so, and lets all others pass.
func once(end string, v verdict) func(*http.Request) verdict {
	var given atomic.Bool
	return func(r *http.Request) verdict {
		if strings.HasSuffix(r.URL.Path, end) && given.CompareAndSwap(false, true) {
			return v
		}
		return pass
	}
}
