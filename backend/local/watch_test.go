//go:build linux

package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// A child is of the sandbox's uid for a moment before it executes its command, and the fork waits for it meanwhile. A command that
// stops every process of its uid, again and again, catches some of them there, and with them whatever the host would do.
func TestACommandThatStopsWhateverStartsBesideItHoldsUpNoOtherSandbox(t *testing.T) {
	t.Parallel()
	b := open(t, shortDir(t))
	hostile, other := create(t, b, "hostile", "i1"), create(t, b, "other", "i1")
	body, err := json.Marshal(wire.StartRequest{Cmd: wire.Command{Line: "while :; do kill -STOP -1; done 2>/dev/null"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := inside(t.Context(), hostile, http.MethodPost, "processes", bytes.NewReader(body)); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 { // some are stopped before they execute, some after: both are the hostile sandbox's own loss
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, _ = inside(ctx, hostile, http.MethodPost, "exec", strings.NewReader(`{"cmd":["/bin/true"],"kill_on_disconnect":true}`))
		cancel()
	}
	if got := must(t, other, "echo served"); got != "served" {
		t.Errorf("the other sandbox printed %q", got)
	}
	out, err := b.Destroy(t.Context(), hostile.Ref)
	ended(t, out, err)
}
