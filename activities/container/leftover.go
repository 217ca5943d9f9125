package container

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// tokenVariable is in the environment of all that enters a container for a step, and of what that starts there.
const tokenVariable = "UNWIND_TOKEN="

// marked is a command by whose environment the step is found that it belongs to.
func (c command) marked(token string) command {
	c.Env = append(slices.Clip(c.Env), tokenVariable+token)
	return c
}

// endLeft ends what a step has left running in its container: it would go on writing while its undo looks.
func (x *execAction) endLeft(ctx context.Context, rec record, token string) (ended bool, err error) {
	id, err := x.backend.standing(ctx, rec.Container.ID)
	if err != nil {
		return false, err
	}
	now, err := x.engine.ContainerInspect(ctx, id)
	if engine.IsNotFound(err) || err == nil && (isPutAside(now) || !now.State.Running || now.State.Paused) {
		return false, nil
	}
	if err != nil {
		return false, engine.Explain("looking at the container", err)
	}
	return x.keeper(rec).end(ctx, token, id)
}

// lookUndisturbed looks at the container of a step when nothing of the step's goes on writing there.
func (x *execAction) lookUndisturbed(ctx context.Context, t *journal.Token, rec record, token string) (sight, error) {
	ended, err := x.endLeft(ctx, rec, token)
	if err != nil {
		return sight{}, err
	}
	point.Reach("container.exec:left-ended")
	now, err := x.look(ctx, t, rec)
	if err == nil && ended && now.after != nil {
		now.ownSince()
	}
	return now, err
}

func (l *layers) end(ctx context.Context, token, id string) (bool, error) {
	a, err := l.ask(ctx, helper.Request{Op: helper.End, Container: id, Name: tokenVariable + token})
	return a.Yes, err
}

// endScript runs in a container that only its engine can look into, with the shell that it may have. It reads environments,
// whose variables end with a byte that shells leave out.
const endScript = `n=0; while [ $n -lt 50 ]; do again=; for d in /proc/[0-9]*; do
while IFS= read -r l || [ -n "$l" ]; do case "$l" in *"$LOOK_FOR"*) kill -9 "${d#/proc/}" && again=1 ended=1; break;; esac; l=; done <"$d/environ"
done 2>/dev/null; [ "$again" ] || break; n=$((n+1)); done; [ -z "$ended" ] || exit 33`

const endedSome = 33

// end finds nothing in a container without a shell. A rollback ends all that runs in it anyway.
func (c *commits) end(ctx context.Context, token, id string) (bool, error) {
	variable := tokenVariable + token
	half := len(variable) / 2 // so that the script does not find itself
	script := command{
		Argv: []string{"sh", "-c", "LOOK_FOR=$A$B; " + endScript}, User: "0", Workdir: "/",
		Env: []string{"A=" + variable[:half], "B=" + variable[half:]},
	}
	exec, err := enter(ctx, c.engine, id, script)
	var exit int
	if err == nil {
		var said bytes.Buffer
		exit, err = run(ctx, c.engine, exec, &said, io.Discard)
	}
	if errors.Is(err, errNotRun) {
		return false, nil
	}
	return exit == endedSome, engine.Explain("ending what the step has left running", err)
}

// ownSince takes what a step has changed itself, and what is in folders that it has made, as it is now: what it had left
// running has gone on writing there.
func (s *sight) ownSince() {
	own := map[string]bool{}
	for _, line := range s.before.diff(s.after) {
		own[pathOf(line)] = true
	}
	after := manifest{}
	for at, n := range s.after {
		if !s.owns(own, at) {
			after[at] = n
		}
	}
	for at, n := range s.now {
		if s.owns(own, at) {
			after[at] = n
		}
	}
	s.after = after
}

// owns says that the step has changed a path, or made a folder that it is in.
func (s *sight) owns(own map[string]bool, at string) bool {
	if own[at] {
		return true
	}
	for i := strings.LastIndexByte(at, '/'); i > 0; i = strings.LastIndexByte(at[:i], '/') {
		made, there := s.after[at[:i]]
		if _, was := s.before[at[:i]]; own[at[:i]] && there && !was && !made.Over {
			return true
		}
	}
	return false
}

// pathOf is the path in a line of a manifest's diff.
func pathOf(line string) string {
	at := line[len("+ "):]
	if line[0] == '~' {
		at = at[:strings.LastIndex(at, " (")]
	}
	return at
}
