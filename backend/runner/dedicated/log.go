package dedicated

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newCore logs JSON lines, since a container's log is read by programs.
func newCore(w io.Writer) zapcore.Core {
	return zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(zapcore.AddSync(w)), zapcore.InfoLevel)
}
