package main

import (
	"io"

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
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level)
	return &logger{Logger: log.NewZapLogger(zap.New(core)), level: level}
}

// silence is for the time of stopping, in which every interrupted poll would be logged as an error.
func (l *logger) silence() { l.level.SetLevel(zap.FatalLevel) }
