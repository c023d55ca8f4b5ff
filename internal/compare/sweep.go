package main

import (
	"context"
	"errors"
	"io"
	"log"
	"testing"

	"github.com/robfig/cron/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/keepwell-go/keepwell/sweep"
)

func sweepRows() []row {
	return []row{{"sweep skip", "cron SkipIfStillRunning, skips logged", skip, cronSkip, 0.3}}
}

// discarding is a logger that formats and throws away, as the peer's does.
func discarding() *zap.Logger {
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard), zap.InfoLevel))
}

func skip(b *testing.B) {
	started, end := make(chan struct{}), make(chan struct{})
	l := sweep.New(func(context.Context) error { close(started); <-end; return nil }, sweep.Config{Logger: discarding()})
	done := make(chan error, 1)
	go func() { done <- l.TryRun(context.Background()) }()
	<-started
	b.ReportAllocs()
	for b.Loop() {
		if err := l.TryRun(context.Background()); !errors.Is(err, sweep.ErrRunning) {
			b.Fatal(err)
		}
	}
	close(end)
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

func cronSkip(b *testing.B) {
	started, end := make(chan struct{}), make(chan struct{})
	job := cron.SkipIfStillRunning(cron.VerbosePrintfLogger(log.New(io.Discard, "", 0)))(cron.FuncJob(func() { close(started); <-end }))
	done := make(chan struct{})
	go func() { defer close(done); job.Run() }()
	<-started
	b.ReportAllocs()
	for b.Loop() {
		job.Run()
	}
	close(end)
	<-done
}
