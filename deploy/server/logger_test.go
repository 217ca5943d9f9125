package main

import (
	"errors"
	"strings"
	"testing"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
)

func TestTheLogIsOfErrorsOnceTheServerIsHealthy(t *testing.T) {
	said := &strings.Builder{}
	l := newLogger(said)
	for _, each := range []log.Logger{l, log.With(l, tag.NewStringTag("of", "the frontend"))} {
		each.Error("service failures", tag.NewStringTag("operation", "GetSystemInfo"),
			tag.Error(serviceerror.NewUnavailable(notHealthy)))
		each.Warn("a warning", tag.Error(errors.New("it is small")))
	}
	if said.Len() > 0 {
		t.Errorf("it is not quiet: %s", said)
	}
	l.Error("service failures", tag.Error(serviceerror.NewUnavailable("the disk is full")))
	if !strings.Contains(said.String(), "the disk is full") || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("not one line of the error: %q", said)
	}
	l.silence()
	l.Error("service failures", tag.Error(errors.New("a poll was interrupted")))
	if strings.Contains(said.String(), "interrupted") {
		t.Errorf("it is not silent: %s", said)
	}
}
