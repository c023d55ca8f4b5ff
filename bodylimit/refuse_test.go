package bodylimit_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/bodylimit"
)

// panics asserts that f panics with the package's name and the given words.
func panics(t *testing.T, words string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		text, _ := recover().(string)
		if !strings.HasPrefix(text, "bodylimit: ") || !strings.Contains(text, words) {
			t.Errorf("panicked with %q, want bodylimit: ... %s", text, words)
		}
	}()
	f()
}

func TestMisusePanicsWithThePackagesName(t *testing.T) {
	w, r := httptest.NewRecorder(), post(undeclared(""))
	for words, l := range map[string]*bodylimit.Limiter{
		"nil Limiter":            nil,
		"negative Limiter.Max":   {Max: -1},
		"negative Limiter.Drain": {Drain: -1},
	} {
		panics(t, words, func() { l.Handler(http.NotFoundHandler()) })
		panics(t, words, func() { _, _ = l.Body(w, r) })
		panics(t, words, func() { _, _ = bodylimit.DecodeJSON[any](l, w, r) })
		panics(t, words, func() { l.Refuse(w, r, nil) })
	}
	panics(t, "nil http.Handler", func() { limiter().Handler(nil) })
	panics(t, "negative limit: max_body", func() { bodylimit.Clamp(nil, "max_body", -1, 1) })
	panics(t, "negative limit: max_body", func() { bodylimit.Clamp(nil, "max_body", 1, -1) })
}

func TestClampWarnsWhenItClamps(t *testing.T) { // R51
	const mib = 1 << 20
	for _, c := range []struct {
		want, ceiling, got int64
		warned             bool
	}{
		{9 * mib, 8 * mib, 8 * mib, true},
		{8*mib + 1, 8 * mib, 8 * mib, true},
		{8 * mib, 8 * mib, 8 * mib, false},
		{7 * mib, 8 * mib, 7 * mib, false},
		{0, 0, 0, false},
		{1, 0, 0, true},
	} {
		t.Run(fmt.Sprintf("%d_to_%d", c.want, c.ceiling), func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			if got := bodylimit.Clamp(zap.New(core), "max_body", c.want, c.ceiling); got != c.got {
				t.Errorf("got %d, want %d", got, c.got)
			}
			if got := bodylimit.Clamp(nil, "max_body", c.want, c.ceiling); got != c.got {
				t.Errorf("without a log: got %d, want %d", got, c.got)
			}
			if (logs.Len() == 1) != c.warned || logs.Len() > 1 {
				t.Fatalf("logged %v", logs.All())
			}
			if c.warned {
				if m := logs.All()[0].ContextMap(); m["limit"] != "max_body" || m["want"] != c.want || m["ceiling"] != c.ceiling {
					t.Errorf("logged %v", m)
				}
			}
		})
	}
}

func TestWhatIsClampedIsAcceptedBehind(t *testing.T) { // R51, R55
	const ceiling = 64
	front := &bodylimit.Limiter{Max: bodylimit.Clamp(nil, "front", 100, ceiling)}
	behind := &bodylimit.Limiter{Max: ceiling}
	for n := range 2 * ceiling {
		w := httptest.NewRecorder()
		reached := false
		front.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reached = true
			readAll(behind).ServeHTTP(w, r)
		})).ServeHTTP(w, post(strings.NewReader(strings.Repeat("x", n))))
		if reached != (n <= ceiling) || (w.Code == 200) != (n <= ceiling) {
			t.Errorf("%d bytes: reached %t, answered %d", n, reached, w.Code)
		}
	}
}

