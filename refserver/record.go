package refserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// record is a JSON object of a runner, of which all but the ids is passed on as it came.
type record map[string]json.RawMessage

// readAnswer reads an answer that is about one process.
func readAnswer(from io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(from, maxRecord+1))
	if err == nil && len(b) > maxRecord {
		err = fmt.Errorf("its answer has more than %d bytes", maxRecord)
	}
	return b, err
}

// readLine reads the first line of a stream.
func readLine(from *bufio.Reader) (line []byte, err error) {
	for {
		part, err := from.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("the first line of its stream: %w", err)
		case len(line) > maxRecord:
			return nil, fmt.Errorf("the first line of its stream has more than %d bytes", maxRecord)
		}
	}
}

func parseRecord(b []byte) (rec record, err error) {
	if err = json.Unmarshal(b, &rec); err == nil && rec == nil {
		err = errors.New("null")
	}
	if err != nil {
		err = fmt.Errorf("its answer is no JSON object: %w", err)
	}
	return rec, err
}

func (rec record) set(name string, v string) {
	rec[name], _ = json.Marshal(v) // a string: it cannot fail
}

func (rec record) says(name string, v bool) bool {
	return bytes.Equal(rec[name], fmt.Append(nil, v))
}

// id returns what the record calls itself, "" if it says nothing of the kind.
func (rec record) id() string { return rec.text("id") }

func (rec record) text(name string) (text string) {
	_ = json.Unmarshal(rec[name], &text)
	return text
}

// rename makes a record about the process that the runner calls guest one about public, also where it says what went wrong.
func (rec record) rename(guest, public string) {
	if rec.id() == guest {
		rec.set("id", public)
	}
	if text := rec.text("error"); text != "" {
		rec.set("error", strings.ReplaceAll(text, guest, public))
	}
}
