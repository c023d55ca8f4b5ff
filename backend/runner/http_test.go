package runner_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// jsonRoutes are all routes that read JSON.
func jsonRoutes(id string) []string {
	return []string{"/exec", "/processes", "/processes/" + id + "/stdin", "/processes/" + id + ":signal"}
}

func TestBodiesThatAreNotWhatWasAskedForAreRefused(t *testing.T) { // R54
	const limit = 64 << 10 // what is read of a body is the same for any
	w := newWorldWith(t, runner.Config{MaxBody: limit, Protocol: protocol()})
	s := w.started(wire.StartRequest{Cmd: argv("cat")})
	for _, path := range jsonRoutes(s.ID) {
		for _, body := range []string{"", " ", "{", `{"cmd":"true"`, `{"cmd":"true"} x`, `{"cmd":"true"}{}`, "[]", `"text"`, "nul"} {
			w.refused("POST", path, body, 400, wire.CodeBadRequest)
		}
		big := `{"cmd":"true","data":"x","signal":"CONT"}`
		big += strings.Repeat(" ", limit+1-len(big))
		w.refused("POST", path, big, 413, wire.CodePayloadTooLarge)
		resp := w.request("POST", path, io.MultiReader(strings.NewReader(big))) // chunked
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("%s, chunked: %d", path, resp.StatusCode)
		}
	}
	if list := w.list(); len(list) != 1 {
		t.Errorf("something was started: %+v", list)
	}
}

func (c *client) list() (list []wire.Process) {
	c.t.Helper()
	c.ok("GET", "/processes", nil, &list)
	return list
}

func TestABodyOfExactlyTheLimitIsAccepted(t *testing.T) { // R55
	w := newWorld(t)
	w.refused("POST", "/exec", strings.Repeat(" ", wire.MaxBody+1), 413, wire.CodePayloadTooLarge)
	body := `{"cmd":"wc -c","stdin":"`
	stdin := strings.Repeat("x", wire.MaxBody-len(body)-2)
	resp := w.request("POST", "/exec", strings.NewReader(body+stdin+`"}`))
	e := &events{t, resp.Body, json.NewDecoder(resp.Body)}
	defer e.close()
	if res := e.rest(); strings.TrimSpace(string(res.stdout)) != "8388582" || res.code(t) != 0 {
		t.Errorf("%q, exit %+v", res.stdout, res.last)
	}
}

func TestStartRequestsAreChecked(t *testing.T) {
	w := newWorld(t)
	many := map[string]string{}
	for i := range wire.MaxEnv + 1 {
		many[strings.Repeat("N", i+1)] = ""
	}
	for _, body := range []string{
		`{}`, `{"cmd":""}`, `{"cmd":[]}`, `{"cmd":[""]}`, `{"cmd":null}`, `{"cmd":7}`, `{"cmd":["a",7]}`, `{"cmd":{"line":"x"}}`,
		`{"cmd":"true","shell":false}`, `{"cmd":["true"],"shell":true}`, `{"cmd":"a\u0000b"}`, `{"cmd":["a","\u0000"]}`,
		`{"cmd":"true","timeout":-1}`, `{"cmd":"true","timeout":1e300}`, `{"cmd":"true","timeout":"5"}`,
		`{"cmd":"true","env":{"":"x"}}`, `{"cmd":"true","env":{"A=B":"x"}}`, `{"cmd":"true","env":{"A":"\u0000"}}`, `{"cmd":"true","env":["A=B"]}`,
		toJSON(wire.StartRequest{Cmd: line("true"), Env: map[string]string{"A": strings.Repeat("x", wire.MaxEnvValue+1)}}),
		toJSON(wire.StartRequest{Cmd: line("true"), Env: many}),
		toJSON(wire.StartRequest{Cmd: line("true"), Tag: strings.Repeat("x", wire.MaxTag+1)}),
		toJSON(wire.StartRequest{Cmd: line(strings.Repeat("x", wire.MaxCommand+1))}),
		`{"cmd":"true","id":"a/b"}`, `{"cmd":"true","id":".."}`, `{"cmd":"true","id":"a b"}`, `{"cmd":"true","id":"\u0000"}`,
		toJSON(wire.StartRequest{Cmd: line("true"), ID: strings.Repeat("x", 65)}),
	} {
		w.refused("POST", "/exec", body, 400, wire.CodeBadRequest)
		w.refused("POST", "/processes", body, 400, wire.CodeBadRequest)
	}
	w.refused("POST", "/exec", `{"cmd":"true","id":"1234"}`, 400, wire.CodePIDNotAccepted)
	if list := w.list(); len(list) != 0 {
		t.Errorf("something was started: %+v", list)
	}
	ok := wire.StartRequest{Cmd: line("exit 0"), Shell: ptr(true), Tag: strings.Repeat("x", wire.MaxTag), ID: strings.Repeat("x", 64)}
	delete(many, "N")
	ok.Env = many
	ok.Env["NN"] = strings.Repeat("x", wire.MaxEnvValue)
	if res := w.exec(ok); res.code(t) != 0 {
		t.Errorf("what is exactly at the limits: %+v", res)
	}
}

// A parameter that cannot be read must not be taken for one that is absent: without its offset a write replaces the whole file.
func TestAQueryThatCannotBeReadIsRefused(t *testing.T) {
	w := newWorld(t)
	w.ok("PUT", "/files/write?path=f", "old", nil)
	for _, r := range []struct{ method, path string }{
		{"PUT", "/files/write?path=f&offset=%zz"},
		{"PUT", "/files/write?path=f;offset=3"},
		{"GET", "/files/read?path=f&length=1;"},
		{"GET", "/processes?limit=%"},
		{"DELETE", "/files/delete?path=f&recursive=%4"},
	} {
		if text := w.refused(r.method, r.path, "new", 400, wire.CodeBadRequest); !strings.HasPrefix(text, "query: ") {
			t.Errorf("%s: the user is told %q", r.path, text)
		}
	}
	if got := w.onDisk("f"); got != "old" {
		t.Errorf("the file has %q", got)
	}
}

