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
