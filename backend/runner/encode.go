package runner

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// Streams of a process, as they are numbered here and named on the wire.
const (
	stdout = iota
	stderr
)

func eventName(stream int) string {
	if stream == stderr {
		return wire.EventStderr
	}
	return wire.EventStdout
}

// incomplete returns how many bytes at the end of b begin a UTF-8 sequence that is not finished: 0 to 3.
func incomplete(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if !utf8.RuneStart(tail[0]) {
			continue
		}
		if utf8.FullRune(tail) {
			return 0
		}
		return n
	}
	return 0
}

// appendLine appends v as one line of JSON.
func appendLine(dst []byte, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("runner: event that is no JSON: " + err.Error()) // the events are this module's own types
	}
	return append(append(dst, b...), '\n')
}

// appendOutput appends the line of a wire.Output, which is written by hand because all bytes of all processes pass here.
func appendOutput(dst []byte, stream int, data []byte, offset int64) []byte {
	dst = append(dst, `{"event":"`...)
	dst = append(dst, eventName(stream)...)
	dst = append(dst, `","data":"`...)
	if utf8.Valid(data) {
		dst = append(appendEscaped(dst, data), '"')
	} else {
		dst = append(appendReplaced(dst, data), `","data_b64":"`...)
		dst = append(base64.StdEncoding.AppendEncode(dst, data), '"')
	}
	dst = append(dst, `,"offset":`...)
	return append(strconv.AppendInt(dst, offset, 10), "}\n"...)
}

// appendReplaced appends data with U+FFFD for each byte that is not UTF-8.
func appendReplaced(dst, data []byte) []byte {
	valid := 0 // where the bytes that were seen to be UTF-8 begin
	for i := 0; i < len(data); {
		if data[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(appendEscaped(dst, data[valid:i]), "\uFFFD"...)
			valid = i + 1
		}
		i += size
	}
	return appendEscaped(dst, data[valid:])
}

// appendEscaped appends data, which is UTF-8, as the inside of a JSON string. Eight bytes are looked at in one step, since most text
// needs no escape.
func appendEscaped(dst, data []byte) []byte {
	for len(data) > 0 {
		n := plain(data)
		dst = append(dst, data[:n]...)
		data = data[n:]
		for len(data) > 0 && escapes(data[0]) {
			dst = appendEscape(dst, data[0])
			data = data[1:]
		}
	}
	return dst
}

func escapes(c byte) bool { return c < ' ' || c == '"' || c == '\\' }

// plain returns how many bytes at the beginning of data need no escape.
func plain(data []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(data); i += 8 {
		w := binary.LittleEndian.Uint64(data[i:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		// The high bit of a byte is set if it is below ' ', is zero after the xor, or was set before; the last is masked out. A borrow can only
		// come from a byte that needs an escape itself, so that the word as a whole is never taken for plain when it is not.
		if ((w-ones*' ')|(quote-ones)|(slash-ones))&^w&highs != 0 {
			break
		}
	}
	for i < len(data) && !escapes(data[i]) {
		i++
	}
	return i
}

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	default:
		return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
	}
}
