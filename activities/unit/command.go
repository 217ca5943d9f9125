package unit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/isolated"
	"github.com/seed-62bf7108/unwind/internal/childenv"
	"github.com/seed-62bf7108/unwind/internal/shortlived"
)

// The exit statuses of a program that says that a unit does not run. With systemd, 1 says that it
// could not be asked.
const (
	statusNo      = 1
	statusStopped = 3
)

// subject is the unit of a step.
type subject struct {
	Unit

	// absent: a container that is not there counts as one that is stopped.
	absent bool
	// pauses: the step pauses or resumes a container, and one that is paused does not run.
	pauses bool
}

// runs asks whether the unit runs. Any other answer than yes and no is an error: what cannot be
// asked is neither.
func (u subject) runs(ctx context.Context) (bool, error) {
	if u.Container != "" {
		b, err := u.openContainer()
		if err != nil {
			return false, err
		}
		return b.runs(ctx)
	}
	err := runCommand(ctx, u.Running)
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return true, nil
	case ended && (exit.ExitCode() == statusStopped || exit.ExitCode() == statusNo && u.Systemd == ""):
		return false, nil
	}
	return false, fmt.Errorf("whether the unit runs is not known: %w", err)
}

// switchTo has the unit start or stop, or go on or pause.
func (u subject) switchTo(ctx context.Context, run bool) error {
	switch {
	case u.Container != "":
		b, err := u.openContainer()
		if err != nil {
			return err
		}
		if u.pauses {
			return b.setPaused(ctx, !run)
		}
		return b.switchTo(ctx, run)
	case run:
		return runCommand(ctx, u.Start)
	}
	return runCommand(ctx, u.Stop)
}

// maxOutput is how much of the end of a command's output an error has.
const maxOutput = 500

// runCommand runs a program of the config. It writes into a file, since what it starts may outlive
// it and keep a pipe open.
func runCommand(ctx context.Context, argv []string) error {
	out, err := os.CreateTemp("", "unwind-unit-")
	if err != nil {
		return err
	}
	defer out.Close()
	if err := os.Remove(out.Name()); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", out, out
	cmd.Env = childenv.List(childenv.Minimal(isolated.Variable))
	if err := cmd.Run(); err != nil {
		said := make([]byte, maxOutput)
		size, _ := out.Seek(0, io.SeekEnd)
		n, _ := out.ReadAt(said, max(0, size-maxOutput))
		if text := strings.TrimSpace(string(said[:n])); text != "" {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, text)
		}
		return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return nil
}

// scene is what a step's checks see: nothing but what programs on the host can see.
type scene struct{}

func (scene) Target() string { return "" }

func (scene) ReadFile(context.Context, string) ([]byte, error) {
	return nil, activities.Errorf(activities.Refused, "a step on a unit has no file; check it by a command")
}

func (scene) Run(ctx context.Context, argv []string) ([]byte, error) {
	return shortlived.Output(ctx, "/", childenv.Minimal(), argv...)
}
