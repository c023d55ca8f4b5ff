package runner_test

import (
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// serveFiles serves a sandbox that runs no commands, for what needs none.
func serveFiles(t testing.TB, cfg runner.Config) *client {
	t.Helper()
	home := newHome(t)
	server := runner.New(cfg)
	if err := server.Add(runner.Sandbox{ID: "a", Home: home}); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(server.Handler())
	t.Cleanup(front.Close)
	t.Cleanup(server.Close)
	return &client{t: t, http: front.Client(), base: front.URL + "/v1/sandboxes/a", home: home}
}

func (c *client) onDisk(name string) string {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(c.home, name))
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

func (c *client) download(query string) (int, string) {
	c.t.Helper()
	resp := c.request("GET", "/files/read?"+query, nil)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFileThatWasWrittenIsReadBack(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	var w wire.Written
	c.ok("PUT", "/files/write?path=d/e/f.txt&mkdir=1&mode=640", "hello, world", &w)
	if w.Path != "d/e/f.txt" || w.Bytes != 12 {
		t.Errorf("answer %+v", w)
	}
	for query, want := range map[string]string{
		"path=d/e/f.txt":                     "hello, world",
		"path=./d//e/f.txt":                  "hello, world",
		"path=d/e/f.txt&offset=7":            "world",
		"path=d/e/f.txt&offset=7&length=3":   "wor",
		"path=d/e/f.txt&length=0":            "",
		"path=d/e/f.txt&offset=99":           "",
		"path=d/e/f.txt&offset=7&length=999": "world",
	} {
		if status, got := c.download(query); status != 200 || got != want {
			t.Errorf("read %s: %d %q, want %q", query, status, got, want)
		}
	}
	var e wire.FileEntry
	c.ok("GET", "/files/stat?path=d/e/f.txt", nil, &e)
	if e.Name != "f.txt" || e.Path != "d/e/f.txt" || e.Type != "file" || e.Size != 12 || e.Mode != "0640" || e.MtimeMS == 0 {
		t.Errorf("stat %+v", e)
	}
}

func TestWhatIsMadeBelongsToTheOwnerOfTheWorkspace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	c := serveFiles(t, runner.Config{})
	c.ok("PUT", "/files/write?path=d/f&mkdir=1", "x", nil)
	c.ok("PUT", "/files/write?path=g&offset=0", "x", nil)
	c.ok("POST", "/files/mkdir?path=x/y", nil, nil)
	for _, name := range []string{"d", "d/f", "g", "x", "x/y"} {
		info, err := os.Lstat(filepath.Join(c.home, name))
		must(t, err)
		if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != testUID() || int(st.Gid) != testUID() {
			t.Errorf("%s belongs to %d:%d", name, st.Uid, st.Gid)
		}
	}
}

func TestAListTellsWhatIsThereAndDeleteTakesIt(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	c.ok("PUT", "/files/write?path=d/b&mkdir=1", "12", nil)
	c.ok("POST", "/files/mkdir?path=d/a/deep", nil, nil)
	must(t, os.Symlink("b", filepath.Join(c.home, "d/link")))
	must(t, syscall.Mkfifo(filepath.Join(c.home, "d/fifo"), 0o600))
	var list wire.FileList
	c.ok("GET", "/files/list?path=d", nil, &list)
	var got []string
	for _, e := range list.Entries {
		got = append(got, e.Name+" "+e.Path+" "+e.Type)
	}
	if want := "a d/a dir|b d/b file|fifo d/fifo other|link d/link symlink"; strings.Join(got, "|") != want {
		t.Errorf("list is %q, want %q", got, want)
	}
	c.ok("GET", "/files/list?path=", nil, &list)
	if len(list.Entries) != 1 || list.Entries[0].Path != "d" {
		t.Errorf("list of the workspace is %+v", list)
	}
	c.refused("DELETE", "/files/delete?path=d", nil, 409, wire.CodeExists)
	c.ok("DELETE", "/files/delete?path=d/link", nil, nil)
	if c.onDisk("d/b") != "12" {
		t.Error("deleting a symlink deleted what it leads to")
	}
	c.ok("DELETE", "/files/delete?path=d&recursive=1", nil, nil)
	c.refused("DELETE", "/files/delete?path=d&recursive=1", nil, 404, wire.CodeNotFound)
	c.refused("DELETE", "/files/delete?path=.&recursive=1", nil, 400, wire.CodeBadRequest)
}

// A removal that opens every level would take all open files of a server that serves others too.
func TestATreeOfAnyDepthIsDeletedWithFewOpenFiles(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	root, err := os.OpenRoot(c.home)
	must(t, err)
	must(t, root.Mkdir("tree", 0o755))
	for range 2000 { // built from the bottom up: each tree becomes the one entry of the next
		must(t, root.Mkdir("next", 0o755))
		must(t, root.Rename("tree", "next/d"))
		must(t, root.Rename("next", "tree"))
	}
	must(t, root.Close())
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	low := limit
	low.Cur = uint64(openFiles(t)) + 100
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low))
	defer func() { must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)) }()
	c.ok("DELETE", "/files/delete?path=tree&recursive=1", nil, nil)
	if left, err := os.ReadDir(c.home); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// fileRoutes are all routes that take a path.
