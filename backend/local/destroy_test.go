//go:build linux

package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/keepwell-go/keepwell/backend/local"
	"github.com/keepwell-go/keepwell/backend/runner/rmtree"
)

// victim makes files beside a tree, which no removal of the tree may touch.
func victim(t *testing.T) (dir string) {
	t.Helper()
	dir = shortDir(t)
	for _, name := range []string{"dir/file", "file"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("precious"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, name := range []string{"dir/file", "file"} {
			if raw, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(raw) != "precious" {
				t.Errorf("a file outside of the tree: %q, error %v", raw, err)
			}
		}
	})
	return dir
}

func TestADestroyFollowsNoLinksOutOfTheHome(t *testing.T) {
	t.Parallel()
	dir, out := shortDir(t), victim(t)
	b := open(t, dir)
	s := create(t, b, "a", "i1")
	must(t, s, "ln -s "+out+" link; ln -s "+out+"/file filelink; ln -s .. up; ln -s / root; ln -s loop loop; mkdir d; ln -s ../d d/self; ln -s /proc/self/cwd cwd")
	ended2(t, b, s.ID, s.Instance)
	if left, err := ids(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, error %v", left, err)
	}
}

func TestADestroyRemovesWhatIsHardToRemove(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	b := open(t, dir)
	s := create(t, b, "a", "i1")
	must(t, s, `mkdir closed && touch closed/f && chmod 000 closed/f closed
touch "$(printf 'new\nline')" "$(printf '\377\376')" ' ' './-rf' '*'
mkfifo pipe; touch many; chmod 000 many
mkdir wide && cd wide && i=0; while [ $i -lt 3000 ]; do : >$i; i=$((i+1)); done; cd ..
chmod 000 tmp .`)
	ended2(t, b, s.ID, s.Instance)
	if left, err := ids(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, error %v", left, err)
	}
}

func ended2(t *testing.T, b *local.Backend, id, instance string) {
	t.Helper()
	out, err := b.Destroy(t.Context(), spec(id, instance).Ref)
	ended(t, out, err)
}

func TestTreesOfAnyDepthAreRemovedWithFewOpenFiles(t *testing.T) {
	dir, out := shortDir(t), victim(t)
	makeDeep(t, filepath.Join(dir, "tree"), out, 3000)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = uint64(openFiles(t)) + 100
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	err := rmtree.Remove(dir, "tree")
	if serr := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); serr != nil {
		t.Fatal(serr)
	}
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, error %v", left, err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// makeDeep makes a tree that no path can name, with a link out of it at every level.
func makeDeep(t *testing.T, path, out string, depth int) {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for i := range depth {
		if err == nil {
			err = unix.Symlinkat(out, fd, "link")
		}
		if err == nil {
			err = unix.Mkdirat(fd, "d", 0o700)
		}
		if err != nil {
			t.Fatalf("level %d: %v", i, err)
		}
		next, oerr := unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		fd, err = next, oerr
	}
	unix.Close(fd)
}

func TestTreesLoseAllThatCanBeRemovedAndTheErrorNamesTheRest(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file that cannot be removed")
	}
	dir := shortDir(t)
	for i := range 50 {
		sub := filepath.Join(dir, "tree", fmt.Sprint(i))
		if err := os.MkdirAll(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stuck := filepath.Join(dir, "tree", "25", "file")
	if err := immutable(stuck, true); err != nil {
		t.Fatal(err)
	}
	err := rmtree.Remove(dir, "tree")
	if merr := immutable(stuck, false); merr != nil {
		t.Fatal(merr)
	}
	if err == nil || err.Error() != "remove "+stuck+": operation not permitted" {
		t.Errorf("error %v, want one that names %s", err, stuck)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "tree")); err != nil || len(left) != 1 {
		t.Errorf("%d entries are left, error %v; want the one with the stuck file", len(left), err)
	}
	if err := rmtree.Remove(dir, "tree"); err != nil {
		t.Errorf("the retry: %v", err)
	}
	if err := rmtree.Remove(dir, "tree"); err != nil {
		t.Errorf("of what is gone: %v", err)
	}
}

// A link in place of the tree is removed, not followed.
func TestTreesThatAreLinksAreUnlinked(t *testing.T) {
	t.Parallel()
	dir, out := shortDir(t), victim(t)
	if err := os.Symlink(out, filepath.Join(dir, "tree")); err != nil {
		t.Fatal(err)
	}
	if err := rmtree.Remove(dir, "tree"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "tree")); !os.IsNotExist(err) {
		t.Errorf("the link: %v", err)
	}
}
