package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// Command is what an exec runs.
type Command struct {
	Argv    []string `json:"argv"`
	User    string   `json:"user,omitempty"`
	Workdir string   `json:"workdir,omitempty"`
	Env     []string `json:"env,omitempty"`
}

// TokenVariable is in the environment of all that enters a container for a step, and of what that
// starts there.
const TokenVariable = "UNWIND_TOKEN="

// Marked is the command with the token of its step in its environment, by which its processes are
// found.
func (c Command) Marked(token string) Command {
	c.Env = append(slices.Clip(c.Env), TokenVariable+token)
	return c
}

// ErrNotRun says that the engine has refused to start a command: it has surely not run.
var ErrNotRun = errors.New("the engine refuses to run the command")

// Run runs a command with this process as its only client: its result is lost if this process dies.
// Any error but ErrNotRun leaves open whether the command has run.
func Run(ctx context.Context, e engine.Client, id string, c Command, stdout, stderr io.Writer) (exit int, err error) {
	exec, err := create(ctx, e, id, c)
	if err != nil {
		return 0, err
	}
	return start(ctx, e, exec, stdout, stderr)
}

// create creates an exec; nothing runs yet.
func create(ctx context.Context, e engine.Client, id string, c Command) (exec string, err error) {
	made, err := e.ContainerExecCreate(ctx, id, container.ExecOptions{
		User: c.User, WorkingDir: c.Workdir, Env: c.Env, Cmd: c.Argv, AttachStdout: true, AttachStderr: true,
	})
	if isRefusal(err) {
		err = fmt.Errorf("%w: %w", ErrNotRun, err)
	}
	return made.ID, err
}

// isRefusal says that the engine has answered, and the answer was no.
func isRefusal(err error) bool {
	return engine.IsNotFound(err) || engine.IsConflict(err) || engine.IsInvalid(err)
}

// start starts an exec and copies its output until it ends.
func start(ctx context.Context, e engine.Client, exec string, stdout, stderr io.Writer) (exit int, err error) {
	stream, err := e.ContainerExecAttach(ctx, exec, container.ExecAttachOptions{})
	if err != nil && (isRefusal(err) || strings.Contains(err.Error(), "received 4")) { // the client gives 4xx no type here
		return 0, fmt.Errorf("%w: %w", ErrNotRun, err)
	}
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, stream.Close)() // a read does not know of ctx
	if _, err := stdcopy.StdCopy(stdout, stderr, stream.Reader); err != nil {
		return 0, err
	}
	return exitStatus(ctx, e, exec)
}

// exitStatus waits until the engine has taken note of the end of an exec whose output has ended.
func exitStatus(ctx context.Context, e engine.Client, exec string) (int, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		seen, err := e.ContainerExecInspect(ctx, exec)
		if err != nil {
			return 0, err
		}
		if !seen.Running {
			return seen.ExitCode, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(pause):
		}
	}
}
