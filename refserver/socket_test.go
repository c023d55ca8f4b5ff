package refserver_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

func TestARefusalReachesAClientThatIsStillSending(t *testing.T) { // R52, R53
	g := newGuests(t)
	g.create("a")
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/a/exec", "/v1/sandboxes/a/processes"} {
		for _, c := range []struct {
			name string
			send func(w io.Writer)
		}{
			{"declared_and_not_sent", func(w io.Writer) { fmt.Fprintf(w, "Content-Length: %d\r\n\r\n", wire.MaxBody+1) }},
			{"chunked", sendChunks(wire.MaxBody + 1)},
			{"chunked_and_on", sendChunks(wire.MaxBody + 3<<20)},
		} {
			t.Run(strings.TrimPrefix(path, "/v1/")+"_"+c.name, func(t *testing.T) {
				conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n", path, adminToken)
				c.send(conn) // all of it, before a byte of the answer is read
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatalf("no answer: %v", err)
				}
				defer resp.Body.Close()
				raw, err := io.ReadAll(resp.Body)
				if resp.StatusCode != 413 || !resp.Close || !strings.Contains(string(raw), wire.CodePayloadTooLarge) || err != nil {
					t.Errorf("answered %d (close: %t) %s, %v", resp.StatusCode, resp.Close, raw, err)
				}
			})
		}
	}
	if got := g.do("GET", "/v1/sandboxes/a/processes", ""); got.raw != "[]\n" {
		t.Errorf("something was started: %s", got.raw)
	}
}

// sendChunks sends n bytes without saying so before.
func sendChunks(n int) func(io.Writer) {
	return func(w io.Writer) {
		fmt.Fprint(w, "Transfer-Encoding: chunked\r\n\r\n")
		chunk := "10000\r\n" + strings.Repeat(" ", 0x10000) + "\r\n"
		for ; n >= 0x10000; n -= 0x10000 {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
		fmt.Fprintf(w, "%x\r\n%s\r\n0\r\n\r\n", max(n, 1), strings.Repeat(" ", max(n, 1)))
	}
}
