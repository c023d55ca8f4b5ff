package refserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwell-go/keepwell/backend/memory"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

func TestARequestReachesTheRunnerAsItWasSent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		var body string
		var header http.Header
		w.runner.handle(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			body, header = string(b), r.Header
			w.Header().Set(wire.NextCursor, "c2")
			w.Header().Set("X-Secret", "of the runner")
			reply(w, 200, wire.Done{OK: true})
		})
		const sent = `{"cmd":["echo", 1e400],  "unknown":"\u00e9"}`
		got := w.do("POST", "/v1/sandboxes/a/processes/p:signal?x=%2f&y=a+b%3bc", sent).want(t, 200, "")
		if body != sent {
			t.Errorf("the runner got %q", body)
		}
		if got.header.Get(wire.NextCursor) != "c2" || got.header.Get("X-Secret") != "" || got.raw != `{"ok":true}`+"\n" {
			t.Errorf("answered %v %q", got.header, got.raw)
		}
		if want := "POST /v1/sandboxes/a/processes/p:signal?x=%2f&y=a+b%3bc"; w.runner.requests()[0] != want {
			t.Errorf("the runner was asked %q, want %q", w.runner.requests(), want)
		}
		if auth := header.Get("Authorization"); auth != "Bearer runner-token" || strings.Contains(fmt.Sprint(header), adminToken) {
			t.Errorf("the runner got the headers %v", header)
		}
	})
}

func TestAStartedProcessGetsItsIDFromTheServer(t *testing.T) { // R63
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		var ids []string
		w.runner.handle(func(w http.ResponseWriter, r *http.Request) {
			ids = append(ids, r.Header.Get(wire.ProcessIDHeader))
			reply(w, 200, wire.Done{OK: true})
		})
		for _, path := range []string{"exec", "processes", "processes/p:kill"} {
			r, err := newRequest(w.url, "POST", "/v1/sandboxes/a/"+path)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(wire.ProcessIDHeader, "the-clients")
			w.roundTrip(r).want(t, 200, "")
		}
		for _, id := range ids[:2] {
			if !strings.HasPrefix(id, "proc_") || len(id) != len("proc_")+26 {
				t.Errorf("minted %q", id)
			}
		}
		if ids[0] == ids[1] || ids[2] != "" {
			t.Errorf("the runner got the ids %q", ids)
		}
	})
}

func TestAStreamArrivesLineByLine(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.runner.handle(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", wire.StreamType)
			for i := range 5 {
				fmt.Fprintf(w, `{"event":"stdout","data":"%d"}`+"\n", i)
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Hour)
			}
			_, _ = io.WriteString(w, exitLine)
		})
		resp := w.stream("POST", "/v1/sandboxes/a/exec")
		defer resp.Body.Close()
		lines, start := bufio.NewScanner(resp.Body), time.Now()
		for i := range 5 {
			if !lines.Scan() || lines.Text() != fmt.Sprintf(`{"event":"stdout","data":"%d"}`, i) {
				t.Fatalf("line %d is %q", i, lines.Text())
			}
			if at := time.Since(start); at != time.Duration(i)*time.Hour {
				t.Errorf("line %d came after %v", i, at)
			}
		}
		if !lines.Scan() || lines.Text()+"\n" != exitLine || lines.Scan() {
			t.Errorf("ended with %q", lines.Text())
		}
	})
}

func TestWhoFollowsASilentProcessIsAnsweredAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.runner.handle(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", wire.StreamType)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Hour)
			_, _ = io.WriteString(w, exitLine)
		})
		start := time.Now()
		resp := w.stream("GET", "/v1/sandboxes/a/processes/p/output?follow=1")
		defer resp.Body.Close()
		if took := time.Since(start); took != 0 || resp.StatusCode != 200 {
			t.Errorf("answered %d after %v", resp.StatusCode, took)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != exitLine {
			t.Errorf("streamed %q, %v", got, err)
		}
	})
}

const exitLine = `{"event":"exit","exit_code":0,"signal":null}` + "\n"