var fileRoutes = []struct{ method, route string }{
	{"GET", "read"}, {"PUT", "write"}, {"GET", "list"}, {"GET", "stat"}, {"DELETE", "delete"}, {"POST", "mkdir"},
}

func TestPathsThatCouldLeadOutsideAreRefusedEverywhere(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	for _, r := range fileRoutes {
		for _, path := range []string{
			"../x", "a/../../x", "a/..", "..", "/etc/passwd", "//x", "a%00b", strings.Repeat("a", 256), strings.Repeat("a/", 2049),
		} {
			c.refused(r.method, "/files/"+r.route+"?path="+path, nil, 400, wire.CodeUnsafePath)
		}
	}
	for _, r := range fileRoutes {
		if r.route != "list" && r.route != "stat" && r.route != "mkdir" {
			c.refused(r.method, "/files/"+r.route, nil, 400, wire.CodeBadRequest)
		}
	}
}

func TestSymlinksCannotLeave(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("canary"), 0o666))
	must(t, os.Symlink(outside, filepath.Join(c.home, "dir")))
	must(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(c.home, "file")))
	must(t, os.Symlink("../"+filepath.Base(outside), filepath.Join(c.home, "up")))
	must(t, os.Symlink("/proc/self/root", filepath.Join(c.home, "proc")))
	for _, path := range []string{"dir/secret", "file", "up/secret", "proc/etc/passwd"} {
		c.refused("GET", "/files/read?path="+path, nil, 400, wire.CodeUnsafePath)
		c.refused("PUT", "/files/write?path="+path, "x", 400, wire.CodeUnsafePath)
		c.refused("PUT", "/files/write?offset=0&path="+path, "x", 400, wire.CodeUnsafePath)
	}
	for _, path := range []string{"dir", "up", "proc"} {
		c.refused("GET", "/files/list?path="+path, nil, 400, wire.CodeUnsafePath)
		c.refused("POST", "/files/mkdir?path="+path+"/new", nil, 400, wire.CodeUnsafePath)
		c.refused("DELETE", "/files/delete?recursive=1&path="+path+"/secret", nil, 400, wire.CodeUnsafePath)
		c.ok("DELETE", "/files/delete?recursive=1&path="+path, nil, nil) // the link itself
	}
	b, err := os.ReadFile(filepath.Join(outside, "secret"))
	if err != nil || string(b) != "canary" {
		t.Errorf("outside there is now %q, %v", b, err)
	}
}

func TestHardLinksToFilesOfOthersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs files of others")
	}
	c := serveFiles(t, runner.Config{})
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("canary"), 0o600))
	must(t, os.Link(secret, filepath.Join(c.home, "link")))
	c.refused("GET", "/files/read?path=link", nil, 400, wire.CodeUnsafePath)
	c.refused("PUT", "/files/write?path=link&offset=0", "x", 400, wire.CodeUnsafePath)
	c.ok("PUT", "/files/write?path=link", "mine", nil) // replaces the link
	if b, _ := os.ReadFile(secret); string(b) != "canary" {
		t.Errorf("outside there is now %q", b)
	}
}

