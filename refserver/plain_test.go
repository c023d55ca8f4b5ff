package refserver_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/memory"
)

func TestWhatAnEngineSaysReachesAClientInOneShortLine(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"image_that_there_is_not": {fmt.Errorf("image %q: %w: manifest unknown:\n\x1b[2J\x1b]0;title\a\u202e\xff%s", "x", backend.ErrInvalid, strings.Repeat("<p>\té", 1<<20)), 400, "bad_request"},
		"image_that_may_come":     {&backend.ImageError{Image: "x", Reason: "\x1b[31mlate\r\n" + strings.Repeat("é", 1<<20)}, 503, "backend_unavailable"},
		"engine_without_room":     {fmt.Errorf("%w:\x00\x7f\u0085 %s", backend.ErrQuota, strings.Repeat("x", 1<<20)), 429, "quota_exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.engine.Inject(memory.Fault{Call: "create", Err: c.err})
				got := w.do("POST", "/v1/sandboxes", `{"id":"a","image":"x"}`).want(t, c.status, c.code)
				text := got.str("error")
				if n := len(text); n > 2<<10 || n < 1<<10 || !strings.HasSuffix(text, "…") {
					t.Errorf("it says %d bytes, which end with %q", n, text[max(0, n-20):])
				}
				if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(text) {
					t.Errorf("it says what cannot be printed: %.100q", text)
				}
			})
		})
	}
}

func TestAnErrorThatIsShortAndPlainIsToldAsItIs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.engine.Inject(memory.Fault{Call: "create", Err: fmt.Errorf("%w: é, 日本 and \"quotes\"", backend.ErrInvalid)})
		got := w.do("POST", "/v1/sandboxes", `{"id":"a"}`).want(t, 400, "bad_request")
		got.says(t, "é, 日本 and \"quotes\"")
	})
}
