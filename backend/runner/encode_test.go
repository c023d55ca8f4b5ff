package runner_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// checkOutput checks everything that is promised of the line of one part of a stream.
func checkOutput(t interface {
	Helper()
	Fatalf(string, ...any)
}, data []byte, offset int64,
) {
	t.Helper()
	line := runner.AppendOutput(nil, 0, data, offset)
	var got wire.Output
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatalf("%q became %q: %v", data, line, err)
	}
	if bytes.IndexByte(line, '\n') != len(line)-1 {
		t.Fatalf("%q became %q, which is not one line", data, line)
	}
	if want := string(bytes.ToValidUTF8(data, nil)); utf8.Valid(data) && (got.Data != want || got.DataB64 != nil) {
		t.Fatalf("%q became data %q, data_b64 %q", data, got.Data, got.DataB64)
	}
	if !utf8.Valid(data) && (!bytes.Equal(got.DataB64, data) || got.Data != string([]rune(string(data)))) {
		t.Fatalf("%q became data %q, data_b64 %q", data, got.Data, got.DataB64)
	}
	if got.Event != wire.EventStdout || got.Offset != offset {
		t.Fatalf("%q at %d became %+v", data, offset, got)
	}
}

func TestOutputIsEncodedWithoutLoss(t *testing.T) {
	for _, data := range []string{
		"", "plain", "a \"quoted\" \\ line\n", "\x00\x01\x1f\x7f\t\r\n", "grüße, 世界 🙂", "12345678\"", "1234567\n12345678",
		"\xff", "ab\xffcd\xfe", "\xe4\xb8", "\xc0\x80", "\xed\xa0\x80", "�", "� and \xef", "\u2028", "        \x1f       ",
	} {
		checkOutput(t, []byte(data), 42)
	}
}

func TestOutputOfAnyBytesIsEncodedWithoutLoss(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.SampledFrom([]string{
			"a", " ", "\"", "\\", "\n", "\x00", "\x1f", "\x7f", "\x80", "\xa0", "\xff", "ü", "世", "🙂", "\xf0\x9f", "\xe4", "plain text",
		})).Draw(t, "parts")
		checkOutput(t, bytes.Join(toBytes(parts), nil), rapid.Int64Min(0).Draw(t, "offset"))
	})
}

func toBytes(parts []string) [][]byte {
	all := make([][]byte, len(parts))
	for i, p := range parts {
		all[i] = []byte(p)
	}
	return all
}

func FuzzOutputIsEncodedWithoutLoss(f *testing.F) {
	f.Add([]byte("text\n"))
	f.Add([]byte{0, 0xff, '"', '\\', 0xe4, 0xb8, 0x96})
	f.Fuzz(func(t *testing.T, data []byte) { checkOutput(t, data, 0) })
}

func TestNoLineIsLongerThanReadersAreTold(t *testing.T) {
	worst := bytes.Repeat([]byte{0}, runner.ReadSize)
	worst[0] = 0xff
	if n := len(runner.AppendOutput(nil, 1, worst, 1<<62)); n > wire.MaxEvent {
		t.Errorf("a line has %d bytes, over the limit of %d", n, wire.MaxEvent)
	}
}

func BenchmarkEncode(b *testing.B) {
	for name, data := range map[string][]byte{
		"text":   bytes.Repeat([]byte("a line of some 32 bytes, or so.\n"), runner.ReadSize/32),
		"utf8":   bytes.Repeat([]byte("grüße 世界 "), runner.ReadSize/17),
		"zeros":  make([]byte, runner.ReadSize),
		"binary": bytes.Repeat([]byte{0x7f, 'E', 0xff, 0}, runner.ReadSize/4),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			var line []byte
			for b.Loop() {
				line = runner.AppendOutput(line[:0], 0, data, 0)
			}
		})
	}
}
