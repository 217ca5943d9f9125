package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"mvdan.cc/sh/moreinterp/coreutils"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

func main() {
	status, err := runCommand(os.Args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
	}
	os.Exit(status)
}

// runCommand returns the exit status, and an error that has not been printed yet.
func runCommand(args []string) (int, error) {
	name := filepath.Base(args[0])
	if name == "sh" || name == "shell" {
		return runShell(args[1:])
	}
	words := append([]string{name}, args[1:]...)
	for i, w := range words {
		quoted, err := syntax.Quote(w, syntax.LangBash)
		if err != nil {
			return 2, err
		}
		words[i] = quoted
	}
	return interpret(strings.NewReader(strings.Join(words, " ")), name, nil)
}

func runShell(args []string) (int, error) {
	switch {
	case len(args) == 0:
		return interpret(os.Stdin, "sh", nil)
	case args[0] == "-c" && len(args) == 1:
		return 2, errors.New("-c needs a command")
	case args[0] == "-c":
		return interpret(strings.NewReader(args[1]), "sh", args[min(3, len(args)):])
	case strings.HasPrefix(args[0], "-"):
		return 2, fmt.Errorf("unknown flag %s; there is only -c COMMAND", args[0])
	}
	f, err := os.Open(args[0])
	if err != nil {
		return 127, err
	}
	defer f.Close()
	return interpret(f, args[0], args[1:])
}

func interpret(script io.Reader, name string, params []string) (int, error) {
	program, err := syntax.NewParser().Parse(script, name)
	if err != nil {
		return 2, err
	}
	runner, err := interp.New(
		interp.Env(expand.ListEnviron(os.Environ()...)),
		interp.StdIO(os.Stdin, os.Stdout, os.Stderr),
		interp.ExecHandlers(sleepHandler, coreutils.ExecHandler),
		interp.Params(append([]string{"--"}, params...)...),
	)
	if err != nil {
		return 1, err
	}
	err = runner.Run(context.Background(), program)
	if status, ok := errors.AsType[interp.ExitStatus](err); ok {
		return int(status), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}
