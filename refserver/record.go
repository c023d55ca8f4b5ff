package refserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// record is a JSON object of a runner, of which all but the ids is passed on as it came.
type record map[string]json.RawMessage

func readRecord(from io.Reader) (record, error) {
	b, err := io.ReadAll(io.LimitReader(from, maxRecord+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxRecord:
		return nil, fmt.Errorf("its answer has more than %d bytes", maxRecord)
	}
	return parseRecord(b)
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
func (rec record) id() (id string) {
	_ = json.Unmarshal(rec["id"], &id)
	return id
}