func TestAFileThatBreaksOffIsNotTakenForWhole(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.runner.handle(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", 100<<10)) // of a length that is not declared
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		resp := w.stream("GET", "/v1/sandboxes/a/files/read?path=f")
		defer resp.Body.Close()
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("read to %v, want an unexpected EOF", err)
		}
	})
}

func TestAClientThatHangsUpHangsUpOnTheRunner(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		left := make(chan struct{})
		w.runner.handle(func(w http.ResponseWriter, r *http.Request) {
			hangUntil(nil)(w, r)
			close(left)
		})
		leave := w.leaver("POST", "/v1/sandboxes/a/exec", `{}`)
		synctest.Wait()
		leave()
		<-left
		synctest.Wait()
		w.do("DELETE", "/v1/sandboxes/a?if_idle=1", "").want(t, 200, "") // its pin has gone
	})
}

func TestARunnerThatRefusesAnUploadEarlyIsHeard(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.runner.handle(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			reply(w, 507, wire.Error{Error: "disk full", Code: wire.CodeNoSpace})
		})
		rt := routeOf(w, "PUT", "/files/write")
		w.sendBody(rt, 64<<20, true).want(t, 507, "no_space")
	})
}

// What is still missing of a short body net/http waits for before it answers, unless the connection is to end.
func TestARunnerThatRefusesAnUploadIsHeardByAClientThatWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.runner.handle(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			reply(w, 507, wire.Error{Error: "disk full", Code: wire.CodeNoSpace})
		})
		conn, err := w.net.dial(t.Context(), "tcp", "replica-a:80")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "PUT /v1/sandboxes/a/files/write?path=f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\nno more", adminToken)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 507 || !resp.Close {
			t.Errorf("answered %d, close %t", resp.StatusCode, resp.Close)
		}
	})
}

func TestTheSandboxIsPinnedBeforeItIsUsedAndATakeIsSeen(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		stops := w.hold("stop")
		stopped := w.later("POST", "/v1/sandboxes/a:stop", "")
		<-stops.came
		late := w.later("POST", "/v1/sandboxes/a/exec", `{}`) // finds a taken: it waits for the decision
		synctest.Wait()
		if n := len(w.runner.requests()); n != 0 {
			t.Errorf("%d requests reached a runner that is being stopped", n)
		}
		stops.release()
		(<-stopped).want(t, 200, "")
		(<-late).want(t, 404, "stopped")
	})
}

func TestAFailedStopLetsTheRequestsThatWaitedThrough(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		g := newGate()
		w.engine.Inject(memory.Fault{Call: "stop", Do: g.pass, Err: errors.New("stuck")})
		stopped := w.later("POST", "/v1/sandboxes/a:stop", "")
		<-g.came
		late := w.later("POST", "/v1/sandboxes/a/exec", `{}`)
		synctest.Wait()
		g.release()
		(<-stopped).want(t, 502, "stop_failed")
		(<-late).want(t, 200, "")
	})
}

// Whoever starts it again without an id may run it twice, also where the backend cannot tell what became of the sandbox.
func TestWhoeverLosesAStartIsToldThatItMayHaveHappened(t *testing.T) { // R99
	const doubt = "whether it has started the process is not known"
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		w.runner.handle(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler) // it has started the process, and the answer is lost
		})
		for _, down := range []bool{false, true} {
			code := wire.CodeRunnerLost
			if down {
				code = wire.CodeUnavailable
				w.engine.Break()
			}
			for _, path := range []string{"exec", "processes"} {
				got := w.do("POST", "/v1/sandboxes/a/"+path, `{"cmd":"true"}`).want(t, 503, code)
				if !strings.HasSuffix(got.str("error"), doubt) {
					t.Errorf("engine down is %t, %s: told %s", down, path, got.raw)
				}
			}
			if got := w.do("POST", "/v1/sandboxes/a/files/mkdir?path=d", "").want(t, 503, code); strings.Contains(got.raw, doubt) {
				t.Errorf("engine down is %t, what starts nothing: told %s", down, got.raw)
			}
		}
	})
}
