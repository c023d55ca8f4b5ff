package bodylimit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/bodylimit"
)

// pieces returns data in reads of drawn lengths, the last of them with or without the EOF.
type pieces struct {
	rt   *rapid.T
	data []byte
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.data[:rapid.IntRange(0, len(p.data)).Draw(p.rt, "read")])
	p.data = p.data[n:]
	if len(p.data) == 0 && rapid.Bool().Draw(p.rt, "EOF with the last bytes") {
		return n, io.EOF
	}
	return n, nil
}

// TestWhatABodyIsDependsOnItsBytesOnly decodes random bodies under random limits, in random reads, with or without a declared length and
// gzip: it is too large exactly if it is longer than the limit, otherwise what encoding/json thinks of the whole. R53, R54, R94
func TestWhatABodyIsDependsOnItsBytesOnly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		decoded := drawBody(rt)
		sent := decoded
		gzip := rapid.Bool().Draw(rt, "gzip")
		if gzip {
			sent = gzipped(decoded)
		}
		// around the length, where the mistakes are
		size := max(len(decoded), len(sent))
		l := &bodylimit.Limiter{Max: int64(max(0, size+rapid.IntRange(-2, 2).Draw(rt, "limit - length"))), Gunzip: gzip}
		r := post(&pieces{rt, []byte(sent)})
		if gzip {
			r.Header.Set("Content-Encoding", "gzip")
		}
		declared := rapid.Bool().Draw(rt, "declared")
		if declared {
			r.ContentLength = int64(len(sent))
		}
		got, err := bodylimit.DecodeJSON[any](l, httptest.NewRecorder(), r)
		var want any
		jsonErr := json.Unmarshal([]byte(decoded), &want)
		tooLarge, isTooLarge := errors.AsType[*bodylimit.TooLargeError](err)
		malformed, isMalformed := errors.AsType[*bodylimit.MalformedError](err)
		switch {
		case int64(size) > l.Max:
			if !isTooLarge || isMalformed || tooLarge.Limit != l.Max || got != nil {
				rt.Fatalf("%q over the limit of %d: %v, %v", decoded, l.Max, got, err)
			}
			if wantDeclared := declared && int64(len(sent)) > l.Max; (tooLarge.Declared >= 0) != wantDeclared {
				rt.Fatalf("declared %t: %+v", declared, tooLarge)
			}
		case jsonErr != nil:
			if !isMalformed || isTooLarge || malformed.Err == nil || got != nil {
				rt.Fatalf("malformed %q within the limit of %d: %v, %v", decoded, l.Max, got, err)
			}
		case err != nil || !reflect.DeepEqual(got, want):
			rt.Fatalf("%q within the limit of %d: %v, %v, want %v", decoded, l.Max, got, err, want)
		}
	})
}

