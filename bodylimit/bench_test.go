package bodylimit_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/bodylimit"
)

// sink is a ResponseWriter that costs as little as can be.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header             { return s.header }
func (s *sink) WriteHeader(int)                 {}
func (s *sink) Write(p []byte) (int, error)     { return len(p), nil }
func (s *sink) SetReadDeadline(time.Time) error { return nil }
func (s *sink) Flush()                          {}

// pairs times ours and the peer in turns, so that what else the machine does meets both, and reports the ratio.
func pairs(b *testing.B, ours, peer func()) {
	const turn = 200
	var a, z time.Duration
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		start := time.Now()
		for range turn {
			ours()
		}
		mid := time.Now()
		for range turn {
			peer()
		}
		a += mid.Sub(start)
		z += time.Since(mid)
		n += turn
	}
	b.ReportMetric(float64(a)/float64(n), "ours-ns")
	b.ReportMetric(float64(z)/float64(n), "peer-ns")
	b.ReportMetric(float64(a)/float64(z), "ours/peer")
	b.ReportMetric(0, "ns/op") // both together
}

// requests returns a source of one request, over and over.
func requests(size int, declared bool) func() *http.Request {
	text := strings.Repeat("x", size)
	src := strings.NewReader(text)
	r := httptest.NewRequest("POST", "/", io.NopCloser(src))
	r.ContentLength = -1
	if declared {
		r.ContentLength = int64(size)
	}
	return func() *http.Request {
		src.Reset(text)
		return r
	}
}

func BenchmarkAccept(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%d_KiB", size>>10), func(b *testing.B) {
			buf := make([]byte, 4<<10)
			next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for {
					if _, err := r.Body.Read(buf); err != nil {
						return
					}
				}
			})
			l := &bodylimit.Limiter{Max: 1 << 20}
			ours, peer := l.Handler(next), http.MaxBytesHandler(next, 1<<20)
			get, w := requests(size, true), &sink{http.Header{}}
			pairs(b, func() { ours.ServeHTTP(w, get()) }, func() { peer.ServeHTTP(w, get()) })
		})
	}
}

func BenchmarkAcceptJSON(b *testing.B) {
	body := `{"name":"` + strings.Repeat("x", 1000) + `"}`
	src := strings.NewReader("")
	r := httptest.NewRequest("POST", "/", io.NopCloser(src))
	r.ContentLength = int64(len(body))
	l := &bodylimit.Limiter{Max: 1 << 20}
	w := &sink{http.Header{}}
	ours := func() {
		src.Reset(body)
		if _, err := bodylimit.DecodeJSON[named](l, w, r); err != nil {
			b.Fatal(err)
		}
	}
	peer := http.MaxBytesHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v named
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			b.Fatal(err)
		}
	}), 1<<20)
	pairs(b, ours, func() { src.Reset(body); peer.ServeHTTP(w, r) })
}

// BenchmarkRefuse compares the refusal of a declared 1 KiB of JSON under a limit of 512 bytes, which MaxBytesHandler has to read. All of it
// has been sent already, so that reading on after the refusal ends at once.
func BenchmarkRefuse(b *testing.B) {
	const most = 512
	l := &bodylimit.Limiter{Max: most}
	ours := l.Handler(http.NotFoundHandler())
	peer := http.MaxBytesHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v named
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			http.Error(w, `{"error":"body is over the limit"}`, http.StatusRequestEntityTooLarge)
		}
	}), most)
	text := `{"name":"` + strings.Repeat("x", 1<<10) + `"}`
	src := strings.NewReader("")
	r := httptest.NewRequest("POST", "/", io.NopCloser(src))
	r.ContentLength = int64(len(text))
	w := &sink{http.Header{}}
	refuse := func() { src.Reset(""); ours.ServeHTTP(w, r) }
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			refuse()
		}
	})
	b.Run("with_peer", func(b *testing.B) {
		pairs(b, refuse, func() { src.Reset(text); peer.ServeHTTP(w, r) })
	})
}
