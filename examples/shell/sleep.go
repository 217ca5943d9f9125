package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"mvdan.cc/sh/v3/interp"
)

// sleepHandler adds the one program that a container's PID 1 needs and coreutils lacks.
func sleepHandler(next interp.ExecHandlerFunc) interp.ExecHandlerFunc {
	return func(ctx context.Context, args []string) error {
		if args[0] != "sleep" {
			return next(ctx, args)
		}
		how, err := duration(args[1:])
		if err != nil {
			fmt.Fprintln(interp.HandlerCtx(ctx).Stderr, "sleep:", err)
			return interp.ExitStatus(1)
		}
		return sleep(ctx, how)
	}
}

// duration reads SECONDS, a Go duration such as 1.5s or 2m, or infinity, which is 0.
func duration(args []string) (time.Duration, error) {
	if len(args) != 1 {
		return 0, fmt.Errorf("say how long: SECONDS, 1m30s or infinity")
	}
	if args[0] == "infinity" {
		return 0, nil
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		seconds, err := strconv.ParseFloat(args[0], 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no time; say SECONDS, 1m30s or infinity", args[0])
		}
		d = time.Duration(seconds * float64(time.Second))
	}
	return max(d, 1), nil
}

// sleep waits for d, or for ever if d is 0. As PID 1 it gets the orphans of the container, which it
// reaps, and it handles SIGTERM, which the kernel does not deliver to a PID 1 without a handler.
func sleep(ctx context.Context, d time.Duration) error {
	signals := make(chan os.Signal, 16)
	if os.Getpid() == 1 {
		signal.Notify(signals, unix.SIGCHLD, unix.SIGTERM, unix.SIGINT)
		defer signal.Stop(signals)
	}
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return nil
		case s := <-signals:
			if s != unix.SIGCHLD {
				return interp.ExitStatus(128 + uint8(s.(unix.Signal))) //nolint:gosec // signals end at 64
			}
			for reapOne() {
			}
		}
	}
}

func reapOne() bool {
	pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
	return err == nil && pid > 0
}
