package bodylimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

func proxyTo(t *testing.T, s *httptest.Server) *httputil.ReverseProxy {
	t.Helper()
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
}

// TestBehindAReverseProxyTheRefusalArrives: the proxy goes on sending while it is being refused, and must not take that for a broken
// connection, which it would turn into a 502. R95
func TestBehindAReverseProxyTheRefusalArrives(t *testing.T) {
	for _, n := range []int{limit + 1, 200 << 10} {
		for _, kind := range []string{"handler", "decode", "wrapped"} {
			t.Run(fmt.Sprintf("%s_%d", kind, n), func(t *testing.T) {
				t.Parallel()
				front := serve(t, proxyTo(t, serve(t, servers[kind](limiter()))))
				body := strings.Repeat("x", n)
				c := dial(t, front)
				c.head(fmt.Sprintf("Content-Length: %d\r\n", n))
				c.send(body)
				refused(t, c.answer(), 413, "payload_too_large", tooLargeText(n))
				c = dial(t, front)
				c.head("Transfer-Encoding: chunked\r\n")
				c.send(chunk(body) + lastChunk)
				refused(t, c.answer(), 413, "payload_too_large", tooLargeText(-1))
			})
		}
	}
}

// TestInFrontOfAReverseProxyTheLimitIsKept: there the body is read by another goroutine than the one that answers.
func TestInFrontOfAReverseProxyTheLimitIsKept(t *testing.T) { // R95
	l := limiter()
	upstream := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d", n)
	}))
	proxy := proxyTo(t, upstream)
	proxy.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) {
		if !l.Refuse(w, r, err) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}
	front := serve(t, l.Handler(proxy))
	for _, n := range []int{limit + 1, 1 << 20} {
		c := dial(t, front)
		c.head("Transfer-Encoding: chunked\r\n")
		c.send(chunk(strings.Repeat("x", n)) + lastChunk)
		tooLarge(t, c.answer(), -1)
	}
	c := dial(t, front)
	c.head("Transfer-Encoding: chunked\r\n")
	c.send(chunk(strings.Repeat("x", limit)) + lastChunk)
	accepted(t, c, fmt.Sprint(limit))
}
