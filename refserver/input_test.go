package refserver_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver"
)

func TestBodiesThatAreNoCreateRequestAreRefusedAndNothingIsDone(t *testing.T) { // R54
	inBubble(t, func(t *testing.T, w *world) {
		deep := strings.Repeat("[", 20_000)
		for _, body := range []string{
			``, ` `, `{`, `{"id":"a"`, `{"id":"a"}{}`, `{"id":"a"} x`, `null`[:3], `[]`, `"a"`, `7`, "{}\x00", "\xff", deep,
			`{"id":7}`, `{"id":null,"ttl_ms":"1"}`, `{"ttl_ms":1.5}`, `{"ttl_ms":1e30}`, `{"ttl_ms":-1}`, `{"idle_timeout_ms":-1}`,
			`{"env":[]}`, `{"env":{"A":1}}`, `{"env":{"":"v"}}`, `{"env":{"A=B":"v"}}`, `{"env":{"A":"\u0000"}}`,
			`{"limits":7}`, `{"limits":{"memory_mb":-1}}`, `{"limits":{"cpus":-0.5}}`, `{"limits":{"pids":"many"}}`, `{"limits":{"gpus":1}}`,
			`{"pinned":"yes"}`, `{"profile":"root"}`, `{"tenant":"a\u0000b"}`, `{"image":"\n"}`, `{"unknown":1}`, `{"ttl":"1h"}`,
			fmt.Sprintf(`{"env":{"A":%q}}`, strings.Repeat("v", wire.MaxEnvValue+1)), manyVariables(wire.MaxEnv + 1),
			fmt.Sprintf(`{"tenant":%q}`, strings.Repeat("t", 300)),
		} {
			got := w.do("POST", "/v1/sandboxes", body)
			if got.status != 400 || got.code() != "bad_request" || got.str("error") == "" {
				t.Errorf("%.60q answered %d %s", body, got.status, got.raw)
			}
		}
		for _, id := range badIDs() {
			if id == "" {
				continue // none asked for: one is minted
			}
			w.do("POST", "/v1/sandboxes", fmt.Sprintf(`{"id":%s}`, quoteJSON(id))).want(t, 400, "bad_request")
		}
		if n, used := w.doings(), w.srv.Used("host", ""); n != 0 || used != 0 {
			t.Errorf("%d things were done, %d counted", n, used)
		}
	})
}

