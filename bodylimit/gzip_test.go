package bodylimit_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/keepwell-go/keepwell/bodylimit"
)

func gunzipping() *bodylimit.Limiter { return &bodylimit.Limiter{Max: 1000, Gunzip: true} }

// bomb returns 1 MiB of gzip that is 1 GiB of zeros, put together from many copies of one deflated block.
func bomb(t *testing.T) []byte {
	t.Helper()
	const once, copies = 1 << 20, 1 << 10
	var member bytes.Buffer
	zw, err := gzip.NewWriterLevel(&member, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := zw.Write(make([]byte, once)); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(member.Bytes(), copies)
}

// TestAMiBThatInflatesToAGiBIsRefusedInFlatMemory lets the bomb pass the limit for what is sent, so that only the limit for what is
// decoded stops it. R94
func TestAMiBThatInflatesToAGiBIsRefusedInFlatMemory(t *testing.T) {
	sent := bomb(t)
	if len(sent) < 1<<20-1<<17 || len(sent) > 1<<20+1<<17 {
		t.Fatalf("the bomb is %d bytes", len(sent))
	}
	l := &bodylimit.Limiter{Max: 2 << 20, Gunzip: true}
	decodeWith := func(w http.ResponseWriter, r *http.Request) {
		_, err := bodylimit.DecodeJSON[any](l, w, r)
		l.Refuse(w, r, err)
	}
	for name, h := range map[string]http.Handler{"read": readAll(l), "decode": http.HandlerFunc(decodeWith)} {
		t.Run(name, func(t *testing.T) {
			w, r := httptest.NewRecorder(), post(bytes.NewReader(sent))
			r.Header.Set("Content-Encoding", "gzip")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			h.ServeHTTP(w, r)
			runtime.ReadMemStats(&after)
			refused(t, w.Result(), 413, "payload_too_large", "bodylimit: body is over the limit of 2097152 bytes")
			if got := after.TotalAlloc - before.TotalAlloc; got > 16<<20 {
				t.Errorf("took %d MiB of memory in all", got>>20)
			}
		})
	}
}

func TestAHandlerSeesTheDecodedBody(t *testing.T) {
	for _, encoding := range []string{"gzip", "GZIP", "x-gzip", " identity, gzip"} {
		t.Run(strings.TrimSpace(encoding), func(t *testing.T) {
			r := post(strings.NewReader(gzipped("hello")))
			r.Header.Set("Content-Encoding", encoding)
			r.Header.Set("Content-Length", fmt.Sprint(r.ContentLength))
			r.Header.Set("X-Other", "kept")
			before := r.Header.Clone()
			called := false
			gunzipping().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				called = true
				if got, err := io.ReadAll(r.Body); err != nil || string(got) != "hello" {
					t.Errorf("read %q, %v", got, err)
				}
				if r.ContentLength != -1 || len(r.Header) != 1 || r.Header.Get("X-Other") != "kept" {
					t.Errorf("declared %d, header %v", r.ContentLength, r.Header)
				}
				if err := r.Body.Close(); err != nil {
					t.Error(err)
				}
			})).ServeHTTP(httptest.NewRecorder(), r)
			if !called || fmt.Sprint(r.Header) != fmt.Sprint(before) {
				t.Errorf("called: %t; the caller's header became %v", called, r.Header)
			}
		})
	}
}

func TestAnEncodingThatIsNotAskedForIsRefused(t *testing.T) {
	for _, c := range []struct {
		l             *bodylimit.Limiter
		sent, refused string
		accept        string
	}{
		{&bodylimit.Limiter{Max: 99}, "gzip", "gzip", "identity"},
		{&bodylimit.Limiter{Max: 99}, "Br", "br", "identity"},
		{gunzipping(), "br", "br", "gzip, identity"},
		{gunzipping(), "gzip, identity,,gzip", "gzip, gzip", "gzip, identity"},
		{gunzipping(), strings.Repeat("y", 1000), strings.Repeat("y", 64), "gzip, identity"},
	} {
		w, r := httptest.NewRecorder(), encoded("x", c.sent)
		c.l.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
		res := w.Result()
		refused(t, res, 415, "unsupported_encoding", fmt.Sprintf("bodylimit: content encoding %q is not accepted", c.refused))
		if got := res.Header.Get("Accept-Encoding"); got != c.accept {
			t.Errorf("Accept-Encoding %q, want %q", got, c.accept)
		}
	}
}

