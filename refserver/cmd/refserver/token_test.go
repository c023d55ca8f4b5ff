package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestATokenFileThatIsNamedWinsOverTheVariableAndThatOverTheStateDirectory(t *testing.T) {
	l := newLab(t)
	s := l.serve()
	file := filepath.Join(l.home, "token-of-somebody")
	if err := os.WriteFile(file, []byte("a-wrong-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	right := s.client().Token
	for _, c := range []struct {
		variable string
		args     []string
		want     int
	}{
		{"", nil, exitDone},
		{"a-wrong-token", nil, exitFailed},
		{right, nil, exitDone},
		{right, []string{"--token-file=" + file}, exitFailed},
		{"a-wrong-token", []string{"--token-file=" + filepath.Join(l.state(), tokenFile)}, exitDone},
		{right, []string{"--token-file=" + file + ".not"}, exitFailed},
	} {
		l.env = []string{tokenVariable + "=" + c.variable}
		if got, code := l.run(append([]string{"ls"}, c.args...)...); code != c.want || strings.Contains(got, "wrong") {
			t.Errorf("with %q and %q: ended with %d, %s", c.variable, c.args, code, got)
		}
	}
}
