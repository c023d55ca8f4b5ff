package gather_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/refserver/internal/gather"
)

// patience is how long a byte may take that is on its way; one that is held back for good fails a test after it.
const patience = 20 * time.Second

// serve answers with h on a loopback address, and returns that.
func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	return serveOn(t, gather.Listener, h)
}

func serveOn(t testing.TB, wrap func(net.Listener) net.Listener, h http.HandlerFunc) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, ConnContext: gather.Context}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(wrap(ln)) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// get sends a request on a connection of its own, which it returns to read the raw answer from.
func get(t testing.TB, addr, request string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// Whatever the sizes: a block that was written is with the client before the handler writes the next one.
func TestNoByteWaitsForTheNextWrite(t *testing.T) {
	sizes := make(chan []int, 1)
	read := make(chan struct{})
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		to := gather.NewWriter(r.Context(), w)
		for i, size := range <-sizes {
			if n, err := to.Write(block(i, size)); n != size || err != nil {
				t.Errorf("wrote %d of %d bytes, %v", n, size, err)
			}
			select {
			case <-read:
			case <-r.Context().Done():
				return
			}
		}
	})
	near := rapid.Custom(func(t *rapid.T) int {
		at := rapid.SampledFrom([]int{32, 2 << 10, 4 << 10, 8 << 10, 12 << 10, 64 << 10, 300 << 10}).Draw(t, "near")
		return at + rapid.IntRange(-30, 30).Draw(t, "off")
	})
	client := &http.Client{Timeout: patience} // one connection for all, so that nothing of one answer is left for the next
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(near, 1, 8).Draw(t, "sizes")
		sizes <- want
		resp, err := client.Get("http://" + addr)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for i, size := range want {
			got := make([]byte, size)
			if n, err := io.ReadFull(resp.Body, got); err != nil {
				t.Fatalf("%d of %d bytes of block %d came, %v", n, size, i, err)
			}
			if !bytes.Equal(got, block(i, size)) {
				t.Fatalf("block %d of %d bytes is not what was written", i, size)
			}
			read <- struct{}{}
		}
		if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
			t.Fatalf("%d bytes follow, %v", len(rest), err)
		}
	})
}

// block is what a test writes as its i-th: no two of its stretches are alike.
func block(i, size int) []byte {
	b := make([]byte, size)
	for at := range b {
		b[at] = byte(at>>8) ^ byte(at*7) + byte(i)
	}
	return b
}

// urllib3, for one, hands out no chunk of an answer before it has read the end of it.
func TestTheEndOfAChunkDoesNotWaitForTheNextWrite(t *testing.T) {
	for name, wrap := range map[string]func(net.Listener) net.Listener{
		"gathered": gather.Listener,
		"plain":    func(l net.Listener) net.Listener { return l },
	} {
		for _, size := range []int{1, 4 << 10, 32 << 10, 300 << 10} {
			read := make(chan struct{})
			addr := serveOn(t, wrap, func(w http.ResponseWriter, r *http.Request) {
				if _, err := gather.NewWriter(r.Context(), w).Write(block(0, size)); err != nil {
					t.Error(err)
				}
				select {
				case <-read:
				case <-r.Context().Done():
				}
			})
			c := bufio.NewReader(get(t, addr, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
			if _, err := textproto.NewReader(c).ReadLine(); err != nil {
				t.Fatal(err)
			}
			if _, err := textproto.NewReader(c).ReadMIMEHeader(); err != nil {
				t.Fatal(err)
			}
			chunk := append(fmt.Appendf(nil, "%x\r\n", size), block(0, size)...)
			got := make([]byte, len(chunk)+2)
			if n, err := io.ReadFull(c, got); err != nil {
				t.Fatalf("%s: %d bytes of a chunk of %d came, %v", name, n, size, err)
			}
			if !bytes.Equal(got, append(chunk, "\r\n"...)) {
				t.Errorf("%s: a chunk of %d bytes is not what was written", name, size)
			}
			close(read)
		}
	}
}

func TestWhatTheHandlerReusesIsSentAsItWas(t *testing.T) {
	const rounds, size = 50, 5 << 10
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		to, buf := gather.NewWriter(r.Context(), w), make([]byte, 2*size)
		for i := range rounds {
			copy(buf, block(i, size))
			if _, err := to.Write(buf[:size]); err != nil {
				t.Error(err)
			}
			clear(buf)
		}
	})
	resp, err := (&http.Client{Timeout: patience}).Get("http://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || len(got) != rounds*size {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	for i := range rounds {
		if !bytes.Equal(got[i*size:(i+1)*size], block(i, size)) {
			t.Fatalf("block %d is not what was written", i)
		}
	}
}

// A body may be read while the answer is written, and its first read is what sends 100 Continue.
func TestTheAnswerMayBeWrittenWhileTheBodyIsRead(t *testing.T) {
	const size = 64 << 10
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		var reading sync.WaitGroup
		reading.Go(func() {
			if n, err := io.Copy(io.Discard, r.Body); n != 5 || err != nil {
				t.Errorf("read %d bytes, %v", n, err)
			}
		})
		if _, err := gather.NewWriter(r.Context(), w).Write(block(0, size)); err != nil {
			t.Error(err)
		}
		reading.Wait()
	})
	c := get(t, addr, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello")
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(answer), "\r\n0\r\n\r\n") || !bytes.Contains(answer, block(0, size)) {
		t.Errorf("of %d bytes the end is %q", len(answer), answer[max(0, len(answer)-20):])
	}
}

// Be it a piece that was held to the end, or a large one.
func TestAWriteToAClientThatHasGoneFails(t *testing.T) {
	for _, size := range []int{3 << 10, 64 << 10} {
		failed := make(chan error)
		addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
			to := gather.NewWriter(r.Context(), w)
			for end := time.Now().Add(patience); time.Now().Before(end); {
				if _, err := to.Write(block(0, size)); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		})
		c := get(t, addr, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if err := c.SetLinger(0); err != nil { // the connection is reset
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if _, ok := errors.AsType[*net.OpError](<-failed); !ok {
			t.Errorf("writes of %d bytes go on", size)
		}
	}
}

func TestAnErrorOfTheListenerIsPassedOn(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	if c, err := gather.Listener(ln).Accept(); c != nil || !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepted %v, %v", c, err)
	}
}
