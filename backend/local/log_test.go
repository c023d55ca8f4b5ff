package local_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keepwell-go/keepwell/backend/local"
)

func TestALongLogBeginsAnewWhileItIsWrittenTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	write := func(data []byte) {
		t.Helper()
		if _, err := log.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := local.TrimLog(path); err != nil {
			t.Fatal(err)
		}
	}
	write(bytes.Repeat([]byte("o"), local.MaxLog))
	if raw, _ := os.ReadFile(path); len(raw) != local.MaxLog {
		t.Errorf("a log of %d bytes was made one of %d", local.MaxLog, len(raw))
	}
	write([]byte("last\n"))
	write([]byte("next\n"))
	if raw, err := os.ReadFile(path); string(raw) != "next\n" {
		t.Errorf("the log holds %.20q, %v; want what was written since", raw, err)
	}
	if raw, err := os.ReadFile(path + ".old"); len(raw) != local.MaxLog || !bytes.HasSuffix(raw, []byte("olast\n")) {
		t.Errorf("the old log holds %d bytes, %v; want the newest %d", len(raw), err, local.MaxLog)
	}
	if err := local.TrimLog(path + "-none"); err != nil {
		t.Errorf("of a log that is not there: %v", err)
	}
}

func TestAMessageIsNotLoggedWithoutEnd(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	log := local.Calm(zap.New(core))
	for range 500 {
		log.Error("the same")
	}
	log.Error("another")
	if n := logs.FilterMessage("the same").Len(); n == 0 || n > 100 {
		t.Errorf("it was logged %d times", n)
	}
	if n := logs.FilterMessage("another").Len(); n != 1 {
		t.Errorf("another was logged %d times", n)
	}
}
