package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/command"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// maxRuns bounds how often a command is run whose result is lost each time.
const maxRuns = 5

func attemptDoc(n int) string { return fmt.Sprintf("attempt-%d", n) }

// run is one that has come to its end.
type run struct {
	command.Ending

	number int
	// in is the id of its container.
	in string
}

// runCommand brings the command to its end: it waits for a run that is under way, starts one where
// none is, and where a result is lost for good rolls back and starts another.
func (r *execution) runCommand(ctx context.Context) (run, error) {
	for n := 1; ; n++ {
		in, err := r.containerOf(ctx, n)
		if err != nil {
			return run{}, err
		}
		end, over, err := r.awaitAttempt(ctx, n, in)
		if err != nil || over {
			return run{end, n, in}, err
		}
		if !r.params.mayRerun() {
			return run{}, activities.Errorf(activities.UnknownOutcome,
				"the result of the command in container %s is lost: its supervisor is gone; it may have run, and rerun: false "+
					"forbids another run", engine.NameOf(r.rec.Container))
		}
		if n == maxRuns {
			return run{}, activities.Errorf(activities.Unsuccessful,
				"the result of the command in container %s has been lost %s, and it is not run again: something ends its "+
					"supervisor, or leaves no room in %s",
				engine.NameOf(r.rec.Container), activities.CountOf(n, "time"), r.store.Journal.Dir())
		}
	}
}

// containerOf is the container that run n happens in: the step's own, or that of a rollback after
// the run before.
func (r *execution) containerOf(ctx context.Context, n int) (string, error) {
	if n == 1 {
		return r.rec.Container.ID, nil
	}
	var in attempt
	if found, err := r.token.Read(attemptDoc(n), &in); found || err != nil {
		return in.Container, err
	}
	if err := r.token.CheckOpen(); err != nil {
		return "", err
	}
	to, _, err := rollbackOf(r.token, r.entry.Token, r.rec, attemptDoc(n))
	if err != nil {
		return "", err
	}
	back, err := r.rollBack(ctx, r.token, r.rec, to, nil)
	if err != nil {
		return "", err
	}
	if back.Unstartable != "" {
		return "", activities.Errorf(activities.ActionDenied,
			"the result of the command in container %s is lost, and it cannot run again: as it was before, the container "+
				"cannot be started: %s",
			engine.NameOf(r.rec.Container), back.Unstartable)
	}
	in.Container = back.ID
	point.Reach("container.exec:rolled-back-to-rerun")
	_, err = r.token.Create(attemptDoc(n), &in)
	return in.Container, err
}

// awaitAttempt waits for the end of run n and starts it where it has not begun. It is not over
// where the result is lost.
func (r *execution) awaitAttempt(ctx context.Context, n int, in string) (end command.Ending, over bool, err error) {
	run := command.Attempt{
		Journal: r.store.Journal, Token: r.token, Name: engine.NameOf(r.rec.Container), Container: in, Number: n,
		Host:    r.host,
		Prepare: func(ctx context.Context) (command.Command, error) { return r.prepare(ctx, r.params.toRun()) },
	}
	defer command.Watch(ctx, r.logOf(n))()
	return run.Await(ctx)
}

// rollbackOf is the rollback of a step to its checkpoint. Before is the step's whole manifest: of
// its volumes too.
func rollbackOf(t *journal.Token, token string, rec stepRecord, turn string) (to checkpoint.Rollback,
	before manifest.Manifest, err error) {
	taken, _, err := readTicket(t)
	if err != nil || taken.Holder != forwardHolds || taken.Checkpoint == "" {
		return to, nil,
			errors.Join(err, activities.Errorf(activities.DamagedRecord, "the record of token %s names no checkpoint", token))
	}
	if before, err = manifest.Load(t.Dir(), beforeFile, rec.Before); err != nil {
		return to, nil, err
	}
	nodes, err := changedNodes(t, rec)
	return checkpoint.Rollback{
		Token: token, Turn: turn, Container: rec.Container, Checkpoint: taken.Checkpoint, Before: before.Files(),
		Ignore: rec.Ignore, Nodes: nodes,
	}, before, err
}
