package refserver_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
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
