package bodylimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/bodylimit"
)

// brief ends the stream soon after the refusal, since Go's client stops sending then and waits for that.
func brief() *bodylimit.Limiter { return &bodylimit.Limiter{Max: limit, Drain: time.Millisecond} }

// overHTTP2 returns a server and a client that speak HTTP/2 to each other, with prior knowledge or by TLS.
func overHTTP2(t *testing.T, h http.Handler, tls bool) (*httptest.Server, *http.Client) {
	t.Helper()
	if tls {
		s := httptest.NewUnstartedServer(h)
		s.EnableHTTP2 = true
		s.StartTLS()
		t.Cleanup(s.Close)
		return s, s.Client()
	}
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return serve(t, h), &http.Client{Transport: tr}
}

// TestOverHTTP2ARefusalHarmsNoOtherStream keeps one upload open on the connection while others on it are refused. R95
func TestOverHTTP2ARefusalHarmsNoOtherStream(t *testing.T) {
	for _, tls := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls_%t", tls), func(t *testing.T) {
			s, client := overHTTP2(t, readAll(brief()), tls)
			feed, slow := io.Pipe()
			other := make(chan *http.Response, 1)
			go func() { other <- upload(t, client, s.URL, feed) }()
			if _, err := slow.Write([]byte("abc")); err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{limit + 1, 4 << 20} {
				body := strings.Repeat("x", n)
				refused2(t, upload(t, client, s.URL, strings.NewReader(body)), n)
				refused2(t, upload(t, client, s.URL, undeclared(body)), -1)
			}
			if _, err := slow.Write([]byte("def")); err != nil {
				t.Errorf("the other stream was ended: %v", err)
			}
			_ = slow.Close()
			res := <-other
			if body, _ := io.ReadAll(res.Body); res.StatusCode != 200 || string(body) != "6" {
				t.Errorf("the other stream was answered %d %q", res.StatusCode, body)
			}
		})
	}
}

func refused2(t *testing.T, res *http.Response, declared int) {
	t.Helper()
	if res.ProtoMajor != 2 {
		t.Errorf("spoke %s", res.Proto)
	}
	if got := res.Header.Values("Connection"); got != nil {
		t.Errorf("Connection: %q over HTTP/2", got)
	}
	refused(t, res, 413, "payload_too_large", tooLargeText(declared))
}

// upload posts body. A pipe is the first upload of its client; all others have to be on the connection that it opened.
func upload(t *testing.T, client *http.Client, url string, body io.Reader) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, body)
	if err != nil {
		t.Fatal(err)
	}
	_, first := body.(*io.PipeReader)
	trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		if !first && !c.Reused {
			t.Error("the connection was given up")
		}
	}}
	res, err := client.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil {
		t.Errorf("no answer: %v", err)
		return &http.Response{Body: http.NoBody}
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func TestOverHTTP2ASilentClientIsRefusedAtOnce(t *testing.T) { // R52
	s, client := overHTTP2(t, readAll(brief()), false)
	feed, silent := io.Pipe()
	defer silent.Close()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, feed)
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = limit + 1
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	refused2(t, res, limit+1)
}

func TestOverHTTP2ABodyOfExactlyTheLimitIsAccepted(t *testing.T) { // R53
	s, client := overHTTP2(t, wrapped(readAll(brief())), true)
	for _, body := range []io.Reader{strings.NewReader(strings.Repeat("x", limit)), undeclared(strings.Repeat("x", limit))} {
		res, err := client.Post(s.URL, "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if got, _ := io.ReadAll(res.Body); res.StatusCode != 200 || string(got) != fmt.Sprint(limit) {
			t.Errorf("answered %d %q", res.StatusCode, got)
		}
	}
}
