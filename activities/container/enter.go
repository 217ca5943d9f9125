package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/seed-62bf7108/unwind/activities/container/engine"
)

// enter creates an exec; nothing runs yet.
func enter(ctx context.Context, e engine.Client, id string, c command) (exec string, err error) {
	made, err := e.ContainerExecCreate(ctx, id, container.ExecOptions{
		User: c.User, WorkingDir: c.Workdir, Env: c.Env, Cmd: c.Argv, AttachStdout: true, AttachStderr: true,
	})
	if refusal(err) {
		err = fmt.Errorf("%w: %w", errNotRun, err)
	}
	return made.ID, err
}

// refusal says that the engine has answered, and the answer was no.
func refusal(err error) bool {
	return engine.IsNotFound(err) || engine.IsConflict(err) || engine.IsInvalid(err)
}

// command is what an exec runs.
type command struct {
	Argv    []string `json:"argv"`
	User    string   `json:"user,omitempty"`
	Workdir string   `json:"workdir,omitempty"`
	Env     []string `json:"env,omitempty"`
}

func (p params) command() command {
	return command{Argv: p.argv(), User: p.User, Workdir: p.Workdir, Env: p.environ()}
}

// errNotRun says that the engine has refused to start a command: it has surely not run.
var errNotRun = errors.New("the engine refuses to run the command")

// run starts an exec and copies its output until it ends. Any error but errNotRun leaves open whether the command has run.
func run(ctx context.Context, e engine.Client, exec string, stdout, stderr io.Writer) (exit int, err error) {
	stream, err := e.ContainerExecAttach(ctx, exec, container.ExecAttachOptions{})
	if err != nil && (refusal(err) || strings.Contains(err.Error(), "received 4")) { // the client gives 4xx no type here
		return 0, fmt.Errorf("%w: %w", errNotRun, err)
	}
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, stream.Close)() // a read does not know of ctx
	if _, err := stdcopy.StdCopy(stdout, stderr, stream.Reader); err != nil {
		return 0, err
	}
	return exitOf(ctx, e, exec)
}

// exitOf waits until the engine has taken note of the end of an exec whose output has ended.
func exitOf(ctx context.Context, e engine.Client, exec string) (int, error) {
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
