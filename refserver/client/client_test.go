package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver/client"
)

// answering returns a client of a server that gives every request the same answer, and the count of requests.
func answering(t *testing.T, status int, header http.Header, body string) (*client.Client, *atomic.Int64) {
	t.Helper()
	var requests atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	return &client.Client{Base: srv.URL, Token: "secret", HTTP: srv.Client()}, &requests
}

// R62
func TestAProcessWithoutAnIDIsRefusedBeforeAnythingIsSent(t *testing.T) {
	api, requests := answering(t, 200, nil, `{"id":"x","killed":true,"signaled":true}`)
	p := client.Process{Client: api, Sandbox: "box"}
	calls := map[string]func() error{
		"kill":       func() error { _, err := p.Kill(t.Context(), 0); return err },
		"kill_grace": func() error { _, err := p.Kill(t.Context(), time.Second); return err },
		"signal":     func() error { _, err := p.Signal(t.Context(), "SIGTERM"); return err },
		"get":        func() error { _, err := p.Get(t.Context()); return err },
		"stdin":      func() error { return p.Stdin(t.Context(), []byte("x"), true) },
		"output":     func() error { _, err := p.Output(t.Context(), 0, 0, true); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, client.ErrNoID) || !strings.Contains(err.Error(), "process") {
			t.Errorf("%s: error is %v, want ErrNoID of a process", name, err)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests were sent, want 0", n)
	}
}

// R62
func TestASandboxWithoutAnIDIsRefusedBeforeAnythingIsSent(t *testing.T) {
	api, requests := answering(t, 200, nil, `{}`)
	ctx := t.Context()
	calls := map[string]func() error{
		"get":     func() error { _, err := api.Get(ctx, ""); return err },
		"delete":  func() error { _, err := api.Delete(ctx, "", false); return err },
		"stop":    func() error { _, err := api.Stop(ctx, ""); return err },
		"exec":    func() error { _, err := api.Exec(ctx, "", wire.StartRequest{}); return err },
		"start":   func() error { _, _, err := api.Start(ctx, "", wire.StartRequest{}); return err },
		"ps":      func() error { _, err := api.Processes(ctx, ""); return err },
		"read":    func() error { _, err := api.ReadFile(ctx, "", "a"); return err },
		"write":   func() error { return api.WriteFile(ctx, "", "a", strings.NewReader("")) },
		"list":    func() error { _, err := api.ListFiles(ctx, "", "."); return err },
		"remove":  func() error { return api.RemoveFile(ctx, "", "a", false) },
		"kill":    func() error { _, err := client.Process{Client: api, ID: "p"}.Kill(ctx, 0); return err },
		"follows": func() error { _, err := client.Process{Client: api, ID: "p"}.Output(ctx, 0, 0, true); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, client.ErrNoID) {
			t.Errorf("%s: error is %v, want ErrNoID", name, err)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests were sent, want 0", n)
	}
}

func TestARefusalCarriesStatusCodeWordsAndRetryAfter(t *testing.T) {
	api, _ := answering(t, 429, http.Header{"Retry-After": {"7"}}, `{"error":"limit host: 2 of 2 used","code":"quota_exceeded"}`)
	_, err := api.Create(t.Context(), client.CreateRequest{})
	var e *client.Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %v, want a *client.Error", err)
	}
	want := client.Error{Status: 429, Code: wire.CodeQuotaExceeded, Message: "limit host: 2 of 2 used", RetryAfter: 7 * time.Second}
	if *e != want {
		t.Errorf("got %+v, want %+v", *e, want)
	}
	if client.Code(err) != wire.CodeQuotaExceeded {
		t.Errorf("Code is %q", client.Code(err))
	}
	if text := err.Error(); text != "client: 429 quota_exceeded: limit host: 2 of 2 used" {
		t.Errorf("text is %q", text)
	}
}

func TestAnAnswerThatIsNotTheServersOwnIsStillAnError(t *testing.T) {
	api, _ := answering(t, 502, nil, "<html>bad gateway</html>")
	_, err := api.Get(t.Context(), "box")
	var e *client.Error
	if !errors.As(err, &e) || e.Status != 502 || e.Code != "" || e.Message != "Bad Gateway" {
		t.Errorf("got %v", err)
	}
}

func TestKillSaysWhetherThisCallStoppedTheProcess(t *testing.T) {
	for _, killed := range []bool{true, false} {
		body := `{"id":"p","killed":false}`
		if killed {
			body = `{"id":"p","killed":true}`
		}
		api, _ := answering(t, 200, nil, body)
		got, err := client.Process{Client: api, Sandbox: "box", ID: "p"}.Kill(t.Context(), 0)
		if err != nil || got != killed {
			t.Errorf("got %v, %v, want %v", got, err, killed)
		}
	}
	api, _ := answering(t, 503, nil, `{"error":"could not tell","code":"unknown"}`)
	got, err := client.Process{Client: api, Sandbox: "box", ID: "p"}.Kill(t.Context(), 0)
	if got || client.Code(err) != wire.CodeUnknown {
		t.Errorf("got %v, %v, want false and code unknown", got, err)
	}
}

func TestAStreamEndsWithItsExitAndSkipsPings(t *testing.T) {
	api, _ := answering(t, 200, nil, `{"event":"start","id":"p","pid":7}
{"event":"ping"}
{"event":"stdout","data":"hé","data_b64":null,"offset":0}
{"event":"stderr","data":"\ufffd","data_b64":"/w==","offset":0}
{"event":"exit","exit_code":3,"signal":null}
`)
	s, err := api.Exec(t.Context(), "box", wire.StartRequest{Cmd: wire.Command{Line: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var bytes []byte
	for ev, err := range s.All() {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, ev.Event)
		bytes = append(bytes, client.Bytes(ev)...)
		if ev.Event == wire.EventExit && *ev.ExitCode != 3 {
			t.Errorf("exit code is %d, want 3", *ev.ExitCode)
		}
	}
	if got := strings.Join(names, " "); got != "start stdout stderr exit" {
		t.Errorf("events are %s", got)
	}
	if string(bytes) != "hé\xff" {
		t.Errorf("bytes are %q", bytes)
	}
}

// R99
func TestAStreamWithoutATerminalEventIsNoSuccess(t *testing.T) {
	api, _ := answering(t, 200, nil, `{"event":"start","id":"p","pid":7}`+"\n")
	s, err := api.Exec(t.Context(), "box", wire.StartRequest{Cmd: wire.Command{Line: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	var last error
	for _, err := range s.All() {
		last = err
	}
	if !errors.Is(last, client.ErrTruncated) {
		t.Errorf("last error is %v, want ErrTruncated", last)
	}
}

// R99
func TestAConnectionThatBreaksOffIsToldFromAStreamThatEnds(t *testing.T) {
	const line = `{"event":"start","id":"p","pid":7,"later":"field"}`
	for name, header := range map[string]http.Header{"cut_short": {"Content-Length": {"1000"}}, "half_an_event": nil} {
		body := line + "\n"
		if header == nil {
			body += `{"event":"std`
		}
		api, _ := answering(t, 200, header, body)
		s, err := api.Exec(t.Context(), "box", wire.StartRequest{Cmd: wire.Command{Line: "x"}})
		if err != nil {
			t.Fatal(name, err)
		}
		if ev, err := s.Next(); err != nil || ev.ID != "p" || string(s.Line()) != line {
			t.Errorf("%s: got %+v, %v of the line %s", name, ev, err, s.Line())
		}
		if _, err := s.Next(); !errors.Is(err, client.ErrBroken) || errors.Is(err, client.ErrTruncated) {
			t.Errorf("%s: error is %v, want ErrBroken", name, err)
		}
	}
}

func TestIDsAreEscapedSoThatTheyReachNoOtherRoute(t *testing.T) {
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.EscapedPath()
		_, _ = io.WriteString(w, `{}`)
	}))
	t.Cleanup(srv.Close)
	api := &client.Client{Base: srv.URL + "/"}
	if _, err := api.Delete(t.Context(), "a/../b?x=1", false); err != nil {
		t.Fatal(err)
	}
	if want := "/v1/sandboxes/a%2F..%2Fb%3Fx=1"; got != want {
		t.Errorf("path is %s, want %s", got, want)
	}
}

func TestTheTokenTravelsInTheHeaderAlone(t *testing.T) {
	var header, target string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header, target = r.Header.Get("Authorization"), r.URL.String()
		_, _ = io.WriteString(w, `{"sandboxes":[{"id":"a"}]}`)
	}))
	t.Cleanup(srv.Close)
	api := &client.Client{Base: srv.URL, Token: "s3cret"}
	got, err := api.List(t.Context(), url.Values{"fresh": {"1"}})
	if err != nil || len(got) != 1 || got[0].ID != "a" {
		t.Fatalf("got %v, %v", got, err)
	}
	if header != "Bearer s3cret" || target != "/v1/sandboxes?fresh=1" {
		t.Errorf("header is %q, target %q", header, target)
	}
}
