// Command build is the session of an agent that builds software: a real C project in a Debian
// container.
//
//	go run ./examples/build
//
// Its first attempt fails, because a library is missing, and is undone without a trace; the second
// one installs the library and succeeds. The root filesystem is made once, as root, by mmdebstrap
// from Debian's archive.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"go.temporal.io/sdk/log"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/worker/host"
)

func main() {
	host.Hooks()
	if err := serveAndBuild(); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

func serveAndBuild() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	server, err := devserver.Start(ctx, devserver.Options{Log: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	options := server.ClientOptions()
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	s, err := openSession(ctx, options, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return errors.Join(s.try(ctx, firstTry, os.Stdout), s.try(ctx, secondTry, os.Stdout))
}
