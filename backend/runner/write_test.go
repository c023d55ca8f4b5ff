package runner_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

func TestAWriteKeepsTheModeThatWasThere(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	c.ok("PUT", "/files/write?path=run.sh&mode=0755", "1", nil)
	c.ok("PUT", "/files/write?path=run.sh", "2", nil)
	info, err := os.Stat(filepath.Join(c.home, "run.sh"))
	must(t, err)
	if info.Mode().Perm() != 0o755 || c.onDisk("run.sh") != "2" {
		t.Errorf("mode %v, content %q", info.Mode(), c.onDisk("run.sh"))
	}
}

func TestAWriteAtAnOffsetLeavesTheRest(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	c.ok("PUT", "/files/write?path=f", "0123456789", nil)
	c.ok("PUT", "/files/write?path=f&offset=3", "abc", nil)
	c.ok("PUT", "/files/write?path=g&offset=2", "x", nil)
	if got := c.onDisk("f"); got != "012abc6789" {
		t.Errorf("f is %q", got)
	}
	if got := c.onDisk("g"); got != "\x00\x00x" {
		t.Errorf("g is %q", got)
	}
}

func TestAWriteThatFailsLeavesTheOldFileAndNothingElse(t *testing.T) {
	c := serveFiles(t, runner.Config{MaxFile: 1000})
	c.ok("PUT", "/files/write?path=f", "old", nil)
	big := strings.Repeat("x", 1001)
	c.refused("PUT", "/files/write?path=f", big, 413, wire.CodePayloadTooLarge)
	resp := c.request("PUT", "/files/write?path=f", io.MultiReader(strings.NewReader(big))) // chunked
	resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("chunked: %d", resp.StatusCode)
	}
	c.refused("PUT", "/files/write?path=f&offset=990", "12345678901", 413, wire.CodePayloadTooLarge)
	c.refused("PUT", "/files/write?path=f&offset=1001", "x", 400, wire.CodeBadRequest)
	if got := c.onDisk("f"); got != "old" {
		t.Errorf("f is %q", got)
	}
	entries, err := os.ReadDir(c.home)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	c.ok("PUT", "/files/write?path=f", big[:1000], nil)
	if got := c.onDisk("f"); got != big[:1000] {
		t.Errorf("f has %d bytes", len(got))
	}
}

func TestWhatAKilledRunnerWasWritingIsRemovedBeforeItIsSeen(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	c.ok("POST", "/files/mkdir?path=d", nil, nil)
	const left = ".keepwell-ABCDEFGHIJKLMNOPQRSTUVWX27"
	others := []string{".keepwell-", ".keepwell-ABCDEFGHIJKLMNOPQRSTUVWX2", left + "A", ".keepwell-abcdefghijklmnopqrstuvwx27", "x" + left}
	for _, name := range append(others, left) {
		must(t, os.WriteFile(filepath.Join(c.home, "d", name), []byte("half"), 0o600))
	}
	must(t, os.MkdirAll(filepath.Join(c.home, left), 0o755)) // no file: whoever made it keeps it
	must(t, os.Symlink("d", filepath.Join(c.home, "d", left[:len(left)-1]+"B")))
	others = append(others, left[:len(left)-1]+"B")
	if got := c.names("d"); !slices.Equal(got, slices.Sorted(slices.Values(others))) {
		t.Errorf("the list has %q", got)
	}
	if _, err := os.Lstat(filepath.Join(c.home, "d", left)); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	if got := c.names("."); !slices.Equal(got, []string{left, "d"}) {
		t.Errorf("the list has %q", got)
	}
}

// names lists a directory.
func (c *client) names(dir string) (names []string) {
	c.t.Helper()
	var list wire.FileList
	c.ok("GET", "/files/list?path="+dir, nil, &list)
	for _, e := range list.Entries {
		names = append(names, e.Name)
	}
	return names
}

func TestAListLeavesAFileThatIsBeingWritten(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	body, upload := io.Pipe()
	written := make(chan int)
	go func() {
		resp := c.request("PUT", "/files/write?path=f", body)
		resp.Body.Close()
		written <- resp.StatusCode
	}()
	_, err := io.WriteString(upload, "first ")
	must(t, err)
	c.eventually("the file is begun", func() bool {
		entries, err := os.ReadDir(c.home)
		return err == nil && len(entries) == 1
	})
	if got := c.names("."); len(got) != 0 {
		t.Errorf("the list has %q", got)
	}
	_, err = io.WriteString(upload, "second")
	must(t, err)
	must(t, upload.Close())
	if status := <-written; status != 200 || c.onDisk("f") != "first second" {
		t.Errorf("%d, and the file has %q", status, c.onDisk("f"))
	}
	if got := c.names("."); !slices.Equal(got, []string{"f"}) {
		t.Errorf("the list has %q", got)
	}
}

func TestALargeFileGoesBothWays(t *testing.T) {
	c := serveFiles(t, runner.Config{})
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB: more than a JSON body may have
	resp := c.request("PUT", "/files/write?path=big", io.MultiReader(bytes.NewReader(content)))
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatalf("status %d", resp.StatusCode)
	}
	status, got := c.download("path=big&offset=" + strconv.Itoa(1<<20))
	if status != 200 || got != string(content[1<<20:]) {
		t.Errorf("status %d, %d bytes", status, len(got))
	}
}