func TestRefuseAnswersItsOwnErrorsOnly(t *testing.T) { // R54
	large := &bodylimit.TooLargeError{Limit: 8, Declared: 9}
	malformed := &bodylimit.MalformedError{Err: errors.New("no")}
	for _, c := range []struct {
		err    error
		status int
		text   string
	}{
		{nil, 0, ""},
		{io.ErrUnexpectedEOF, 0, ""},
		{&http.MaxBytesError{Limit: 8}, 0, ""},
		{large, 413, "bodylimit: body of 9 bytes is over the limit of 8 bytes"},
		{&bodylimit.TooLargeError{Limit: 8, Declared: 0}, 413, "bodylimit: body of 0 bytes is over the limit of 8 bytes"},
		{fmt.Errorf("stage: %w", large), 413, "bodylimit: body of 9 bytes is over the limit of 8 bytes"},
		{malformed, 400, "bodylimit: malformed body: no"},
		{fmt.Errorf("stage: %w", malformed), 400, "bodylimit: malformed body: no"},
		{errors.Join(malformed, large), 413, "bodylimit: body of 9 bytes is over the limit of 8 bytes"},
		{&bodylimit.EncodingError{Encoding: "br"}, 415, `bodylimit: content encoding "br" is not accepted`},
	} {
		t.Run(fmt.Sprint(c.err), func(t *testing.T) {
			w := httptest.NewRecorder()
			did := limiter().Refuse(w, post(undeclared("")), c.err)
			if did != (c.status != 0) {
				t.Fatalf("refused: %t", did)
			}
			if did {
				refused(t, w.Result(), c.status, codes[c.status], c.text)
				if w.Header().Get("X-Content-Type-Options") != "nosniff" {
					t.Error("a browser may take the text for something else")
				}
			} else if w.Body.Len() > 0 || len(w.Header()) > 0 {
				t.Errorf("wrote %q, %v", w.Body, w.Header())
			}
		})
	}
}

// TestATextFromTheClientStaysText: what is quoted in the answer cannot leave its JSON string.
func TestATextFromTheClientStaysText(t *testing.T) {
	w := httptest.NewRecorder()
	limiter().Refuse(w, post(undeclared("")), &bodylimit.MalformedError{Err: errors.New("\"}\n<script>")})
	refused(t, w.Result(), 400, "bad_request", "bodylimit: malformed body: \"}\n<script>")
}

func TestOtherCodeSeesAMaxBytesError(t *testing.T) {
	err := fmt.Errorf("read: %w", &bodylimit.TooLargeError{Limit: 8, Declared: -1})
	if e, ok := errors.AsType[*http.MaxBytesError](err); !ok || e.Limit != 8 {
		t.Errorf("got %v", e)
	}
}

// TestWhetherTheConnectionIsEnded: it is, if something of the body may be left on it.
func TestWhetherTheConnectionIsEnded(t *testing.T) {
	notJSON := func(w http.ResponseWriter, r *http.Request) error {
		_, err := bodylimit.DecodeJSON[any](limiter(), w, r)
		return err
	}
	notGzip := func(w http.ResponseWriter, r *http.Request) error {
		r.Header.Set("Content-Encoding", "gzip")
		_, err := bodylimit.DecodeJSON[any](gunzipping(), w, r)
		return err
	}
	handMade := func(http.ResponseWriter, *http.Request) error { return &bodylimit.MalformedError{Err: io.EOF} }
	for _, c := range []struct {
		name  string
		body  io.ReadCloser
		fails func(http.ResponseWriter, *http.Request) error
		major int
		ended bool
	}{
		{"not_json", io.NopCloser(undeclared("}")), notJSON, 1, false},
		{"not_gzip", io.NopCloser(undeclared("hello, world")), notGzip, 1, false},
		{"hand_made", io.NopCloser(undeclared("x")), handMade, 1, true},
		{"hand_made_over_http2", io.NopCloser(undeclared("x")), handMade, 2, false},
		{"hand_made_without_a_body", http.NoBody, handMade, 1, false},
		{"hand_made_nil_body", nil, handMade, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, r := &deadlines{ResponseRecorder: httptest.NewRecorder()}, post(undeclared(""))
			r.Body, r.ProtoMajor = c.body, c.major
			if !limiter().Refuse(w, r, c.fails(w, r)) {
				t.Fatal("not refused")
			}
			if got := w.Header().Get("Connection") == "close"; got != c.ended || w.Code != 400 {
				t.Errorf("answered %d, Connection %q", w.Code, w.Header().Get("Connection"))
			}
		})
	}
}

