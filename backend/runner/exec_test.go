package runner_test

import (
	"testing"
)

func TestExecStreamsOutputThenExactlyOneExit(t *testing.T) {
	c := startDaemon(t).add("a")
	res := c.sh("echo out; echo err >&2; id -u; pwd; env; exit 7")
	t.Logf("%s\n%s\n%+v", res.stdout, res.stderr, res.last)
	if got := res.code(t); got != 7 || string(res.stderr) != "err\n" {
		t.Errorf("exit code %d, stderr %q", got, res.stderr)
	}
}
