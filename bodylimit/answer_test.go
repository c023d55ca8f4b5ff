package bodylimit_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/bodylimit"
)

// drawRefused draws an error of this package, with the status of its answer.
func drawRefused(rt *rapid.T) (status int, err error) {
	text := string(rapid.SliceOf(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte("\"\\<&\n\u2028")))).Draw(rt, "text"))
	switch rapid.IntRange(0, 2).Draw(rt, "kind") {
	case 0:
		return 413, &bodylimit.TooLargeError{Limit: rapid.Int64().Draw(rt, "limit"), Declared: rapid.Int64().Draw(rt, "declared")}
	case 1:
		return 400, &bodylimit.MalformedError{Err: errors.New(text)}
	default:
		return 415, &bodylimit.EncodingError{Encoding: text}
	}
}

// TestAnAnswerIsWhatEncodingJSONWrites: the JSON is put together by hand, but nobody can tell.
func TestAnAnswerIsWhatEncodingJSONWrites(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		status, err := drawRefused(rt)
		want, jsonErr := json.Marshal(struct {
			Error string `json:"error"`
			Code  string `json:"code"`
		}{err.Error(), codes[status]})
		if jsonErr != nil {
			rt.Fatal(jsonErr)
		}
		w := httptest.NewRecorder()
		if !limiter().Refuse(w, post(undeclared("")), err) || w.Code != status {
			rt.Fatalf("%v is answered with %d, want %d", err, w.Code, status)
		}
		if got := w.Body.String(); got != string(want) {
			rt.Errorf("wrote %s, want %s", got, want)
		}
		if got := w.Header().Get("Content-Length"); got != strconv.Itoa(len(want)) {
			rt.Errorf("Content-Length %s of %d bytes", got, len(want))
		}
	})
}

// TestAHeaderOfAnAnswerIsNobodyElses: the values of its headers lie side by side in memory, but middleware may add to one, or write over
// it, and no other header changes, of this answer or of another.
func TestAHeaderOfAnAnswerIsNobodyElses(t *testing.T) {
	refuse := func() http.Header {
		w := httptest.NewRecorder()
		limiter().Refuse(w, post(undeclared("x")), &bodylimit.EncodingError{Encoding: "br"})
		return w.Header()
	}
	want := http.Header{
		"Accept-Encoding":        {"identity"},
		"Connection":             {"close"},
		"Content-Length":         {"92"},
		"Content-Type":           {"application/json"},
		"X-Content-Type-Options": {"nosniff"},
	}
	if got := refuse(); !maps.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("answered with %q", got)
	}
	for key := range want {
		for name, change := range map[string]func(http.Header){
			"add":        func(h http.Header) { h.Add(key, "mine") },
			"write_over": func(h http.Header) { h[key][0] = "mine" },
		} {
			t.Run(key+"_"+name, func(t *testing.T) {
				mine, other := refuse(), refuse()
				change(mine)
				delete(mine, key)
				rest := want.Clone()
				delete(rest, key)
				for k := range rest {
					if !slices.Equal(mine[k], rest[k]) {
						t.Errorf("of the same answer %s changed to %q", k, mine[k])
					}
				}
				if !maps.EqualFunc(other, want, slices.Equal) {
					t.Errorf("another answer changed to %q", other)
				}
			})
		}
	}
}
