package refserver_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver"
	"github.com/keepwell-go/keepwell/refserver/client"
)

func keys(m map[string]any) string { return strings.Join(slices.Sorted(maps.Keys(m)), " ") }

func TestASandboxIsShownWithExactlyTheseFieldsAndNoClockOfItsActivity(t *testing.T) { // R33
	const fields = "backend created_at_ms expires_at_ms id idle_timeout_ms instance pinned profile state tenant"
	inBubble(t, func(t *testing.T, w *world) {
		made := w.create("a")
		if got, want := keys(made.body), "backend created_at_ms expires_at_ms id idle_timeout_ms instance pinned profile resumed state tenant token"; got != want {
			t.Errorf("create shows %q, want %q", got, want)
		}
		w.exec("a").want(t, 200, "")
		time.Sleep(time.Minute)
		got := w.get("a")
		if keys(got.body) != fields {
			t.Errorf("get shows %q, want %q", keys(got.body), fields)
		}
		listed := w.do("GET", "/v1/sandboxes", "").body["sandboxes"].([]any)[0].(map[string]any)
		if keys(listed) != fields {
			t.Errorf("list shows %q, want %q", keys(listed), fields)
		}
		for name, want := range map[string]any{
			"id": "a", "tenant": "default", "profile": "default", "state": "running", "backend": "memory", "pinned": false, "idle_timeout_ms": 1_800_000.0,
		} {
			if got.body[name] != want || listed[name] != want {
				t.Errorf("%s is %v and listed as %v, want %v", name, got.body[name], listed[name], want)
			}
		}
		if got.body["created_at_ms"] != made.body["created_at_ms"] || got.body["created_at_ms"] == 0.0 {
			t.Errorf("created at %v, then at %v", made.body["created_at_ms"], got.body["created_at_ms"])
		}
	})
}

func TestTheClientUnderstandsEveryFieldOfASandbox(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		dec := json.NewDecoder(strings.NewReader(w.create("a").raw))
		dec.DisallowUnknownFields()
		var sb client.Sandbox
		if err := dec.Decode(&sb); err != nil || sb.ID != "a" || sb.Token == "" || sb.ExpiresAtMS == 0 {
			t.Errorf("decoded %+v, %v", sb, err)
		}
	})
}

// codesOf returns the values of the constants of package wire whose names begin with Code.
func codesOf(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../backend/runner/wire/wire.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Code") {
			s, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			codes[s] = true
		}
		return true
	})
	return codes
}

func TestNoConstantOfTheProtocolIsWrittenDownHere(t *testing.T) { // R56
	owned := codesOf(t)
	for _, s := range []string{wire.TokenHeader, wire.ProcessIDHeader, wire.NextCursor, wire.StreamType, wire.EventExit, wire.EventError} {
		owned[s] = true
	}
	if len(owned) < 20 {
		t.Fatalf("only %d constants found", len(owned))
	}
	delete(owned, "error")    // also a field
	delete(owned, "creating") // also the name of a state
	delete(owned, "stopped")
	names, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range names {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if s, err := strconv.Unquote(litValue(lit, ok)); err == nil && owned[s] {
				t.Errorf("%s has its own copy of %q", f.Name(), s)
			}
			return true
		})
	}
}

func litValue(lit *ast.BasicLit, ok bool) string {
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	return lit.Value
}

func TestWhatBodylimitAnswersHasTheCodesOfTheProtocol(t *testing.T) { // R56
	owned := codesOf(t)
	inBubble(t, func(t *testing.T, w *world) {
		rt := refserver.Route{Method: "POST", Path: "/v1/sandboxes"}
		for _, got := range []answer{w.declare(rt, wire.MaxBody+1), w.do("POST", rt.Path, "{")} {
			if !owned[got.code()] {
				t.Errorf("code %q is not one of package wire", got.code())
			}
		}
	})
}

func TestHealthTellsMoreToThoseWhoMayKnow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		if got := w.as("", "", "GET", "/health", "").want(t, 200, ""); got.raw != `{"status":"ok","version":"v9"}`+"\n" {
			t.Errorf("the open answer is %s", got.raw)
		}
		if got := w.as("Authorization", "Bearer wrong", "GET", "/health", "").want(t, 200, ""); keys(got.body) != "status version" {
			t.Errorf("with a wrong token it is %s", got.raw)
		}
		got := w.do("GET", "/health", "").want(t, 200, "")
		if keys(got.body) != "backend confinement probe status store version" || got.str("backend") != "memory" {
			t.Errorf("with the token it is %s", got.raw)
		}
		if p := got.body["probe"].(map[string]any); p["state"] != "up" || p["ok"] != true || p["at_ms"] == 0.0 {
			t.Errorf("the probe is %v", p)
		}
		if p := got.body["store"].(map[string]any); p["state"] != "up" || p["ok"] != true {
			t.Errorf("the store is %v", p)
		}
		if n := w.engine.Calls("ping"); n != 1 {
			t.Errorf("%d pings for three questions", n)
		}
	}, func(cfg *refserver.Config) { cfg.Confinement = []string{"processes are not limited"} })
}

func TestHealthIsDownOnlyWhenTheBackendHasFailedRepeatedly(t *testing.T) { // R93
	inBubble(t, func(t *testing.T, w *world) {
		w.do("GET", "/health", "").want(t, 200, "")
		lift := w.engine.Inject(memory.Fault{Call: "ping", Err: errors.New("the engine is asleep")})
		for range 2 {
			time.Sleep(11 * time.Second)
			got := w.do("GET", "/health", "").want(t, 200, "")
			if p := got.body["probe"].(map[string]any); p["state"] != "up" || p["ok"] != false || !strings.Contains(p["error"].(string), "asleep") {
				t.Errorf("the probe is %v", p)
			}
		}
		time.Sleep(11 * time.Second)
		if got := w.as("", "", "GET", "/health", ""); got.status != 503 || got.str("status") != "backend_down" {
			t.Errorf("answered %d %s", got.status, got.raw)
		}
		lift()
		time.Sleep(11 * time.Second)
		w.do("GET", "/health", "").want(t, 200, "")
	})
}
