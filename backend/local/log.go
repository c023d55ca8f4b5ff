package local

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// What is asked of a host from inside of a sandbox can make it log. It logs a message so many times a second, then every so many-th
// time, and looks at the size of its log now and then.
const (
	logFirst, logThen = 20, 1000
	trimEvery         = time.Minute
)

// calm bounds how often a second the same message is logged.
func calm(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, logFirst, logThen)
	}))
}

// tend keeps the log of a state directory small until stop is closed.
func (h *host) tend(path string, stop <-chan struct{}) {
	ticks := h.clock.Ticker(trimEvery)
	defer ticks.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticks.C:
			if err := trimLog(path); err != nil {
				h.log.Warn("the log stays long", zap.Error(err))
			}
		}
	}
}

// trimLog moves what a log holds into its .old file when it is long. The file itself stays, since processes have it open to append to it;
// what they write in this moment may be lost.
func trimLog(path string) (err error) {
	log, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it goes elsewhere
	}
	if err != nil {
		return err
	}
	defer log.Close()
	fi, err := log.Stat()
	if err != nil || fi.Size() <= maxLog {
		return err
	}
	old, err := os.OpenFile(path+".old", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(old, io.NewSectionReader(log, max(0, fi.Size()-maxLog), maxLog))
	return errors.Join(err, old.Close(), log.Truncate(0))
}
