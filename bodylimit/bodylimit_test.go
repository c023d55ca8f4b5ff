package bodylimit_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/keepwell-go/keepwell/bodylimit"
)

type named struct {
	Name string `json:"name"`
}

// post is a request with an undeclared length, unless the body is a *strings.Reader or the like.
func post(body io.Reader) *http.Request { return httptest.NewRequest("POST", "/", body) }

// undeclared hides the length of s, as a chunked body does.
func undeclared(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) }

// refused asserts that the answer is the one the wire promises.
func refused(t testing.TB, res *http.Response, status int, code, text string) {
	t.Helper()
	var got struct{ Error, Code string }
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("answer %d %q is not JSON: %v", res.StatusCode, body, err)
	}
	if res.StatusCode != status || got.Code != code || got.Error != text {
		t.Errorf("answered %d %q %q, want %d %q %q", res.StatusCode, got.Code, got.Error, status, code, text)
	}
	if got := res.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	if got := res.ContentLength; got != int64(len(body)) {
		t.Errorf("Content-Length %d, want %d", got, len(body))
	}
}

func TestABodyOfExactlyTheLimitIsAcceptedAndOneMoreByteIsNot(t *testing.T) { // R53
	const limit = 8
	for _, n := range []int{0, 1, limit - 1, limit, limit + 1, 100 * limit} {
		for _, oneByte := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d_one_byte_reads_%t", n, oneByte), func(t *testing.T) {
				src := undeclared(strings.Repeat("x", n))
				if oneByte {
					src = iotest.OneByteReader(src)
				}
				l := &bodylimit.Limiter{Max: limit}
				body, err := l.Body(httptest.NewRecorder(), post(src))
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(body)
				if len(got) != min(n, limit) {
					t.Errorf("read %d bytes, want %d", len(got), min(n, limit))
				}
				wantTooLarge(t, err, n > limit, limit, -1)
				if n, again := body.Read(make([]byte, 1)); n > 0 || err != nil && again != err {
					t.Errorf("the next read gave %d bytes and %v", n, again)
				}
			})
		}
	}
}

func wantTooLarge(t *testing.T, err error, want bool, limit, declared int64) {
	t.Helper()
	tooLarge, is := errors.AsType[*bodylimit.TooLargeError](err)
	switch {
	case is != want:
		t.Errorf("err = %v, want too large: %t", err, want)
	case is && (tooLarge.Limit != limit || tooLarge.Declared != declared):
		t.Errorf("err = %+v, want limit %d, declared %d", tooLarge, limit, declared)
	}
}

func TestADeclaredLengthOverTheLimitIsRefusedBeforeAByteIsRead(t *testing.T) { // R52
	unread := iotest.ErrReader(errors.New("was read"))
	r := post(unread)
	r.ContentLength = 9
	l := &bodylimit.Limiter{Max: 8}
	_, err := l.Body(httptest.NewRecorder(), r)
	wantTooLarge(t, err, true, 8, 9)
	if got, want := err.Error(), "bodylimit: body of 9 bytes is over the limit of 8 bytes"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}

func TestTheZeroLimiterAcceptsTheEmptyBodyOnly(t *testing.T) {
	var l bodylimit.Limiter
	body, err := l.Body(httptest.NewRecorder(), post(undeclared("")))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(body); len(got) != 0 || err != nil {
		t.Errorf("the empty body: %q, %v", got, err)
	}
	body, err = l.Body(httptest.NewRecorder(), post(undeclared("x")))
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(body)
	wantTooLarge(t, err, true, 0, -1)
}

func TestDecodeJSONTellsTooLargeFromMalformed(t *testing.T) { // R54
	const limit = 16
	for _, c := range []struct {
		name, body string
		status     int
		text       string
	}{
		{"value", `{"name":"abc"}`, 200, ""},
		{"exactly_the_limit", `{"name":"abcde"}`, 200, ""},
		{"spaces_to_the_limit", "{\"name\":\"ab\"} \n\t", 200, ""},
		{"one_more", `{"name":"abcdef"}`, 413, "bodylimit: body is over the limit of 16 bytes"},
		{"cut_off", `{"name":"abcdefghijklmnop"}`, 413, "bodylimit: body is over the limit of 16 bytes"},
		{"value_then_flood_of_spaces", `{"name":"a"}` + strings.Repeat(" ", 1000), 413, "bodylimit: body is over the limit of 16 bytes"},
		{"garbage_then_flood", strings.Repeat("}", 1000), 413, "bodylimit: body is over the limit of 16 bytes"},
		{"garbage", `}`, 400, "bodylimit: malformed body: invalid character '}' looking for beginning of value"},
		{"empty", ``, 400, "bodylimit: malformed body: no JSON value"},
		{"truncated", `{"name":"`, 400, "bodylimit: malformed body: unexpected EOF"},
		{"wrong_type", `[1]`, 400, "bodylimit: malformed body: json: cannot unmarshal array into Go value of type bodylimit_test.named"},
		{"two_values", `{"name":"a"}{}`, 400, "bodylimit: malformed body: data after the JSON value"},
		{"garbage_after", `{"name":"a"} }`, 400, "bodylimit: malformed body: data after the JSON value"},
		{"nul_after", "{\"name\":\"a\"}\x00", 400, "bodylimit: malformed body: data after the JSON value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &bodylimit.Limiter{Max: limit}
			w, r := httptest.NewRecorder(), post(undeclared(c.body))
			v, err := bodylimit.DecodeJSON[named](l, w, r)
			if c.status == 200 {
				if err != nil || !strings.HasPrefix(v.Name, "ab") {
					t.Errorf("decoded %+v, %v", v, err)
				}
				return
			}
			if v != (named{}) {
				t.Errorf("a refused body gave %+v", v)
			}
			if err == nil || err.Error() != c.text {
				t.Errorf("err = %v, want %s", err, c.text)
			}
			if !l.Refuse(w, r, err) {
				t.Fatalf("%v is not refused", err)
			}
			refused(t, w.Result(), c.status, codes[c.status], c.text)
		})
	}
}

var codes = map[int]string{413: "payload_too_large", 400: "bad_request", 415: "unsupported_encoding"}

func gzipped(s string) string {
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	_, _ = zw.Write([]byte(s))
	_ = zw.Close()
	return buf.String()
}

func encoded(body, encoding string) *http.Request {
	r := post(undeclared(body))
	r.Header.Set("Content-Encoding", encoding)
	return r
}

func TestTheLimitHoldsForDecodedBytes(t *testing.T) { // R94
	const limit = 1000
	l := &bodylimit.Limiter{Max: limit, Gunzip: true}
	for _, n := range []int{limit, limit + 1} {
		body, err := l.Body(httptest.NewRecorder(), encoded(gzipped(strings.Repeat("x", n)), "gzip"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		if len(got) != limit {
			t.Errorf("read %d bytes of %d, want %d", len(got), n, limit)
		}
		wantTooLarge(t, err, n > limit, limit, -1)
	}
}
