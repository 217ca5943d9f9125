package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	opts, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		exit(2, err)
	}
	if err := serve(opts); err != nil {
		exit(1, err)
	}
}

func exit(status int, err error) {
	fmt.Fprintln(os.Stderr, "server:", err)
	os.Exit(status)
}

// serve runs until a signal arrives or the parent ends.
func serve(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.withParent {
		ctx = untilEOF(ctx, os.Stdin)
	}
	return run(ctx, o, os.Stdout, os.Stderr)
}

// options are the settings from the command line.
type options struct {
	db         string
	port       int
	uiPort     int
	headless   bool
	namespace  string
	attributes attributeFlag
	settings   settingsFlag
	withParent bool
}

func parseFlags(args []string, usage io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("server", flag.ContinueOnError)
	fs.SetOutput(usage)
	fs.StringVar(&o.db, "db", "",
		"SQLite `file` that holds everything, created if it is missing (default: in memory, lost at the end)")
	fs.IntVar(&o.port, "port", 7233, "port of the gRPC frontend; 0 takes a free one")
	fs.IntVar(&o.uiPort, "ui-port", 8233, "port of the UI; 0 takes a free one")
	fs.BoolVar(&o.headless, "headless", false, "no UI")
	fs.StringVar(&o.namespace, "namespace", "default", "namespace to create")
	fs.Var(&o.attributes, "search-attribute", "search attribute of the namespace, as `Name=Type`; may be repeated")
	fs.Var(&o.settings, "dynamic-config-value",
		"setting of the server, as `KEY=VALUE`, the value in JSON; may be repeated")
	fs.BoolVar(&o.withParent, "with-parent", false,
		"stop when stdin ends, so that the server never outlives the process that started it")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: only flags are known", fs.Arg(0))
	}
	if strings.ContainsAny(o.db, "?#%") {
		return o, fmt.Errorf("--db %s: a path with ?, # or %% cannot be opened as an SQLite address; choose another", o.db)
	}
	return o, nil
}

// untilEOF returns ctx, canceled when r ends: the kernel closes the other end of a pipe however its
// holder dies.
func untilEOF(ctx context.Context, r io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, r)
	}()
	return ctx
}
