package refserver_test

import (
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver"
)

// doings counts everything that requests could have done to a world.
func (w *world) doings() (n int) {
	for _, call := range []string{"create", "list", "stop", "destroy", "mark"} {
		n += w.engine.Calls(call)
	}
	return n + len(w.runner.requests())
}

func TestATokenOfTheWrongKindOrOfAnotherSandboxOpensNoRoute(t *testing.T) { // R106
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.create("a").str("token"), w.create("b").str("token")
		w.stop("b").want(t, 200, "")
		former := b
		b = w.create("b").str("token")
		for _, k := range []struct{ name, header, value, id string }{
			{"none", "", "", "a"},
			{"wrong", "Authorization", "Bearer wrong", "a"},
			{"wrong_length", "Authorization", "Bearer " + adminToken + "x", "a"},
			{"empty", "Authorization", "Bearer ", "a"},
			{"no_scheme", "Authorization", adminToken, "a"},
			{"other_scheme", "Authorization", "Basic " + adminToken, "a"},
			{"admin_as_sandbox", wire.TokenHeader, adminToken, "a"},
			{"sandbox_as_bearer", "Authorization", "Bearer " + a, "a"},
			{"of_another_sandbox", wire.TokenHeader, b, "a"},
			{"of_a_former_instance", wire.TokenHeader, former, "b"},
			{"forged", wire.TokenHeader, a[:strings.Index(a, "~")] + "~" + b[strings.Index(b, "~")+1:], "a"},
			{"cut_short", wire.TokenHeader, a[:len(a)-1], "a"},
			{"instance_only", wire.TokenHeader, a[:strings.Index(a, "~")+1], "a"},
			{"of_a_sandbox_that_is_not_there", wire.TokenHeader, a, "nowhere"},
			{"the_runners_own", wire.TokenHeader, w.runner.token, "a"},
		} {
			before := w.doings()
			for _, rt := range w.srv.Routes(k.id, "p") {
				if !rt.ForAdmin && !rt.ForSandbox {
					continue
				}
				got := w.as(k.header, k.value, rt.Method, rt.Path, "").want(t, 401, "unauthorized")
				if got.header.Get("WWW-Authenticate") == "" {
					t.Errorf("%s: %s %s: no WWW-Authenticate", k.name, rt.Method, rt.Path)
				}
			}
			if n := w.doings() - before; n != 0 {
				t.Errorf("%s: %d things were done", k.name, n)
			}
		}
	})
}

func TestASandboxsOwnTokenOpensItsInsideAndNothingElse(t *testing.T) { // R106
	inBubble(t, func(t *testing.T, w *world) {
		token := w.create("a").str("token")
		for _, rt := range w.srv.Routes("a", "p") {
			got := w.as(wire.TokenHeader, token, rt.Method, rt.Path, "")
			if admitted := got.status != 401; admitted == rt.ForAdmin {
				t.Errorf("%s %s answered %d", rt.Method, rt.Path, got.status)
			}
		}
		if n := w.engine.Calls("destroy") + w.engine.Calls("stop"); n != 0 {
			t.Errorf("%d teardowns", n)
		}
		w.get("a").want(t, 200, "")
	})
}

func TestAuthorizationWhereSentDecidesAlone(t *testing.T) { // R106
	inBubble(t, func(t *testing.T, w *world) {
		token := w.create("a").str("token")
		both := func(bearer string) int {
			r, err := newRequest(w.url, "GET", "/v1/sandboxes/a/processes")
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+bearer)
			r.Header.Set(wire.TokenHeader, token)
			resp, err := w.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		if right, wrong := both(adminToken), both("wrong"); right != 200 || wrong != 401 {
			t.Errorf("answered %d with the right and %d with a wrong one", right, wrong)
		}
	})
}

func TestASandboxsTokenIsTheSameOnEveryReplicaThatSharesTheKey(t *testing.T) { // R112
	inBubble(t, func(t *testing.T, w *world) {
		token := w.create("a").str("token")
		_, same := w.replica("same")
		_, other := w.replica("other", func(cfg *refserver.Config) { cfg.Key = []byte("another key of the same length..") })
		for url, want := range map[string]int{same: 200, other: 401} {
			got, err := w.send(t.Context(), url, wire.TokenHeader, token, "GET", "/v1/sandboxes/a/processes", "")
			if err != nil || got.status != want {
				t.Errorf("%s answered %d, want %d (%v)", url, got.status, want, err)
			}
		}
	})
}

func TestOnlyTheAnswerToACreateCarriesTheToken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		token := w.create("a").str("token")
		for _, path := range []string{"/v1/sandboxes/a", "/v1/sandboxes", "/v1/sandboxes?fresh=1", "/health"} {
			if got := w.do("GET", path, ""); strings.Contains(got.raw, token) || strings.Contains(got.raw, `"token"`) {
				t.Errorf("%s answered %s", path, got.raw)
			}
		}
	})
}

func TestNoAuthAdmitsEverybody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.as("", "", "POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 201, "")
		w.as("", "", "POST", "/v1/sandboxes/a/exec", `{"cmd":"true"}`).want(t, 200, "")
		w.as("", "", "DELETE", "/v1/sandboxes/a", "").want(t, 200, "")
	}, func(cfg *refserver.Config) { cfg.NoAuth, cfg.Token = true, "" })
}

func TestARequestIsJudgedInAFixedOrder(t *testing.T) {
	big := strings.Repeat("x", wire.MaxBody+1)
	inBubble(t, func(t *testing.T, w *world) {
		admin, none := "Bearer "+adminToken, ""
		for _, c := range []struct {
			method, path, auth, body string
			status                   int
			code                     string
		}{
			{"POST", "/v1/nowhere", none, big, 404, "not_found"},
			{"PATCH", "/v1/sandboxes", none, big, 405, "method_not_allowed"},
			{"POST", "/v1/sandboxes", none, big, 401, "unauthorized"},
			{"POST", "/v1/sandboxes/Bad_ID/exec", none, "{", 401, "unauthorized"},
			{"POST", "/v1/sandboxes/Bad_ID/exec", admin, big, 413, "payload_too_large"},
			{"POST", "/v1/sandboxes", admin, big, 413, "payload_too_large"},
			{"POST", "/v1/sandboxes/Bad_ID/exec", admin, "{", 400, "bad_request"},
			{"POST", "/v1/sandboxes", admin, "{", 400, "bad_request"},
		} {
			w.as("Authorization", c.auth, c.method, c.path, c.body).want(t, c.status, c.code)
		}
		if n := w.doings(); n != 0 {
			t.Errorf("%d things were done", n)
		}
	})
}
