package main

import (
	"io"
	"strings"

	"go.temporal.io/server/common/log"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger writes errors, one line each and without stack traces, until it is silenced.
type logger struct {
	log.Logger
	level zap.AtomicLevel
}

func newLogger(w io.Writer) *logger {
	level := zap.NewAtomicLevelAt(zap.ErrorLevel)
	encoder := zapcore.NewConsoleEncoder(log.DefaultZapEncoderConfig)
	core := sinceHealthy{zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level)}
	return &logger{Logger: log.NewZapLogger(zap.New(core)), level: level}
}

// silence is for the time of stopping, in which every interrupted poll would be logged as an error.
func (l *logger) silence() { l.level.SetLevel(zap.FatalLevel) }

// sinceHealthy drops what the server says of requests that come while it is starting: waitReady
// makes them until one succeeds.
type sinceHealthy struct{ zapcore.Core }

// notHealthy is in the error that such a request gets.
const notHealthy = "Frontend is not healthy yet"

func (c sinceHealthy) With(fields []zapcore.Field) zapcore.Core {
	return sinceHealthy{c.Core.With(fields)}
}

func (c sinceHealthy) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

func (c sinceHealthy) Write(e zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		if err, isError := f.Interface.(error); isError && strings.Contains(err.Error(), notHealthy) {
			return nil
		}
	}
	return c.Core.Write(e, fields)
}
