package bodylimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// theirLimit is one of net/http, smaller than ours and around it.
const theirLimit = 100

func TestASmallerLimitOfNetHTTPIsRefusedLikeOurs(t *testing.T) { // R54
	gunzips := limiter()
	gunzips.Gunzip = true
	for name, h := range map[string]http.Handler{
		"around_DecodeJSON": http.MaxBytesHandler(decode(limiter()), theirLimit),
		"around_Handler":    http.MaxBytesHandler(readAll(limiter()), theirLimit),
		"around_Gunzip":     http.MaxBytesHandler(readAll(gunzips), theirLimit),
	} {
		t.Run(name, func(t *testing.T) {
			for _, body := range []io.Reader{strings.NewReader(noise(2 * theirLimit)), undeclared(noise(2 * theirLimit))} {
				r := httptest.NewRequest("POST", "/", body)
				if name == "around_Gunzip" {
					r = encoded(gzipped(noise(2*theirLimit)), "gzip")
				}
				w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
				h.ServeHTTP(w, r)
				refused(t, w.Result(), 413, "payload_too_large", "bodylimit: body is over the limit of 100 bytes")
			}
		})
	}
}

func TestWhoReadsOnlyIsToldOfALimitOfNetHTTPToo(t *testing.T) { // R54
	h := func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		wantTooLarge(t, err, true, theirLimit, -1)
	}
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	http.MaxBytesHandler(limiter().Handler(http.HandlerFunc(h)), theirLimit).ServeHTTP(w, post(undeclared(noise(2*theirLimit))))
	if w.set != 1 {
		t.Errorf("the connection was hurried %d times", w.set)
	}
}

// noise is n bytes that gzip cannot make much shorter.
func noise(n int) string {
	b := make([]byte, n)
	for i, x := 0, uint32(1); i < n; i++ {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return string(b)
}
