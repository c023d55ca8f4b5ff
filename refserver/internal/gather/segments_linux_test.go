package gather_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/keepwell-go/keepwell/refserver/internal/gather"
)

// What a client is woken for: each block of a stream is one segment on the loopback, where net/http alone makes two of it.
func TestABlockIsOneSegment(t *testing.T) {
	const blocks, size = 20, 40 << 10
	gathered := segments(t, blocks, size, func(ctx context.Context, w http.ResponseWriter) io.Writer { return gather.NewWriter(ctx, w) })
	plain := segments(t, blocks, size, func(_ context.Context, w http.ResponseWriter) io.Writer { return w })
	if plain < 2*blocks {
		t.Skipf("%d blocks of %d bytes take %d segments without gathering, so this network shows nothing", blocks, size, plain)
	}
	const head = 2 // the head of the answer, and its end
	if gathered > blocks+head {
		t.Errorf("%d blocks took %d segments, want %d at most; without gathering %d", blocks, gathered, blocks+head, plain)
	}
}

// segments returns how many segments with data the server sent for blocks, each of which the client has read before the next is written.
func segments(t *testing.T, blocks, size int, writer func(context.Context, http.ResponseWriter) io.Writer) int {
	t.Helper()
	read := make(chan struct{})
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		to := writer(r.Context(), w)
		for i := range blocks {
			if _, err := to.Write(block(i, size)); err != nil {
				t.Error(err)
			}
			select {
			case <-read:
			case <-r.Context().Done():
				return
			}
		}
	})
	c := get(t, addr, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	for range blocks {
		if _, err := io.CopyN(io.Discard, c, int64(size)); err != nil {
			t.Fatal(err)
		}
		read <- struct{}{}
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Fatal(err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	var infoErr error
	if err := raw.Control(func(fd uintptr) { info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); err != nil || infoErr != nil {
		t.Fatal(err, infoErr)
	}
	return int(info.Data_segs_in)
}
