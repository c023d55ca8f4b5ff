package main

import (
	"os/exec"
	"strings"
	"testing"
)

func TestACommandOfSeveralLinesIsOneLineOfPs(t *testing.T) {
	l := newLab(t)
	l.serve()
	l.ok("create", "box")
	l.ok("exec", "box", "true 'é \\ \"\n'\ttrue \x1b[31m")
	got := l.ok("ps", "box")
	if strings.Count(got, "\n") != 2 || !strings.Contains(got, `true 'é \ "\n'\ttrue \x1b[31m`+"\n") {
		t.Errorf("ps prints %q", got)
	}
}

func TestAnIDThatCouldNotBePrintedIsAnError(t *testing.T) {
	l := newLab(t)
	l.serve()
	for _, args := range []string{"create box", "exec -d box true"} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `"$0" `+args+" >/dev/full")
		self := l.command(t.Context())
		cmd.Args = append(cmd.Args, self.Path)
		cmd.Dir, cmd.Env = self.Dir, self.Env
		if err := cmd.Run(); err == nil {
			t.Errorf("%s is done, though nobody knows of what", args)
		}
	}
}
