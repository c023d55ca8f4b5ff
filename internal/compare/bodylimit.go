package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/bodylimit"
)

const limit = 4 << 10

func bodylimitRows() []row {
	ok := bytes.Repeat([]byte("a"), 1<<10)
	tooLarge := bytes.Repeat([]byte("a"), limit+1)
	ours := (&bodylimit.Limiter{Max: limit}).Handler(http.HandlerFunc(readAll))
	theirs := http.MaxBytesHandler(http.HandlerFunc(readAll), limit)
	return []row{
		{"bodylimit, accepted body of 1 KiB", "http.MaxBytesHandler", serve(ours, ok, 200), serve(theirs, ok, 200), 1.05},
		{"bodylimit, refusal of a declared length", "http.MaxBytesHandler", serve(ours, tooLarge, 413), serve(theirs, tooLarge, 413), 0.3},
	}
}

// readAll reads the body and answers the verdict as a server without the limiter's own refusal would: with JSON.
func readAll(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error(), "code": "payload_too_large"})
	}
}

// serve measures a handler alone, with a writer that keeps nothing but the status and can do what that of net/http can.
func serve(h http.Handler, body []byte, want int) func(*testing.B) {
	return func(b *testing.B) {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.ContentLength = int64(len(body))
		w := &statusWriter{header: http.Header{}}
		reader := bytes.NewReader(body)
		b.ReportAllocs()
		for b.Loop() {
			reader.Reset(body)
			r.Body = io.NopCloser(reader)
			w.status = http.StatusOK
			clear(w.header)
			h.ServeHTTP(w, r)
			if w.status != want {
				b.Fatalf("status is %d, want %d", w.status, want)
			}
		}
	}
}

type statusWriter struct {
	header http.Header
	status int
}

func (w *statusWriter) Header() http.Header             { return w.header }
func (w *statusWriter) Write(b []byte) (int, error)     { return len(b), nil }
func (w *statusWriter) WriteHeader(status int)          { w.status = status }
func (w *statusWriter) SetReadDeadline(time.Time) error { return nil }
func (w *statusWriter) Flush()                          {}
