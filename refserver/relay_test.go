package refserver_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
	"github.com/keepwell-go/keepwell/refserver"
)

// However much comes at once: no byte of it waits for what comes next.
func TestLinesOfAnySizeArriveBeforeTheStreamGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		var sizes []int
		for _, near := range []int{2 << 10, 4 << 10, 8 << 10, 32 << 10, 36 << 10, 64 << 10, 256 << 10, 260 << 10} {
			for off := -24; off <= 24; off++ {
				sizes = append(sizes, near+off)
			}
		}
		w.runner.handle(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", wire.StreamType)
			for _, size := range sizes {
				_, _ = io.WriteString(w, strings.Repeat("x", size-1)+"\n")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Hour)
			}
			_, _ = io.WriteString(w, exitLine)
		})
		resp := w.stream("POST", "/v1/sandboxes/a/exec")
		defer resp.Body.Close()
		lines, start := bufio.NewReader(resp.Body), time.Now()
		for i, size := range sizes {
			line, err := lines.ReadString('\n')
			if err != nil || len(line) != size {
				t.Fatal(fmt.Errorf("line %d has %d bytes, want %d: %w", i, len(line), size, err))
			}
			if at := time.Since(start); at != time.Duration(i)*time.Hour {
				t.Fatalf("line %d, of %d bytes, came after %v", i, size, at)
			}
		}
		if last, err := io.ReadAll(lines); string(last) != exitLine || err != nil {
			t.Errorf("ended with %q, %v", last, err)
		}
	})
}

func TestTheLastNewlineIsFoundInLinesOfAnyLength(t *testing.T) {
	length := rapid.Custom(func(t *rapid.T) int {
		at := rapid.SampledFrom([]int{0, 1, 4 << 10, 8 << 10, 20 << 10}).Draw(t, "near")
		return max(0, at+rapid.IntRange(-2, 2).Draw(t, "off"))
	})
	rapid.Check(t, func(t *rapid.T) {
		var b []byte
		for _, n := range rapid.SliceOfN(length, 1, 4).Draw(t, "lines") {
			b = append(append(b, bytes.Repeat([]byte{'x'}, n)...), '\n')
		}
		b = b[:len(b)-rapid.IntRange(0, min(len(b), 9<<10)).Draw(t, "cut")]
		if got, want := refserver.LastNewline(b), bytes.LastIndexByte(b, '\n'); got != want {
			t.Fatalf("found at %d of %d, want %d", got, len(b), want)
		}
	})
}

// The last event of a stream is known by its line, whatever came right before it; a line beyond 1 KiB is none.
func TestTheLastEventIsKnownUpToItsLength(t *testing.T) { // R99
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		before := map[string]string{"nothing": "", "a short line": "x\n", "a long line": strings.Repeat("x", 4<<10) + "\n"}
		for name, lead := range before {
			for _, size := range []int{1<<10 - 1, 1 << 10, 1<<10 + 1} {
				line := fmt.Sprintf(`{"event":"exit","exit_code":0,"signal":"%s"}`, strings.Repeat("x", size-len(`{"event":"exit","exit_code":0,"signal":""}`)-1)) + "\n"
				w.runner.handle(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", wire.StreamType)
					_, _ = io.WriteString(w, lead+line)
				})
				resp := w.stream("POST", "/v1/sandboxes/a/exec")
				got, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || !strings.HasPrefix(string(got), lead+line) {
					t.Fatalf("%d bytes after %s: %d came, %v", size, name, len(got), err)
				}
				if lost := len(got) > len(lead+line); lost != (size > 1<<10) {
					t.Errorf("an event of %d bytes after %s: taken for the last one is %v", size, name, !lost)
				}
			}
		}
	})
}

func TestAStreamThatBreaksOffEndsWithTheEventThatSaysSo(t *testing.T) { // R99
	const start, out = `{"event":"start","id":"p"}` + "\n", `{"event":"stdout","data":"x"}` + "\n"
	lost := `{"event":"error","error":"the runner of sandbox a was lost","code":"runner_lost"}` + "\n"
	long := `{"event":"stdout","data":"` + strings.Repeat("x", 300<<10) + `"}` + "\n"
	for _, c := range []struct {
		name, path string
		sends      string
		breaks     bool
		want       string
	}{
		{"whole", "exec", start + out + exitLine, false, start + out + exitLine},
		{"whole_then_reset", "exec", start + out + exitLine, true, start + out + exitLine},
		{"said_so_itself", "exec", start + `{"event":"error","code":"sandbox_gone"}` + "\n", false, start + `{"event":"error","code":"sandbox_gone"}` + "\n"},
		{"between_lines", "exec", start + out, true, start + out + lost},
		{"within_a_line", "exec", start + out + `{"event":"stdo`, true, start + out + lost},
		{"within_the_exit", "exec", start + exitLine[:20], true, start + lost},
		{"ends_politely_without_an_exit", "exec", start + out, false, start + out + lost},
		{"empty", "exec", "", false, lost},
		{"exit_in_the_data", "exec", start + `{"event":"stdout","data":"\n{\"event\":\"exit\"}"}` + "\n", false, start + `{"event":"stdout","data":"\n{\"event\":\"exit\"}"}` + "\n" + lost},
		{"long_lines", "exec", start + long + long + exitLine, false, start + long + long + exitLine},
		{"after_a_long_line", "exec", start + long, true, start + long + lost},
		{"output_of_now", "processes/p/output", out, false, out},
		{"output_of_now_broken", "processes/p/output", out, true, out + lost},
		{"output_followed", "processes/p/output?follow=1", out, false, out + lost},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.create("a")
				w.runner.handle(sendStream(c.sends, c.breaks))
				method := "POST"
				if c.path != "exec" {
					method = "GET"
				}
				if got := w.do(method, "/v1/sandboxes/a/"+c.path, ""); got.status != 200 || got.raw != c.want {
					t.Errorf("the client got %.200q, want %.200q", got.raw, c.want)
				}
			})
		})
	}
}

func sendStream(lines string, breaks bool) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", wire.StreamType)
		w.WriteHeader(200)
		_, _ = io.WriteString(w, lines)
		_ = http.NewResponseController(w).Flush()
		if breaks {
			panic(http.ErrAbortHandler)
		}
	}
}

func TestALineTooLongToHoldBackThatBreaksOffStillEndsBeforeTheLastEvent(t *testing.T) { // R99
	inBubble(t, func(t *testing.T, w *world) {
		w.create("a")
		part := `{"event":"stdout","data":"` + strings.Repeat("x", 300<<10)
		w.runner.handle(sendStream(part, true))
		got := w.do("POST", "/v1/sandboxes/a/exec", "").want(t, 200, "")
		lines := strings.Split(got.raw, "\n")
		if len(lines) != 3 || !strings.HasPrefix(part, lines[0]) || !strings.Contains(lines[1], `"code":"runner_lost"`) || lines[2] != "" {
			t.Errorf("the client got %d lines, the second %q", len(lines), lines[min(1, len(lines)-1)])
		}
	})
}
