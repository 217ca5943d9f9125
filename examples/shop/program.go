package shop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-62bf7108/unwind/internal/filelock"
	"github.com/seed-62bf7108/unwind/internal/supervisor"
)

// programName is what the program of the starter is called where it is the application.
const programName = "unwind-shop"

// Attend lets a program be the application as well, under another name. Call it first in main and
// in TestMain: it returns at once, except there.
func Attend() {
	supervisor.Dispatch(programName, func() error {
		if len(os.Args) != 2 {
			return fmt.Errorf("usage: %s start|stop|running|serve", programName)
		}
		return installed{filepath.Dir(os.Args[0])}.do(os.Args[1])
	})
}

// installed is the application in its folder.
type installed struct{ folder string }

// What the application has beside its parts, in its folder.
const (
	addressFile = "address"
	dsnFile     = "dsn"
	logFile     = "log"
	pidFile     = "pid"
	// runsFile is locked while it runs, and demoFile while the demo does.
	runsFile = "runs"
	demoFile = "demo"
)

// The exit statuses of the command running.
const (
	statusUnknown = 2
	statusStopped = 3
)

// switchLimit is how long it may take to start or to stop.
const switchLimit = 20 * time.Second

func (a installed) path(name string) string { return filepath.Join(a.folder, name) }

func (a installed) do(command string) error {
	if command == "running" {
		return a.tellRunning()
	}
	ctx, stop := context.WithTimeout(context.Background(), switchLimit)
	defer stop()
	switch command {
	case "start":
		return a.start(ctx)
	case "stop":
		return a.stop(ctx)
	case "serve":
		return a.serve()
	}
	return fmt.Errorf("%s: there is no command %q; there are start, stop, running and serve", programName, command)
}

// tellRunning exits with a status that says whether it runs.
func (a installed) tellRunning() error {
	switch runs, err := filelock.Held(a.path(runsFile)); {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(statusUnknown)
	case !runs:
		os.Exit(statusStopped)
	}
	return nil
}

// start starts a process that goes on, and returns when it answers.
func (a installed) start(ctx context.Context) error {
	if runs, err := filelock.Held(a.path(runsFile)); runs || err != nil {
		return err
	}
	address, err := os.ReadFile(a.path(addressFile))
	if err != nil {
		return err
	}
	log, err := os.Create(a.path(logFile))
	if err != nil {
		return err
	}
	defer log.Close()
	server := exec.Command(a.path(programName), "serve")
	server.Stdout, server.Stderr, server.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true}
	if err := server.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		if conn, err := net.Dial("tcp", string(address)); err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it does not answer at %s: %w", address, context.Cause(ctx))
		case err := <-ended:
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("it does not start: %w: %s", err, strings.TrimSpace(string(said)))
		case <-again.C:
		}
	}
}

// stop returns when the process has ended.
func (a installed) stop(ctx context.Context) error {
	if runs, err := filelock.Held(a.path(runsFile)); !runs || err != nil {
		return err
	}
	text, err := os.ReadFile(a.path(pidFile))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", pidFile, err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	ended, err := filelock.Acquire(ctx, a.path(runsFile))
	if err == nil {
		ended.Release()
	}
	return err
}

// serve serves until it is stopped, or the demo is gone, however that has ended.
func (a installed) serve() error {
	runs, err := filelock.Try(a.path(runsFile))
	if err != nil {
		return err
	}
	defer runs.Release()
	if err := os.WriteFile(a.path(pidFile), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		if gone, err := filelock.Acquire(ctx, a.path(demoFile)); err == nil {
			gone.Release()
			stop()
		}
	}()
	application, err := loadApp(a.folder)
	if err != nil {
		return err
	}
	address, err := os.ReadFile(a.path(addressFile))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", string(address))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: application.handler(), ReadHeaderTimeout: switchLimit}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// What is being answered is answered.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), switchLimit/2)
	defer cancel()
	return server.Shutdown(ending)
}
