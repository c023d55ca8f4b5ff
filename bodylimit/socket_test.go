package bodylimit_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keepwell-go/keepwell/bodylimit"
)

// servers are the ways to put a limit in front of a handler that reads its body.
var servers = map[string]func(*bodylimit.Limiter) http.Handler{
	"handler": readAll,
	"decode":  decode,
	"wrapped": func(l *bodylimit.Limiter) http.Handler { return wrapped(wrapped(readAll(l))) },
	"hidden":  func(l *bodylimit.Limiter) http.Handler { return hidden(readAll(l)) },
}

// onEach runs f against a server of each kind.
func onEach(t *testing.T, l *bodylimit.Limiter, f func(t *testing.T, c *raw)) {
	for name, handler := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, dial(t, serve(t, handler(l))))
		})
	}
}

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

const lastChunk = "0\r\n\r\n"

func TestDeclaredOversizeIsAnsweredThoughNoBodyComes(t *testing.T) { // R52, R95
	onEach(t, limiter(), func(t *testing.T, c *raw) {
		c.head(fmt.Sprintf("Content-Length: %d\r\n", limit+1))
		tooLarge(t, c.answer(), limit+1)
	})
}

func TestASilentClientDoesNotKeepItsConnection(t *testing.T) { // R53
	l := &bodylimit.Limiter{Max: limit, Drain: time.Millisecond}
	t.Run("declared", func(t *testing.T) {
		for _, kind := range []string{"handler", "decode", "wrapped"} {
			t.Run(kind, func(t *testing.T) {
				c := dial(t, serve(t, servers[kind](l)))
				c.head(fmt.Sprintf("Content-Length: %d\r\n", limit+1))
				tooLarge(t, c.answer(), limit+1)
				c.ends()
			})
		}
	})
	t.Run("chunked", func(t *testing.T) {
		c := dial(t, serve(t, readAll(l)))
		c.head("Transfer-Encoding: chunked\r\n")
		c.send(chunk(strings.Repeat("x", limit+1)))
		tooLarge(t, c.answer(), -1)
		c.ends()
	})
	t.Run("encoded", func(t *testing.T) {
		c := dial(t, serve(t, readAll(l)))
		c.head("Content-Length: 10\r\nContent-Encoding: br\r\n")
		refused(t, c.answer(), 415, "unsupported_encoding", `bodylimit: content encoding "br" is not accepted`)
		c.ends()
	})
	t.Run("who_answered_by_itself", func(t *testing.T) {
		c := dial(t, serve(t, l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		}))))
		c.head("Transfer-Encoding: chunked\r\n")
		c.send(chunk(strings.Repeat("x", limit+1)))
		if res := c.answer(); res.StatusCode != 413 {
			t.Errorf("answered %d", res.StatusCode)
		}
		c.ends()
	})
}

func TestOversizeIsNotInvitedBy100Continue(t *testing.T) { // R52
	onEach(t, limiter(), func(t *testing.T, c *raw) {
		c.head(fmt.Sprintf("Content-Length: %d\r\nExpect: 100-continue\r\n", limit+1))
		tooLarge(t, c.answer(), limit+1) // the first answer, so there was no 100
	})
}

func TestAnAcceptedBodyIsInvitedBy100Continue(t *testing.T) {
	c := dial(t, serve(t, readAll(limiter())))
	c.head("Content-Length: 3\r\nExpect: 100-continue\r\n")
	if res := c.answer(); res.StatusCode != 100 {
		t.Fatalf("answered %d", res.StatusCode)
	}
	c.send("abc")
	accepted(t, c, "3")
}

func TestAnEncodedBodyIsJudgedBeforeItIsInvited(t *testing.T) {
	c := dial(t, serve(t, readAll(limiter())))
	c.head("Content-Length: 3\r\nContent-Encoding: gzip\r\nExpect: 100-continue\r\n")
	refused(t, c.answer(), 415, "unsupported_encoding", `bodylimit: content encoding "gzip" is not accepted`)
}