func manyVariables(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"V%d":""`, i)
	}
	return `{"env":{` + b.String()[1:] + `}}`
}

// badIDs are no sandbox's id.
func badIDs() []string {
	return []string{
		"", "A", "a_b", "-a", "a-", "a.b", ".", "..", "a/b", "a/../b", "a b", "a\x00", "\x00", "é", "a\n", "a%2fb", strings.Repeat("a", 64), strings.Repeat("a", 300),
	}
}

func quoteJSON(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r < ' ' {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	b.WriteByte('"')
	return b.String()
}

// escape spells every byte of s, so that nothing on the way mends it.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

func TestIDsThatAreNoneReachNeitherBackendNorRunner(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		before := w.doings()
		for _, id := range badIDs() {
			for _, rt := range w.srv.Routes("\x01", "p") {
				if !strings.Contains(rt.Path, "\x01") {
					continue
				}
				got := w.do(rt.Method, strings.Replace(rt.Path, "\x01", escape(id), 1), "")
				if want := map[bool]int{true: 404, false: 400}[id == ""]; got.status != want || got.str("error") == "" {
					t.Errorf("%s %s with id %.20q answered %d %s, want %d", rt.Method, rt.Path, id, got.status, got.raw, want)
				}
			}
		}
		for _, pid := range []string{"..", ".", "a/b", "../../b", "a\x00b", "a b", "é", "a.b", strings.Repeat("p", wire.MaxProcessID+1), "?", "#"} {
			for _, rt := range w.srv.Routes("a", "\x01") {
				if !strings.Contains(rt.Path, "\x01") {
					continue
				}
				w.do(rt.Method, strings.Replace(rt.Path, "\x01", escape(pid), 1), "").want(t, 400, "bad_request")
			}
		}
		for _, rt := range w.srv.Routes("a", "4321") { // R60
			if strings.Contains(rt.Path, "4321") {
				w.do(rt.Method, rt.Path, "").want(t, 400, "pid_not_accepted")
			}
		}
		if n := w.doings() - before; n != 0 {
			t.Errorf("%d things were done", n)
		}
	})
}

func TestAQueryThatCannotBeReadReachesNeitherBackendNorRunner(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		before := w.doings()
		for _, query := range []string{"offset=%zz", "path=f;offset=3", "%", "a=1&b=%4"} {
			for _, rt := range w.srv.Routes("a", "p") {
				if rt.Path != "/health" {
					w.do(rt.Method, rt.Path+"?"+query, "").want(t, 400, "bad_request")
				}
			}
		}
		if n := w.doings() - before; n != 0 {
			t.Errorf("%d things were done", n)
		}
	})
}

func TestPathsThatAreNoRoutesLeadNowhere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		before := w.doings()
		for _, path := range []string{
			"/", "//", "/v1", "/v1/", "/v1/sandboxes/", "/v1//sandboxes", "/v1/sandboxes/a/", "/v1/sandboxes/a:", "/v1/sandboxes/a:start", "/v1/sandboxes/:stop",
			"/v1/sandboxes/a/activity", "/v1/sandboxes/a/exec/", "/v1/sandboxes/a/exec/x", "/v1/sandboxes/a/files", "/v1/sandboxes/a/files/own",
			"/v1/sandboxes/a/processes/p:frob", "/v1/sandboxes/a/processes/p/x", "/v1/sandboxes/a/processes/../../b/processes",
			"/v1/sandboxes/a%2fexec", "/v1/sandboxes/a/%2e%2e/a/processes", "/host/v1/down", "/v2/sandboxes",
		} {
			for _, method := range []string{"GET", "POST", "DELETE"} {
				if got := w.do(method, path, ""); !slices.Contains([]int{400, 404, 405}, got.status) || got.str("error") == "" {
					t.Errorf("%s %s answered %d %s", method, path, got.status, got.raw)
				}
			}
		}
		if n := w.doings() - before; n != 0 {
			t.Errorf("%d things were done", n)
		}
	})
}

func TestHeadIsAnsweredHereAndReachesNoRunner(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		for path, want := range map[string]int{
			"/health": 200, "/v1/sandboxes": 200, "/v1/sandboxes/a": 200, "/v1/sandboxes/a/processes": 405, "/v1/sandboxes/a/files/read": 405,
		} {
			if got := w.do("HEAD", path, ""); got.status != want || got.raw != "" {
				t.Errorf("HEAD %s answered %d %q, want %d", path, got.status, got.raw, want)
			}
		}
		if n := len(w.runner.requests()); n != 0 {
			t.Errorf("%d requests reached a runner", n)
		}
	})
}

func TestAMethodThatARouteDoesNotHaveIsAnsweredWithThoseItHas(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		before := w.doings()
		allowed := map[string][]string{}
		for _, rt := range w.srv.Routes("a", "p") {
			allowed[rt.Path] = append(allowed[rt.Path], rt.Method)
		}
		for path, methods := range allowed {
			slices.Sort(methods)
			for _, m := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FROB"} {
				if slices.Contains(methods, m) {
					continue
				}
				got := w.do(m, path, "").want(t, 405, "method_not_allowed")
				if allow := got.header.Get("Allow"); allow != strings.Join(methods, ", ") {
					t.Errorf("%s %s: Allow %q, want %q", m, path, allow, methods)
				}
			}
		}
		if n := w.doings() - before; n != 0 {
			t.Errorf("%d things were done", n)
		}
	})
}

func TestNoRouteTakesABodyOverItsLimit(t *testing.T) { // R52, R53
	const body, file = 64 << 10, 128 << 10 // small ones, so that all routes can be tried
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		for _, rt := range w.srv.Routes("a", "p") {
			limit := body
			if strings.HasSuffix(rt.Path, "/files/write") {
				limit = file
				w.sendBody(rt, file, false).want(t, 200, "")
			}
			w.sendBody(rt, limit+1, false).want(t, 413, "payload_too_large")
			w.declare(rt, limit+1).want(t, 413, "payload_too_large")
		}
		if got := w.get("a"); got.status != 200 || w.srv.Len() != 1 {
			t.Errorf("the sandbox is %d %s", got.status, got.raw)
		}
	}, func(cfg *refserver.Config) { cfg.MaxBody, cfg.MaxFile = body, file })
}

func TestABodyOfExactlyTheLimitIsTaken(t *testing.T) { // R53, R55
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		body := `{"cmd":"` + strings.Repeat("x", wire.MaxBody-len(`{"cmd":""}`)) + `"}`
		w.do("POST", "/v1/sandboxes/a/exec", body).want(t, 200, "")
		create := `{"id":"b"` + strings.Repeat(" ", wire.MaxBody-len(`{"id":"b"}`)) + `}`
		w.do("POST", "/v1/sandboxes", create).want(t, 201, "")
	})
}

func TestTheServerRefusesEncodedBodies(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/a/exec"} {
			r, err := http.NewRequest("POST", w.url+path, strings.NewReader(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Encoding", "gzip")
			w.roundTrip(r).want(t, 415, "unsupported_encoding")
		}
	})
}

// It is the client's fault on every route, be the body wanted there or not, and nothing else is blamed for it.
func TestABodyOfBrokenChunksIsABadRequest(t *testing.T) { // R54
	inBubble(t, func(t *testing.T, w *world) {
		for _, protocol := range []int{wire.OldestProtocol, wire.Protocol} {
			w.runner.speak(protocol)
			w.create("a")
			w.runner.handle(func(_ http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err == nil {
					t.Errorf("%s %s: the runner got a whole body", r.Method, r.URL)
				}
			})
			for _, rt := range w.srv.Routes("a", "p") {
				for _, chunks := range []string{"-1\r\n{}\r\n", "2\r\n{}XX0\r\n\r\n", "1;" + strings.Repeat("x", 8<<10) + "\r\n{"} {
					head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n", rt.Method, rt.Path, adminToken)
					if got := w.raw(head + chunks); got.status != 400 || got.code() != wire.CodeBadRequest {
						t.Errorf("protocol %d: %s %s with %.20q: %d %s", protocol, rt.Method, rt.Path, chunks, got.status, got.raw)
					}
				}
			}
			w.runner.handle(nil)
			w.destroy("a").want(t, 200, "")
		}
	})
}
