package dockercommit

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/seed-62bf7108/unwind/activities/container/command"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// endScript runs in a container that only its engine can look into, with the shell that it may
// have. It reads environments, whose variables end with a byte that shells leave out.
const endScript = `n=0; while [ $n -lt 50 ]; do again=; for d in /proc/[0-9]*; do
while IFS= read -r l || [ -n "$l" ]; do
case "$l" in *"$LOOK_FOR"*) kill -9 "${d#/proc/}" && again=1 ended=1; break;; esac; l=; done <"$d/environ"
done 2>/dev/null; [ "$again" ] || break; n=$((n+1)); done; [ -z "$ended" ] || exit 33`

const endedSome = 33

// EndAndRead implements [checkpoint.Reader].
func (b *Backend) EndAndRead(ctx context.Context, token, id string, ignore []string) (m manifest.Manifest, ended bool,
	err error) {
	if ended, err = b.endProcesses(ctx, token, id); err != nil {
		return nil, false, err
	}
	m, err = b.ReadManifest(ctx, token, id, ignore)
	return m, ended, err
}

// endProcesses finds nothing in a container without a shell that no helper can look into. A
// rollback ends all that runs in it anyway.
func (b *Backend) endProcesses(ctx context.Context, token, id string) (bool, error) {
	variable := command.TokenVariable + token
	if ended, ok, err := b.engine.EndMarked(ctx, id, variable); ok || err != nil {
		return ended, err
	}
	half := len(variable) / 2 // so that the script does not find itself
	var said bytes.Buffer
	exit, err := command.Run(ctx, b.engine, id, command.Command{
		Argv: []string{"sh", "-c", "LOOK_FOR=$A$B; " + endScript}, User: "0", Workdir: "/",
		Env: []string{"A=" + variable[:half], "B=" + variable[half:]},
	}, &said, io.Discard)
	if errors.Is(err, command.ErrNotRun) {
		return false, nil
	}
	return exit == endedSome, engine.Explain("ending what the step has left running", err)
}