func TestAClientThatWritesAllBeforeItReadsSeesTheRefusal(t *testing.T) { // R53, R95
	for _, n := range []int{limit + 1, 200 << 10, 8 << 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			body := strings.Repeat("x", n)
			skipHidden := func(t *testing.T) {
				if n > 256<<10 && strings.HasSuffix(t.Name(), "hidden") {
					t.Skip("without a way to the connection, what net/http reads by itself is all that is read")
				}
			}
			t.Run("declared", func(t *testing.T) {
				onEach(t, limiter(), func(t *testing.T, c *raw) {
					skipHidden(t)
					c.head(fmt.Sprintf("Content-Length: %d\r\n", n))
					c.send(body)
					tooLarge(t, c.answer(), n)
				})
			})
			t.Run("chunked", func(t *testing.T) {
				onEach(t, limiter(), func(t *testing.T, c *raw) {
					skipHidden(t)
					c.head("Transfer-Encoding: chunked\r\n")
					c.send(chunk(body[:limit]))
					c.send(chunk(body[limit:]))
					c.send(lastChunk)
					tooLarge(t, c.answer(), -1)
				})
			})
		})
	}
}

func TestAClientThatNeverStopsSendingIsCutOff(t *testing.T) { // R53
	l := &bodylimit.Limiter{Max: limit, Drain: time.Millisecond}
	s := serve(t, readAll(l))
	c := dial(t, s)
	c.head("Transfer-Encoding: chunked\r\n")
	endless := chunk(strings.Repeat("x", 64<<10))
	for {
		if _, err := io.WriteString(c.conn, endless); err != nil {
			if isTimeout(err) {
				t.Error("the client is still listened to")
			}
			break
		}
	}
	if _, err := io.ReadAll(c.buf); isTimeout(err) {
		t.Error("the connection goes on")
	}
	other := dial(t, s)
	other.head("Content-Length: 0\r\n")
	accepted(t, other, "0")
}

func accepted(t *testing.T, c *raw, text string) {
	t.Helper()
	res := c.answer()
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != 200 || string(body) != text || res.Close {
		t.Errorf("answered %d %q, close %t, want 200 %q and a connection to go on with", res.StatusCode, body, res.Close, text)
	}
}

func TestABodyOfExactlyTheLimitIsAcceptedAndTheConnectionGoesOn(t *testing.T) { // R53
	for name, handler := range map[string]http.Handler{"plain": readAll(limiter()), "wrapped": wrapped(readAll(limiter()))} {
		t.Run(name, func(t *testing.T) {
			body := strings.Repeat("x", limit)
			c := dial(t, serve(t, handler))
			for range 2 {
				c.head(fmt.Sprintf("Content-Length: %d\r\n", limit))
				c.send(body)
				accepted(t, c, fmt.Sprint(limit))
				c.head("Transfer-Encoding: chunked\r\n")
				c.send(chunk(body[:1]) + chunk(body[1:]) + lastChunk)
				accepted(t, c, fmt.Sprint(limit))
			}
		})
	}
}

func TestAMalformedBodyIsA400OnAConnectionThatGoesOn(t *testing.T) { // R54
	c := dial(t, serve(t, decode(limiter())))
	for range 2 {
		c.head("Transfer-Encoding: chunked\r\n")
		c.send(chunk(`{"a":`) + chunk("]") + lastChunk)
		res := c.answer()
		refused(t, res, 400, "bad_request", "bodylimit: malformed body: invalid character ']' looking for beginning of value")
		if res.Close {
			t.Error("the connection was ended though the body was read")
		}
	}
	c.head("Transfer-Encoding: chunked\r\n")
	c.send(chunk("7") + chunk(strings.Repeat(" ", limit)) + lastChunk)
	tooLarge(t, c.answer(), -1)
}

func TestAClientThatBreaksOffIsNeitherTooLargeNorMalformed(t *testing.T) {
	l := limiter()
	got := make(chan error, 1)
	c := dial(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := bodylimit.DecodeJSON[any](l, w, r)
		if l.Refuse(w, r, err) {
			t.Errorf("%v was refused", err)
		}
		got <- err
	})))
	c.head("Content-Length: 100\r\n")
	c.send(`{"a":`)
	_ = c.conn.Close()
	if err := <-got; err == nil || err.Error() != "bodylimit: read body: unexpected EOF" {
		t.Errorf("got %v", err)
	}
}
