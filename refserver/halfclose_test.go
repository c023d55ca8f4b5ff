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

// A client that closes its half of the connection counts as gone, and may still read.
func TestAClientThatHasSentItsLastIsNotToldOfASuccessThatWasNone(t *testing.T) {
	g := newGuests(t)
	g.create("a")
	for _, c := range []struct{ name, method, path, body, whole string }{
		{"command", "POST", "/v1/sandboxes/a/exec", `{"cmd":"echo x; sleep 1"}`, `"event":"exit"`},
		{"follower", "GET", "/v1/sandboxes/a/processes/p/output?follow=1", "", `"event":"exit"`},
		{"missing_file", "GET", "/v1/sandboxes/a/files/stat?path=nowhere", "", "no such file"},
		{"missing_sandbox", "GET", "/v1/sandboxes/b", "", "no sandbox"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g.do("POST", "/v1/sandboxes/a/processes", `{"id":"p","cmd":"sleep 60"}`)
			conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", c.method, c.path, adminToken, len(c.body), c.body)
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				return // cut off, which nobody takes for an answer
			}
			defer resp.Body.Close()
			raw, err := io.ReadAll(resp.Body)
			if err == nil && !strings.Contains(string(raw), c.whole) {
				t.Errorf("answered %s and, as if that were all of it, %q", resp.Status, raw)
			}
		})
	}
}