func TestWhatIsNoRegularFileIsNeitherReadNorWaitedFor(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	must(t, syscall.Mkfifo(filepath.Join(c.home, "fifo"), 0o666))
	c.ok("POST", "/files/mkdir?path=dir", nil, nil)
	for _, path := range []string{"fifo", "dir"} {
		c.refused("GET", "/files/read?path="+path, nil, 400, wire.CodeBadRequest)
		c.refused("PUT", "/files/write?path="+path, "x", 400, wire.CodeBadRequest)
		c.refused("PUT", "/files/write?offset=0&path="+path, "x", 400, wire.CodeBadRequest)
	}
	c.refused("GET", "/files/list?path=fifo", nil, 400, wire.CodeBadRequest)
	c.refused("GET", "/files/list?path=fifo/x", nil, 400, wire.CodeBadRequest)
}

func TestFileRoutesRefuseBadParameters(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	c.ok("PUT", "/files/write?path=f", "x", nil)
	for _, r := range []struct{ method, query string }{
		{"GET", "read?path=f&offset=-1"},
		{"GET", "read?path=f&length=x"},
		{"GET", "read?path=f&offset=99999999999999999999"},
		{"PUT", "write?path=f&mode=4755"},
		{"PUT", "write?path=f&mode=9"},
		{"PUT", "write?path=f&offset=1.5"},
		{"PUT", "write?path=f&mkdir=maybe"},
		{"DELETE", "delete?path=f&recursive=yes%20please"},
	} {
		c.refused(r.method, "/files/"+r.query, nil, 400, wire.CodeBadRequest)
	}
	for _, r := range []struct{ method, query string }{
		{"GET", "read?path=g"}, {"GET", "stat?path=g"}, {"GET", "list?path=g"}, {"DELETE", "delete?path=g"}, {"PUT", "write?path=g/h"},
	} {
		c.refused(r.method, "/files/"+r.query, nil, 404, wire.CodeNotFound)
	}
	if text := c.refused("GET", "/files/read?path=g", nil, 404, wire.CodeNotFound); strings.Contains(text, c.home) || !strings.Contains(text, "g") {
		t.Errorf("the user is told %q", text)
	}
	c.refused("POST", "/files/mkdir?path=f", nil, 409, wire.CodeExists)
	c.refused("POST", "/files/mkdir?path=f/g", nil, 409, wire.CodeExists)
}

func TestAWorkspaceThatWasReplacedIsNotServed(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	aside := c.home + "-aside"
	must(t, os.Rename(c.home, aside))
	t.Cleanup(func() { _ = os.RemoveAll(aside) })
	must(t, os.Symlink("/etc", c.home))
	c.refused("GET", "/files/read?path=passwd", nil, 400, wire.CodeUnsafePath)
	must(t, os.Remove(c.home))
	must(t, os.Mkdir(c.home, 0o755))
	text := c.refused("GET", "/files/list", nil, 400, wire.CodeUnsafePath)
	if !strings.Contains(text, "not the directory it was") {
		t.Errorf("the user is told %q", text)
	}
	must(t, os.Remove(c.home))
	must(t, os.Rename(aside, c.home))
	c.ok("GET", "/files/list", nil, nil)
}

func FuzzNoPathLeavesTheWorkspace(f *testing.F) {
	for _, seed := range []string{"a", "a/../b", "/x", "..", "a//b", "./.", "a\x00", "...", "a/./b", ". ./x", "%2e%2e", "a/..b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, p string) {
		clean, err := runner.CleanPath(p)
		if err != nil {
			return
		}
		if !filepath.IsLocal(clean) || filepath.Clean(clean) != clean || strings.Contains("/"+clean+"/", "/../") || strings.ContainsRune(clean, 0) {
			t.Errorf("%q became %q", p, clean)
		}
	})
}
