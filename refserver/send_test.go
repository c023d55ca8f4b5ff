package refserver_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/keepwell-go/keepwell/refserver"
)

// roundTrip sends r as the admin.
func (w *world) roundTrip(r *http.Request) answer {
	w.t.Helper()
	r.Header.Set("Authorization", "Bearer "+adminToken)
	a, err := w.answerTo(r)
	if err != nil {
		w.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	return a
}

// stream sends a request as the admin and returns the answer unread.
func (w *world) stream(method, path string) *http.Response {
	w.t.Helper()
	r, err := newRequest(w.url, method, path)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

func routeOf(w *world, method, suffix string) refserver.Route {
	for _, rt := range w.srv.Routes("a", "p") {
		if rt.Method == method && strings.HasSuffix(rt.Path, suffix) {
			return rt
		}
	}
	panic("no route " + suffix)
}

// sendBody sends n bytes to a route, with their number declared or not.
func (w *world) sendBody(rt refserver.Route, n int, declared bool) answer {
	w.t.Helper()
	r, err := http.NewRequest(rt.Method, w.url+rt.Path, io.LimitReader(spaces{}, int64(n)))
	if err != nil {
		w.t.Fatal(err)
	}
	if declared {
		r.ContentLength = int64(n)
	}
	return w.roundTrip(r)
}

// declare says that n bytes come, and sends none.
func (w *world) declare(rt refserver.Route, n int) answer {
	w.t.Helper()
	return w.raw(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", rt.Method, rt.Path, adminToken, n))
}

// raw sends a request as it is spelled.
func (w *world) raw(request string) answer {
	w.t.Helper()
	c, err := w.net.dial(w.ctx, "", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	go func() { _, _ = io.WriteString(c, request) }() // some answers come before it has all been read
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		w.t.Fatalf("%.80q: %v", request, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	a := answer{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	if err = errors.Join(err, json.Unmarshal(raw, &a.body)); err != nil {
		w.t.Fatalf("%.80q: %v", request, err)
	}
	return a
}

// spaces is white space without end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