func TestSeveralLinesOfContentEncodingAreOne(t *testing.T) {
	r := encoded("x", "gzip")
	r.Header.Add("Content-Encoding", "br")
	_, err := gunzipping().Body(httptest.NewRecorder(), r)
	if e, ok := errors.AsType[*bodylimit.EncodingError](err); !ok || e.Encoding != "gzip, br" {
		t.Errorf("got %v", err)
	}
}

func TestTooLargeWinsOverTheEncoding(t *testing.T) { // R54
	r := encoded("x", "br")
	r.ContentLength = 1001
	_, err := gunzipping().Body(httptest.NewRecorder(), r)
	wantTooLarge(t, err, true, 1000, 1001)
}

func TestNoBodyNeedsNoEncoding(t *testing.T) {
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Body = body
		r.Header.Set("Content-Encoding", "br")
		got, err := new(bodylimit.Limiter).Body(httptest.NewRecorder(), r)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(got); len(b) > 0 || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
	}
}

// TestAnUndeclaredBodyThatIsNotGzip tells a broken encoding from a body that is too large, one that could not be read, and an empty one.
func TestAnUndeclaredBodyThatIsNotGzip(t *testing.T) { // R54, R94
	good := gzipped("hello")
	errBroken := errors.New("broken")
	for _, c := range []struct {
		name string
		body io.Reader
		want func(error) bool
		text string
	}{
		{"empty", undeclared(""), func(err error) bool { return err == nil }, "<nil>"},
		{"not_gzip", undeclared("hello"), isMalformed(io.ErrUnexpectedEOF), "bodylimit: malformed body: unexpected EOF"},
		{"other_magic", undeclared("hello, world"), isMalformed(gzip.ErrHeader), "bodylimit: malformed body: gzip: invalid header"},
		{"bad_sum", undeclared(good[:len(good)-8] + "12345678"), isMalformed(gzip.ErrChecksum), "bodylimit: malformed body: gzip: invalid checksum"},
		{"cut_off", undeclared(good[:len(good)-3]), isMalformed(io.ErrUnexpectedEOF), "bodylimit: malformed body: unexpected EOF"},
		{"garbage_after", undeclared(good + "garbage, long enough"), isMalformed(gzip.ErrHeader), "bodylimit: malformed body: gzip: invalid header"},
		{"not_gzip_and_too_large", undeclared(strings.Repeat("x", 1001)), isTooLarge, "bodylimit: body is over the limit of 1000 bytes"},
		{"bad_sum_and_too_large", undeclared(good[:len(good)-8] + strings.Repeat("x", 1001)), isTooLarge, "bodylimit: body is over the limit of 1000 bytes"},
		{"broken_at_once", iotest.ErrReader(errBroken), is(errBroken), "broken"},
		{"broken_in_the_middle", io.MultiReader(strings.NewReader(good[:15]), iotest.ErrReader(errBroken)), is(errBroken), "broken"},
		{"broken_after_garbage", io.MultiReader(strings.NewReader("garbage, long enough"), iotest.ErrReader(errBroken)), is(errBroken), "broken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := post(c.body)
			r.Header.Set("Content-Encoding", "gzip")
			body, err := gunzipping().Body(httptest.NewRecorder(), r)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				got, err := io.ReadAll(body)
				if !c.want(err) || fmt.Sprint(err) != c.text {
					t.Errorf("got %v, want %s", err, c.text)
				}
				if !strings.HasPrefix("hello", string(got)) {
					t.Errorf("read %q, which nobody encoded", got)
				}
			}
		})
	}
}

func is(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }

func isMalformed(want error) func(error) bool {
	return func(err error) bool {
		_, ok := errors.AsType[*bodylimit.MalformedError](err)
		return ok && errors.Is(err, want)
	}
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*bodylimit.TooLargeError](err)
	return ok
}
