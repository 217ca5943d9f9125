package container

import (
	"context"
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/container/volumes"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// copies are those of a step's volumes.
func (x *execAction) copies(t *journal.Token, rec stepRecord) volumes.Copies {
	return volumes.Copies{Engine: x.engine, Token: t, Volumes: rec.Volumes}
}

// rollBack rolls the container back, and with it the volumes that the step keeps copies of: while
// nothing of what the rollback has started runs. Seen is what may be overwritten of them; nil: all.
func (x *execAction) rollBack(ctx context.Context, t *journal.Token, rec stepRecord, to checkpoint.Rollback,
	seen manifest.Manifest) (checkpoint.Restoration, error) {
	if len(rec.Volumes) == 0 {
		return x.backends.Of(rec.Backend).RollBack(ctx, to)
	}
	after := pause{Stopped: to.Stopped}
	if _, err := t.Create(volumes.Document(to.Turn)+"-begun", &after); err != nil {
		return checkpoint.Restoration{}, err
	}
	to.Stopped, to.Resumes = true, !after.Stopped
	back, err := x.backends.Of(rec.Backend).RollBack(ctx, to)
	if err != nil {
		return back, err
	}
	differs, err := x.copies(t, rec).Restore(ctx, to.Turn, back.ID, seen)
	if err != nil {
		return back, err
	}
	back.Differs = append(back.Differs, differs...)
	if back.Stopped = after.Stopped; back.Stopped {
		return back, nil
	}
	back.Uncovered, back.Runs = nil, false // it may have run again since
	err = x.startAgain(ctx, t, back.ID)
	if back.Unstartable = engine.WhyUnstartable(err); err != nil && back.Unstartable == "" {
		return back, err
	}
	return back, nil
}

// pause is the document which says how the container is to be when a turn is over: meanwhile it is
// stopped.
type pause struct {
	Stopped bool `json:"stopped,omitempty"`
}

// startAgain starts a container that a rollback has left stopped for its volumes.
func (x *execAction) startAgain(ctx context.Context, t *journal.Token, id string) error {
	var undone activities.Undone
	if over, err := t.Read(journal.Outcome, &undone); over || err != nil { // it is others' business now
		return err
	}
	now, err := x.engine.ContainerInspect(ctx, id)
	if engine.IsNotFound(err) || err == nil && now.State.Running {
		return nil
	}
	if err != nil {
		return engine.Explain("looking at the container after the rollback", err)
	}
	return engine.Explain("starting container "+engine.NameOf(now),
		x.engine.ContainerStart(ctx, id, container.StartOptions{}))
}

// mayOverwrite is what the step has left in volumes, which its undo may overwrite without being
// told to, or what a person has decided to overwrite; nil where the step has not come to its end:
// then nobody can tell its doings from others'.
func (x *execAction) mayOverwrite(ctx context.Context, t *journal.Token, rec stepRecord,
	d activities.Decision) (manifest.Manifest, error) {
	done, ended, err := target.ReadCompletion(t)
	if err != nil || !ended || done.After == "" || len(rec.Volumes) == 0 {
		return nil, err
	}
	after, err := manifest.Load(t.Dir(), target.AfterFile, done.After)
	if err != nil || d.Force == "" {
		return after, err
	}
	now := manifest.Manifest{}
	if err := volumes.AddTo(ctx, now, rec.Volumes); err != nil {
		return nil, err
	}
	if d.Force == volumeDrift(now) {
		return now, nil
	}
	return after, nil
}

func volumeDrift(now manifest.Manifest) activities.Digest {
	return activities.DigestOf([]byte("volumes"), []byte(now.Volumes().Digest()))
}

// driftOfVolumes is what somebody has changed in volumes since the undo began, whose container is
// rolled back already.
func (x *execAction) driftOfVolumes(ctx context.Context, t *journal.Token, rec stepRecord,
	before manifest.Manifest) (activities.Undone, error) {
	after, err := x.mayOverwrite(ctx, t, rec, activities.Decision{})
	if err != nil {
		return activities.Undone{}, err
	}
	now := manifest.Manifest{}
	if err := volumes.AddTo(ctx, now, rec.Volumes); err != nil {
		return activities.Undone{}, err
	}
	backAlready := now.Volumes()
	for at, n := range before.Volumes() {
		if backAlready[at] == n {
			delete(backAlready, at)
			delete(after, at)
		}
	}
	lines := after.Volumes().Diff(backAlready)
	return activities.Undone{
		Outcome: activities.Drifted,
		Observed: fmt.Sprintf("neither as the step left them nor as before it: %s in volumes of %s",
			activities.CountOf(len(lines), "path"), engine.NameOf(rec.Container)),
		Drift: &activities.Drift{Digest: volumeDrift(now), Diff: strings.Join(lines, "\n") + "\n"},
	}, nil
}

// costs says what the copies take that volumes: snapshot asks for.
func (p params) costs(copies []volumes.Volume) (all []string) {
	if p.Volumes != "" && len(copies) == 0 {
		return []string{"the container has no volume that it may write to: there is nothing to keep a copy of"}
	}
	for _, v := range copies {
		all = append(all, v.Cost())
	}
	return all
}
