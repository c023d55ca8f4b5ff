package runner_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner"
)

// Each system call for a name allocates its spelling, so that this counts them.
func TestAPathOfManyDirectoriesIsMadeInTimeThatGrowsWithItsLength(t *testing.T) {
	home, made := newHome(t), 0
	cost := func(depth int) float64 {
		return testing.AllocsPerRun(1, func() {
			made++
			name := strconv.Itoa(made) + strings.Repeat("/d", depth-1)
			must(t, runner.MkdirAll(home, name))
			must(t, runner.MkdirAll(home, name)) // nor is it made twice
			if info, err := os.Stat(filepath.Join(home, name)); err != nil || !info.IsDir() {
				t.Error(info, err)
			}
		})
	}
	if short, long := cost(50), cost(500); long > 20*short {
		t.Errorf("50 directories take %.0f allocations, and ten times as many %.0f", short, long)
	}
}

func TestDirectoriesAreMadeBehindALinkThatStaysInside(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	c.ok("POST", "/files/mkdir?path=d/e", nil, nil)
	must(t, os.Symlink("../d", filepath.Join(c.home, "d", "up")))
	c.ok("POST", "/files/mkdir?path=d/up/up/e/f/g", nil, nil)
	if info, err := os.Stat(filepath.Join(c.home, "d/e/f/g")); err != nil || !info.IsDir() {
		t.Error(info, err)
	}
}
