//go:build linux

package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/backend"
)

// BenchmarkCreateAndDestroy reports how much longer a create, and a destroy, takes than the same work on directories done by
// hand behind one HTTP round trip. Both are measured in turns, since what a disk takes varies more than they differ.
func BenchmarkCreateAndDestroy(b *testing.B) {
	dir := shortDir(b)
	be := open(b, dir)
	bare := newBare(b)
	var create, destroy, bareCreate, bareDestroy time.Duration
	for b.Loop() {
		create += timed(b, func() error { _, err := be.Create(b.Context(), spec("a", "i1")); return err })
		destroy += timed(b, func() error { _, err := be.Destroy(b.Context(), spec("a", "i1").Ref); return err })
		bareCreate += timed(b, func() error { return bare.ask("/create") })
		bareDestroy += timed(b, func() error { return bare.ask("/destroy") })
	}
	b.ReportMetric(float64(create.Microseconds())/float64(b.N), "create-µs")
	b.ReportMetric(float64(destroy.Microseconds())/float64(b.N), "destroy-µs")
	b.ReportMetric(float64(create)/float64(bareCreate), "create/bare")
	b.ReportMetric(float64(destroy)/float64(bareDestroy), "destroy/bare")
}

func timed(b *testing.B, f func() error) time.Duration {
	start := time.Now()
	if err := f(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// bare does to directories what a sandbox needs, and nothing else.
type bare struct {
	dir    string
	client *http.Client
}

func newBare(b *testing.B) *bare {
	x := &bare{dir: shortDir(b)}
	mux := http.NewServeMux()
	serve := func(f func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := f(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	}
	mux.HandleFunc("/create", serve(x.create))
	mux.HandleFunc("/destroy", serve(x.destroy))
	ln, err := net.Listen("unix", filepath.Join(x.dir, "s"))
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: mux}
	go func() { _ = srv.Serve(ln) }() // ends with Close
	b.Cleanup(func() { srv.Close() })
	x.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(x.dir, "s"))
	}}}
	return x
}

func (x *bare) ask(path string) error {
	resp, err := x.client.Post("http://bare"+path, "application/json", nil)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

func (x *bare) create() error {
	box := filepath.Join(x.dir, "a")
	label, err := json.Marshal(spec("a", "i1"))
	return errors.Join(err,
		os.Mkdir(box, 0o710), os.Mkdir(filepath.Join(box, "home"), 0o700), os.Mkdir(filepath.Join(box, "home", "tmp"), 0o700),
		os.Chown(box, -1, -1), os.Chown(filepath.Join(box, "home"), -1, -1), os.Chown(filepath.Join(box, "home", "tmp"), -1, -1),
		syncedFile(filepath.Join(box, "meta.json.new"), label),
		os.Rename(filepath.Join(box, "meta.json.new"), filepath.Join(box, "meta.json")),
		synced(box), synced(x.dir))
}

func (x *bare) destroy() error {
	box := filepath.Join(x.dir, "a")
	return errors.Join(
		os.Rename(filepath.Join(box, "meta.json"), filepath.Join(box, "gone")), synced(box),
		os.RemoveAll(box), synced(x.dir))
}

func syncedFile(path string, data []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func synced(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// BenchmarkIdleSandbox reports what one more idle sandbox costs the host in memory and open files.
func BenchmarkIdleSandbox(b *testing.B) {
	dir := shortDir(b)
	be := open(b, dir)
	before := hostUse(b, dir)
	n := 0
	for b.Loop() {
		n++
		if _, err := be.Create(b.Context(), spec("n-"+itoa(n), "i1")); err != nil {
			b.Fatal(err)
		}
	}
	after := hostUse(b, dir)
	b.ReportMetric(float64(after.rss-before.rss)/float64(n), "B-host/sandbox")
	b.ReportMetric(float64(after.files-before.files)/float64(n), "files/sandbox")
}

type use struct{ rss, files int }

// hostUse returns the memory and the open files of a host.
func hostUse(t testing.TB, dir string) (u use) {
	t.Helper()
	pid, err := hostOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	u.rss, err = strconv.Atoi(strings.Fields(string(rest))[0])
	u.rss <<= 10
	if err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir(filepath.Join("/proc", itoa(pid), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	u.files = len(fds)
	return u
}

func TestAThousandSandboxesLiveSideBySide(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const n = 1000
	dir := shortDir(t)
	b := open(t, dir)
	before := hostUse(t, dir)
	inParallel(t, n, func(i int) error {
		_, err := b.Create(t.Context(), spec("n-"+itoa(i), "i1"))
		return err
	})
	snap, err := b.List(t.Context())
	if err != nil || len(snap.Sandboxes) != n {
		t.Fatalf("%d sandboxes are listed, error %v; want %d", len(snap.Sandboxes), err, n)
	}
	after := hostUse(t, dir)
	if each := (after.rss - before.rss) / n; each > 32<<10 && !raceDetector {
		t.Errorf("an idle sandbox takes %d bytes of the host, at most %d are allowed", each, 32<<10)
	}
	must(t, snap.Sandboxes[n/2], "echo works >file")
	inParallel(t, n, func(i int) error {
		out, err := b.Destroy(t.Context(), spec("n-"+itoa(i), "i1").Ref)
		if err == nil && out != backend.Stopped {
			err = errors.New(out.String())
		}
		return err
	})
	if left, err := ids(dir); err != nil || len(left) != 0 {
		t.Errorf("%d directories are left, error %v", len(left), err)
	}
}

// inParallel calls f for 0 to n-1, some at once.
func inParallel(t *testing.T, n int, f func(int) error) {
	t.Helper()
	errs := make(chan error, n)
	slots := make(chan struct{}, 32)
	for i := range n {
		slots <- struct{}{}
		go func() { // all are waited for below
			defer func() { <-slots }()
			errs <- f(i)
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}
