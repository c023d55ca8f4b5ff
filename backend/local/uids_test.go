//go:build linux

package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/backend"
	"github.com/keepwell-go/keepwell/backend/local"
)

func TestAUIDIsNeverHandedOutTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const first, size = 100, 8
		pool := local.NewUIDPool(first, size)
		held := map[uint32]bool{}
		for _, kept := range rapid.SliceOfDistinct(rapid.Uint32Range(first-2, first+size+2), rapid.ID).Draw(t, "kept") {
			pool.Keep(kept)
			held[kept] = kept >= first && kept < first+size
		}
		for uid, in := range held {
			if !in {
				delete(held, uid)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				uid, err := pool.Take()
				if full := len(held) == size; full != (err != nil) || full && !errors.Is(err, backend.ErrQuota) {
					t.Fatalf("with %d of %d held: uid %d, error %v", len(held), size, uid, err)
				}
				if err != nil {
					return
				}
				if held[uid] || uid < first || uid >= first+size {
					t.Fatalf("uid %d was handed out, held are %v", uid, held)
				}
				held[uid] = true
			},
			"release": func(t *rapid.T) {
				for uid := range held {
					pool.Release(uid)
					delete(held, uid)
					return
				}
				t.Skip("none is held")
			},
		})
	})
}

func TestAReleasedUIDIsUsedAfterAllOthers(t *testing.T) {
	pool := local.NewUIDPool(100, 5)
	first, _ := pool.Take()
	pool.Release(first)
	for i := range 4 {
		if uid, err := pool.Take(); uid == first || err != nil {
			t.Fatalf("take %d gave %d, error %v; it was released last", i, uid, err)
		}
	}
	if uid, err := pool.Take(); uid != first || err != nil {
		t.Errorf("the last take gave %d, error %v; want %d", uid, err, first)
	}
}

// R104: what runs under one state directory has no uid in common with what runs under another.
func TestTwoStateDirectoriesShareNoUIDs(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	seen := map[string]string{}
	for _, name := range []string{"one", "two", "three"} {
		s := create(t, open(t, filepath.Join(shortDir(t), name)), "same", "i1")
		uid := must(t, s, "id -u")
		if other := seen[uid]; other != "" {
			t.Errorf("%s and %s share the uid %s", name, other, uid)
		}
		seen[uid] = name
	}
}

// A state directory whose uids went to another host meanwhile takes new ones, and its workspaces with it.
func TestAWorkspaceMovesToANewUIDWhereItsOwnIsTaken(t *testing.T) {
	rootOnly(t)
	dir, out := shortDir(t), victim(t)
	b := open(t, dir)
	s := create(t, b, "a", "i1")
	uid := must(t, s, "mkdir d && echo kept >d/file && ln -s "+out+"/file link && id -u")
	if _, err := b.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join("/run/keepwell/uids", blockOf(t, uid)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	s = create(t, b, "a", "i2")
	got := must(t, s, "cat d/file && echo more >>d/file && touch d/new && id -u")
	if got == "kept\n"+uid || !strings.HasPrefix(got, "kept\n") {
		t.Errorf("after the move: %q; want the file, and a uid that is not %s", got, uid)
	}
	fi, err := os.Stat(filepath.Join(out, "file"))
	if err != nil || fi.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the target of a link was given away: %v, %v", fi, err)
	}
}

// The next owner of the uid would find it.
func TestADestroyLeavesNoSharedMemoryToTheNextOwnerOfTheUID(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	b := open(t, shortDir(t))
	s := create(t, b, "a", "i1")
	uid, err := strconv.Atoi(must(t, s, "id -u"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	given := unix.SysvShmDesc{Perm: unix.SysvIpcPerm{Uid: uint32(uid), Gid: uint32(uid), Mode: 0o600}}
	if _, err := unix.SysvShmCtl(id, unix.IPC_SET, &given); err != nil {
		t.Fatal(err)
	}
	ended2(t, b, s.ID, s.Instance)
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &given); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EIDRM) {
		t.Errorf("after the destroy it is there: %v", err)
	}
}

func TestASandboxHasABoundOfOpenFiles(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	s := create(t, open(t, shortDir(t)), "a", "i1")
	if got := must(t, s, "ulimit -Sn; ulimit -Hn"); got != "4096\n4096" {
		t.Errorf("the limits are %q, want 4096", got)
	}
}

// blockOf returns the name of the lock that covers a uid.
func blockOf(t *testing.T, uid string) string {
	t.Helper()
	n, err := strconv.Atoi(uid)
	if err != nil {
		t.Fatal(err)
	}
	const first, size = 1_879_048_192, 65_536
	return itoa(n - (n-first)%size)
}

func rootOnly(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user has no uids to give")
	}
}

// A command line may hold a secret.
func TestASandboxSeesNoProcessesButItsOwn(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	b := open(t, shortDir(t))
	s, other := create(t, b, "a", "i1"), create(t, b, "b", "i1")
	background(t, other, "sleep", "54321")
	background(t, s, "sleep", "12345")
	seen := must(t, s, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
	if strings.Contains(seen, "54321") || !strings.Contains(seen, "12345") || strings.Contains(seen, "--host") {
		t.Errorf("it sees %q; want its own alone", seen)
	}
}
