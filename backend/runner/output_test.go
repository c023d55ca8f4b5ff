package runner_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/keepwell-go/keepwell/backend/runner"
	"github.com/keepwell-go/keepwell/backend/runner/wire"
)

// collect reads everything that is there for a follower and puts it together; gaps are filled with zeros.
func collect(t *rapid.T, f *runner.Follower, into *[2][]byte, split bool) {
	for {
		line, ok := f.Next()
		if !ok {
			return
		}
		var ev wire.Event
		if err := json.Unmarshal(line, &ev); err != nil {
			t.Fatal(err)
		}
		stream := 0
		if ev.Event == wire.EventStderr || ev.Stream == wire.EventStderr {
			stream = 1
		}
		data := ev.DataB64
		if data == nil {
			data = []byte(ev.Data)
		}
		if ev.Event == wire.EventGap {
			ev.Offset, data = ev.From, make([]byte, ev.To-ev.From)
		}
		if ev.Offset != int64(len(into[stream])) {
			t.Fatalf("%s continues at %d, want %d", ev.Event, ev.Offset, len(into[stream]))
		}
		if !split && ev.DataB64 != nil {
			t.Fatalf("valid text was split: %q", data)
		}
		into[stream] = append(into[stream], data...)
	}
}

func TestAnySplitOfWritesYieldsTheSameBytes(t *testing.T) {
	const text = "aü世🙂\n\x00"
	long := strings.Repeat(text, 70_001/len(text)+2) // the bytes from anywhere in it are those from there in the text, over and over
	rapid.Check(t, func(t *rapid.T) {
		out := runner.NewOutput()
		f := out.Follow([2]int64{})
		var wrote, read [2][]byte
		for range rapid.IntRange(1, 40).Draw(t, "writes") {
			stream := rapid.IntRange(0, 1).Draw(t, "stream")
			n := rapid.SampledFrom([]int{1, 2, 3, 5, 7, 100, 1023, 1024, 1025, 70_001}).Draw(t, "size")
			at := len(wrote[stream])
			wrote[stream] = append(wrote[stream], long[at%len(text):][:n]...)
			out.Append(stream, wrote[stream][at:])
			if rapid.Bool().Draw(t, "read") {
				collect(t, f, &read, false)
			}
		}
		collect(t, f, &read, false)
		for stream := range wrote {
			missing := wrote[stream][len(read[stream]):]
			if !bytes.HasPrefix(wrote[stream], read[stream]) || len(missing) >= utf8.UTFMax || utf8.FullRune(missing) && len(missing) > 0 {
				t.Fatalf("stream %d: read %d of %d bytes, or others", stream, len(read[stream]), len(wrote[stream]))
			}
		}
	})
}

func TestAnyBytesInAnySplitAreReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		out := runner.NewOutput()
		f := out.Follow([2]int64{})
		var read [2][]byte
		var wrote []byte
		for _, part := range rapid.SliceOf(rapid.SliceOfN(rapid.Byte(), 0, 20)).Draw(t, "writes") {
			wrote = append(wrote, part...)
			out.Append(0, part)
			if rapid.Bool().Draw(t, "read") {
				collect(t, f, &read, true)
			}
		}
		collect(t, f, &read, true)
		if !bytes.HasPrefix(wrote, read[0]) || len(wrote)-len(read[0]) >= utf8.UTFMax {
			t.Fatalf("wrote %q, read %q", wrote, read[0])
		}
	})
}

func TestTheNewestMebibyteIsKept(t *testing.T) {
	out := runner.NewOutput()
	block := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	total := 0
	for total < 5<<20 {
		out.Append(1, block)
		total += len(block)
	}
	if held := out.Held(); held < wire.RingSize || held > wire.RingSize+128<<10 {
		t.Errorf("%d bytes are held of %d written; want the newest %d and little more", held, total, wire.RingSize)
	}
	line, _ := out.Follow([2]int64{}).Next()
	var gap wire.Event
	if err := json.Unmarshal(line, &gap); err != nil || gap.Event != wire.EventGap || gap.From != 0 || gap.Stream != wire.EventStderr {
		t.Fatalf("a reader from the beginning was told %s; want a gap", line)
	}
	if missing := int64(total) - gap.To; missing < wire.RingSize {
		t.Errorf("only %d bytes follow the gap", missing)
	}
	f := out.Follow([2]int64{0, int64(total) - 16})
	if line, _ := f.Next(); !bytes.Contains(line, []byte(`"data":"0123456789abcdef"`)) {
		t.Errorf("the last 16 bytes were read as %s", line)
	}
}

func TestASlowFollowerIsSentAGapAfterEightMebibytes(t *testing.T) {
	out := runner.NewOutput()
	slow := out.Follow([2]int64{})
	block := make([]byte, 64<<10)
	for total := 0; total < wire.FollowLag; total += len(block) {
		out.Append(0, block)
	}
	if line, ok := slow.Next(); !ok || !bytes.Contains(line, []byte(`"event":"stdout"`)) {
		t.Fatalf("at %d unread bytes it was told %.60s", wire.FollowLag, line)
	}
	for range 4 {
		out.Append(0, block)
	}
	line, _ := slow.Next()
	var gap wire.Event
	if err := json.Unmarshal(line, &gap); err != nil || gap.Event != wire.EventGap || gap.From != 64<<10 {
		t.Fatalf("past that it was told %.60s; want a gap", line)
	}
	if held := out.Held(); held > wire.FollowLag+128<<10 {
		t.Errorf("%d bytes are held for it", held)
	}
	slow.Leave()
	if held := out.Held(); held > wire.RingSize+128<<10 {
		t.Errorf("%d bytes are held when it has left", held)
	}
}

func TestOffsetsBeyondTheEndAreRefused(t *testing.T) {
	out := runner.NewOutput()
	out.Append(0, []byte("abc"))
	if out.Follow([2]int64{3, 0}) == nil {
		t.Error("the end itself was refused")
	}
	if out.Follow([2]int64{4, 0}) != nil || out.Follow([2]int64{0, 1}) != nil {
		t.Error("an offset that was not written yet was accepted")
	}
}
