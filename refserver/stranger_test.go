package refserver_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// net/http waits for the rest of a body before it sends an answer. Somebody without a token must not hold a connection by that.
func TestAStrangerWhoPromisesABodyAndSendsNoneIsAnsweredAndCutOff(t *testing.T) {
	g := newGuests(t)
	g.create("a")
	const cut = 0 // without an answer: the body would have been read, and never came
	for line, want := range map[string]int{
		"GET /health":                  cut,
		"POST /v1/sandboxes":           http.StatusUnauthorized,
		"POST /v1/sandboxes/a/exec":    http.StatusUnauthorized,
		"PUT /v1/sandboxes/a/files/no": http.StatusNotFound,
		"PATCH /v1/sandboxes":          http.StatusMethodNotAllowed,
	} {
		for _, body := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
			t.Run(strings.NewReplacer("/", "_", " ", "_", ":", "").Replace(line+" "+body), func(t *testing.T) {
				t.Parallel()
				status, closes := promise(t, g, line+" HTTP/1.1\r\nHost: x\r\n"+body+"\r\n\r\n")
				if status != want || want != cut && !closes {
					t.Errorf("answered %d (close: %t), want %d and a close", status, closes, want)
				}
			})
		}
	}
}

// promise sends head and nothing after it, and returns once the server has closed the connection.
func promise(t *testing.T, g *guests, head string) (status int, closes bool) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, head)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0, true
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_, _ = io.Copy(io.Discard, in) // until it is closed
	return resp.StatusCode, resp.Close
}