// counted counts what is read.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestARefusedBodyIsReadOnOnlyWhereThatHasAnEnd(t *testing.T) { // R53
	for _, c := range []struct {
		name string
		w    http.ResponseWriter
		l    *bodylimit.Limiter
		want int64
	}{
		{"in_time_and_in_bytes", &deadlines{ResponseRecorder: httptest.NewRecorder()}, limiter(), 16 << 20},
		{"no_deadline", httptest.NewRecorder(), limiter(), limit + 1},
		{"no_flush", noFlush{&deadlines{ResponseRecorder: httptest.NewRecorder()}}, limiter(), limit + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := &counted{r: zeros{}}
			r := post(src)
			_, err := bodylimit.DecodeJSON[any](c.l, c.w, r)
			if src.n > limit+1 {
				t.Errorf("read %d bytes to find that %d are too many", src.n, limit+1)
			}
			if !c.l.Refuse(c.w, r, err) {
				t.Fatal("not refused")
			}
			if got := src.n; got < c.want || got > c.want+limit+1 {
				t.Errorf("read %d bytes in all, want about %d", got, c.want)
			}
		})
	}
}

func TestOneByteOverTheLimitIsReadAndNoMore(t *testing.T) {
	for size := 1; size < 12; size++ {
		src := &counted{r: zeros{}}
		body, err := (&bodylimit.Limiter{Max: 8}).Body(httptest.NewRecorder(), post(src))
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = body.Read(make([]byte, size))
		}
		if wantTooLarge(t, err, true, 8, -1); src.n != 9 {
			t.Errorf("in reads of %d: took %d bytes from the connection, want 9", size, src.n)
		}
	}
}

// noFlush has a connection to hurry, but keeps what is written until the handler returns.
type noFlush struct{ d *deadlines }

func (n noFlush) Header() http.Header         { return n.d.Header() }
func (n noFlush) WriteHeader(status int)      { n.d.WriteHeader(status) }
func (n noFlush) Write(p []byte) (int, error) { return n.d.Write(p) }
func (n noFlush) SetReadDeadline(at time.Time) error {
	return n.d.SetReadDeadline(at)
}

func TestWhatIsLeftIsReadBelowAllBounds(t *testing.T) {
	src := &counted{r: strings.NewReader(strings.Repeat("x", 5000))}
	w, r := &deadlines{ResponseRecorder: httptest.NewRecorder()}, encoded("", "gzip")
	r.Body = io.NopCloser(src)
	r.ContentLength = -1
	gunzipping().Handler(limiter().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limiter().Refuse(w, r, &bodylimit.TooLargeError{Limit: 1, Declared: -1})
	}))).ServeHTTP(w, r)
	if src.n != 5000 || w.Code != 413 {
		t.Errorf("read %d bytes, answered %d", src.n, w.Code)
	}
}

func TestRefusalsAreLogged(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	l := &bodylimit.Limiter{Max: 8, Logger: zap.New(core)}
	r := post(iotest.ErrReader(errors.New("was read")))
	r.ContentLength = 9
	l.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
	r = post(undeclared("123456789"))
	l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) })).ServeHTTP(httptest.NewRecorder(), r)
	var got []string
	for _, e := range logs.All() {
		got = append(got, fmt.Sprintf("%s: %s (%v)", e.Level, e.Message, e.ContextMap()["error"]))
	}
	hurry := "warn: a refused client cannot be hurried: the ResponseWriter has no SetReadDeadline and no Unwrap (feature not supported)"
	want := []string{
		"info: request body refused (bodylimit: body of 9 bytes is over the limit of 8 bytes)",
		hurry,
		hurry,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if status := logs.All()[0].ContextMap()["status"]; status != int64(413) {
		t.Errorf("logged status %v", status)
	}
}