// drawBody draws a JSON value and then perhaps spoils it.
func drawBody(rt *rapid.T) string {
	leaf := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Map(rapid.Float64Range(-1e9, 1e9), func(f float64) any { return f }),
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.MapOf(rapid.StringN(0, 3, 9), rapid.SliceOfN(rapid.Int16(), 0, 3)), func(m map[string][]int16) any { return m }),
	)
	body, err := json.Marshal(rapid.SliceOfN(leaf, 0, 4).Draw(rt, "value"))
	if err != nil {
		rt.Fatal(err)
	}
	s := string(body)
	switch rapid.IntRange(0, 5).Draw(rt, "kind") {
	case 0:
		return s[:rapid.IntRange(0, len(s)).Draw(rt, "cut off at")]
	case 1:
		return s + rapid.StringOf(rapid.RuneFrom([]rune(" \n\t\r{}]\x00x,1"))).Draw(rt, "tail")
	case 2:
		return rapid.StringOf(rapid.RuneFrom([]rune(` {}[]":,1etrufalsn\`))).Draw(rt, "soup")
	default:
		return s
	}
}

func TestStrictRefusesUnknownFields(t *testing.T) {
	const body = `{"name":"a","title":"b"}`
	if v, err := bodylimit.DecodeJSON[named](limiter(), httptest.NewRecorder(), post(undeclared(body))); err != nil || v.Name != "a" {
		t.Errorf("without Strict: %+v, %v", v, err)
	}
	l := limiter()
	l.Strict = true
	v, err := bodylimit.DecodeJSON[named](l, httptest.NewRecorder(), post(undeclared(body)))
	if want := `bodylimit: malformed body: json: unknown field "title"`; err == nil || err.Error() != want || v != (named{}) {
		t.Errorf("with Strict: %+v, %v, want %s", v, err, want)
	}
}

func TestABodyThatCannotBeReadIsNotOurs(t *testing.T) {
	errGone := errors.New("connection reset")
	l := limiter()
	w, r := httptest.NewRecorder(), post(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(errGone)))
	_, err := bodylimit.DecodeJSON[any](l, w, r)
	if !errors.Is(err, errGone) || err.Error() != "bodylimit: read body: connection reset" {
		t.Errorf("got %v", err)
	}
	if l.Refuse(w, r, err) || w.Body.Len() > 0 {
		t.Errorf("it was refused with %q", w.Body)
	}
}

// TestADeclaredLengthIsNotBelieved: a client that declares much and sends little does not make the server allocate much.
func TestADeclaredLengthIsNotBelieved(t *testing.T) {
	l := &bodylimit.Limiter{Max: 1 << 30}
	r := post(undeclared("7"))
	r.ContentLength = 1 << 30
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if v, err := bodylimit.DecodeJSON[int](l, httptest.NewRecorder(), r); err != nil || v != 7 {
		t.Errorf("got %d, %v", v, err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("took %d bytes of memory", got)
	}
}

func TestADeclaredLengthSavesTheGrowing(t *testing.T) {
	body := `"` + strings.Repeat("x", 50<<10) + `"`
	l := &bodylimit.Limiter{Max: 1 << 20}
	cost := func(declared int64) float64 {
		return testing.AllocsPerRun(20, func() {
			r := post(undeclared(body))
			r.ContentLength = declared
			if _, err := bodylimit.DecodeJSON[string](l, httptest.NewRecorder(), r); err != nil {
				t.Fatal(err)
			}
		})
	}
	if without, with := cost(-1), cost(int64(len(body))); with > without-5 {
		t.Errorf("%v allocations with a declared length, %v without", with, without)
	}
}

// TestLimitsNest: the smaller one decides, whichever is inside.
func TestLimitsNest(t *testing.T) {
	for _, c := range []struct{ outer, inner int64 }{{8, 4}, {4, 8}, {4, 4}} {
		t.Run(fmt.Sprintf("%d_around_%d", c.outer, c.inner), func(t *testing.T) {
			outer, inner := &bodylimit.Limiter{Max: c.outer}, &bodylimit.Limiter{Max: c.inner}
			for n := range 10 {
				w, r := httptest.NewRecorder(), post(undeclared(strings.Repeat("x", n)))
				outer.Handler(inner.Handler(readAll(&bodylimit.Limiter{Max: 100}))).ServeHTTP(w, r)
				if want := n > 4; (w.Code == 413) != want {
					t.Errorf("%d bytes: %d", n, w.Code)
				}
			}
		})
	}
}

func FuzzDecodeJSON(f *testing.F) {
	for _, s := range []string{`{}`, `{"name":"a"}`, ``, ` `, `{"a":`, `[1,2,3] x`, strings.Repeat("[", 100), "\x00", `"\ud800"`} {
		f.Add([]byte(s), uint16(len(s)))
		f.Add([]byte(s), uint16(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, limit uint16) {
		l := &bodylimit.Limiter{Max: int64(limit)}
		got, err := bodylimit.DecodeJSON[any](l, httptest.NewRecorder(), post(io.MultiReader(bytes.NewReader(body))))
		var want any
		jsonErr := json.Unmarshal(body, &want)
		_, malformed := errors.AsType[*bodylimit.MalformedError](err)
		if large := len(body) > int(limit); isTooLarge(err) != large || malformed != (!large && jsonErr != nil) {
			t.Fatalf("%q within %d: %v; encoding/json: %v", body, limit, err, jsonErr)
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %v, want %v", body, got, want)
		}
	})
}

func FuzzGunzip(f *testing.F) {
	for _, s := range []string{"", "hello", gzipped(""), gzipped("hello"), gzipped("a") + gzipped("b"), gzipped("hello")[:12], gzipped(strings.Repeat("x", 5000))} {
		f.Add([]byte(s), uint16(1000))
		f.Add([]byte(s), uint16(30))
	}
	f.Fuzz(func(t *testing.T, sent []byte, limit uint16) {
		r := encoded(string(sent), "gzip")
		body, err := (&bodylimit.Limiter{Max: int64(limit), Gunzip: true}).Body(httptest.NewRecorder(), r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		if len(got) > int(limit) {
			t.Fatalf("%d bytes passed a limit of %d", len(got), limit)
		}
		_, malformed := errors.AsType[*bodylimit.MalformedError](err)
		if len(sent) > int(limit) && !isTooLarge(err) || err != nil && !malformed && !isTooLarge(err) {
			t.Fatalf("%d bytes sent, limit %d: %v", len(sent), limit, err)
		}
	})
}