func TestIDsInPathsAreChecked(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"a%2Fb", "%2e%2e", "..", "a%00b", strings.Repeat("x", 300), "a%20b", "", "%C3%BC", "a.b"} {
		for _, r := range []struct{ method, path string }{
			{"GET", ""}, {"DELETE", ""}, {"GET", "/output"}, {"POST", ":kill"},
		} {
			w.refused(r.method, "/processes/"+id+r.path, nil, 400, wire.CodeBadRequest)
		}
	}
	w.refused("GET", "/processes/12345678901234567890", nil, 400, wire.CodePIDNotAccepted)
	w.refused("GET", "/processes/unknown", nil, 404, wire.CodeNotFound)
	for _, query := range []string{"limit=-1", "limit=x", "cursor=a%2Fb", "cursor=.."} {
		w.refused("GET", "/processes?"+query, nil, 400, wire.CodeBadRequest)
	}
	s := w.started(wire.StartRequest{Cmd: argv("cat")})
	for _, body := range []string{`{}`, `{"signal":""}`, `{"signal":"SIGNOTHING"}`, `{"signal":"9"}`, `{"signal":9}`, `{"signal":"kill"}`} {
		w.refused("POST", "/processes/"+s.ID+":signal", body, 400, wire.CodeBadRequest)
	}
	for _, body := range []string{`{}`, `{"data":"a","data_b64":"YQ=="}`, `{"data_b64":"?"}`} {
		w.refused("POST", "/processes/"+s.ID+"/stdin", body, 400, wire.CodeBadRequest)
	}
}

func TestUnknownRoutesAndMethodsAreNamed(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"", "/", "/exec/", "/exec/x", "/nothing", "/processes/a/b", "/processes/a:b", "/files", "/files/x", "//exec", "/processes/a/output/x"} {
		w.refused("GET", path, nil, 404, wire.CodeNotFound)
	}
	resp := w.request("DELETE", "/processes", nil)
	defer resp.Body.Close()
	if resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, POST" {
		t.Errorf("%d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
	}
	w.base = strings.TrimSuffix(w.base, "a") + "b"
	w.refused("POST", "/exec", "", 404, wire.CodeNotFound)
}

func TestATokenIsAskedForOnEveryRouteButHealth(t *testing.T) { // R106
	c := serveFiles(t, runner.Config{Token: "right", Version: "v1"})
	routes := []struct{ method, path string }{
		{"POST", "/exec"},
		{"POST", "/processes"},
		{"GET", "/processes"},
		{"GET", "/processes/x"},
		{"DELETE", "/processes/x"},
		{"POST", "/processes/x:kill"},
		{"POST", "/processes/x:signal"},
		{"GET", "/processes/x/output"},
		{"POST", "/processes/x/stdin"},
		{"GET", "/files/read?path=f"},
		{"PUT", "/files/write?path=f"},
		{"GET", "/files/list"},
		{"GET", "/files/stat"},
		{"DELETE", "/files/delete?path=f"},
		{"POST", "/files/mkdir?path=d"},
		{"GET", "/activity"},
	}
	for _, header := range []string{"", "Bearer wrong", "Bearer", "Bearer ", "right", "Basic right", "Bearer rightright", "Bearer  right"} {
		c.header = map[string]string{"Authorization": header}
		for _, r := range routes {
			c.refused(r.method, r.path, "x", 401, wire.CodeUnauthorized)
		}
	}
	c.header = map[string]string{wire.TokenHeader: "right"}
	c.refused("PUT", "/files/write?path=f", "x", 401, wire.CodeUnauthorized)
	c.header = map[string]string{"Authorization": "Bearer right"}
	c.ok("PUT", "/files/write?path=f", "x", nil)
	c.header = nil
	resp, err := c.http.Get(strings.TrimSuffix(c.base, "/v1/sandboxes/a") + "/health")
	must(t, err)
	defer resp.Body.Close()
	var h wire.Health
	if err := json.NewDecoder(resp.Body).Decode(&h); err != nil || h.Protocol != wire.Protocol || h.Version != "v1" || resp.StatusCode != http.StatusOK {
		t.Errorf("health %+v, %v", h, err)
	}
}

func TestAddRefusesWhatItCannotServe(t *testing.T) {
	server := runner.New(runner.Config{})
	home := t.TempDir()
	for _, sb := range []runner.Sandbox{{}, {ID: "a"}, {ID: "a", Home: "relative"}, {ID: "a", Home: home + "/missing"}, {ID: "a", Home: "/dev/null"}} {
		if err := server.Add(sb); err == nil || !strings.HasPrefix(err.Error(), "runner: add") {
			t.Errorf("%+v: %v", sb, err)
		}
	}
	must(t, server.Add(runner.Sandbox{ID: "a", Home: home}))
	if err := server.Add(runner.Sandbox{ID: "a", Home: home}); err == nil {
		t.Error("an id was added twice")
	}
	front := httptest.NewServer(server.Handler())
	defer front.Close()
	c := &client{t: t, http: front.Client(), base: front.URL + "/v1/sandboxes/a"}
	c.refused("POST", "/exec", wire.StartRequest{Cmd: line("true")}, 503, wire.CodeCannotStart)
	server.Close()
	server.Close()
	if err := server.Add(runner.Sandbox{ID: "b", Home: home}); err == nil {
		t.Error("a closed Server took a sandbox")
	}
}
