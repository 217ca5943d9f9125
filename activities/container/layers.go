package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// layers is the backend of overlays: a checkpoint is a list of layers over the root of the running container, which keeps
// its id, its first process and all else after a rollback. It needs a sidecar on the engine, and a container whose own
// processes do not use its files.
//
// Its fence is the door: a folder that a helper puts into the container for the step that is under way, and that each of
// the step's commands starts in. After a rollback there is another door, or none, and the engine starts nothing in the old
// one; what had started is ended before the rollback returns.
type layers struct {
	// engine is the plain one: nothing that is asked of it looks for layers.
	engine engine.Client
	// commits knows which container took the place of which, and makes them anew.
	commits *commits
	home    home
	helper  *helper.Client
}

// layersCheckpoint is where a checkpoint of this backend is: in the book of its container, under the token.
const layersCheckpoint = "layers"

// ask asks the helper about a container of the engine.
func (l *layers) ask(ctx context.Context, r helper.Request) (helper.Answer, error) {
	now, err := l.engine.ContainerInspect(ctx, r.Container)
	if err != nil {
		return helper.Answer{}, engine.Explain("looking at the container", err)
	}
	return l.askOf(ctx, now, r)
}

func (l *layers) askOf(ctx context.Context, now container.InspectResponse, r helper.Request) (helper.Answer, error) {
	if r.PID = 0; now.State.Running {
		r.PID = now.State.Pid
	}
	if r.Op == helper.Take {
		if err := l.home.begin(r.Container); err != nil {
			return helper.Answer{}, err
		}
	}
	a, err := l.helper.Ask(ctx, r)
	return a, tell(nameOf(now), err)
}

// tell makes a helper's failure an error of an action.
func tell(name string, err error) error {
	if err == nil {
		return nil
	}
	kind := activities.ActionFailed
	switch helper.KindOf(err) {
	case helper.Foreign:
		kind = activities.Refused
	case helper.Fenced:
		kind = activities.Fenced
	case helper.Unknown, helper.Damaged:
		kind = activities.DamagedRecord
	case helper.Unfit, helper.InUse, helper.Busy, helper.Full, helper.Failed: // it may mend
	}
	return &failed{activities.Errorf(kind, "the layers over container %s: %v", name, err), err}
}

// failed is an error of an action that still knows the helper's own.
type failed struct {
	error
	cause error
}

func (f *failed) Unwrap() []error { return []error{f.error, f.cause} }

func (l *layers) take(ctx context.Context, token, id string) (string, error) {
	_, err := l.ask(ctx, helper.Request{Op: helper.Take, Container: id, Name: token})
	return layersCheckpoint, err
}

func (l *layers) begun(ctx context.Context, to rollback) (bool, error) {
	a, err := l.ask(ctx, helper.Request{Op: helper.Restored, Container: to.Container.ID, Name: markOf(to), Turn: turnOf(to)})
	if engine.IsNotFound(err) { // rollback says what has become of it
		return false, nil
	}
	return a.Yes, err
}

// markOf is the checkpoint that a rollback brings back: a redo brings back what the rollback of another token has kept.
func markOf(r rollback) string {
	if r.Turn == redoTurn {
		return r.Checkpoint
	}
	return r.Token
}

// turnOf tells the redos of one token from each other, all of which bring back the same.
func turnOf(r rollback) string {
	if r.Turn == redoTurn {
		return r.Turn + " " + r.Token
	}
	return r.Turn
}

// rollback shows the layers of the checkpoint, and none above. The container stays.
func (l *layers) rollback(ctx context.Context, r rollback) (restored, error) {
	now, err := l.present(ctx, r)
	if err != nil {
		return restored{}, err
	}
	if r.Exactly {
		if err := l.compare(ctx, now, r); err != nil {
			return restored{}, err
		}
	}
	if now.State.Paused { // what is frozen does not end
		if err := l.engine.ContainerUnpause(ctx, now.ID); err != nil && !engine.IsConflict(err) {
			return restored{}, engine.Explain("unpausing the container", err)
		}
	}
	ask := helper.Request{Op: helper.Restore, Container: now.ID, Name: markOf(r), Turn: turnOf(r)}
	if r.Turn != undoTurn {
		ask.Door = r.Token
	}
	if r.Keep != "" {
		ask.Keep = keptMark(r.Token, r.Keep)
	}
	if _, err := l.askOf(ctx, now, ask); err != nil {
		return restored{}, err
	}
	point.Reach("container.exec:layers-restored")
	if err := l.start(ctx, now, r.Stopped); err != nil {
		return restored{}, err
	}
	back := restored{ID: now.ID, Stopped: r.Stopped, Stays: true}
	if r.Turn == redoTurn {
		return back, nil
	}
	done, err := l.ask(ctx, helper.Request{Op: helper.Restored, Container: now.ID, Name: r.Token, Turn: r.Turn})
	if err != nil {
		return restored{}, err
	}
	back.Ended = done.Busy
	seen, err := l.look(ctx, r.Token, now.ID, r.Ignore)
	back.Differs = manifest{}.diff(seen)
	return back, err
}

// present is the container that a rollback is in. Its layers lie over its own filesystem and are nothing without it.
func (l *layers) present(ctx context.Context, r rollback) (container.InspectResponse, error) {
	last, err := l.commits.lineage.walk(ctx, r.Container.ID, l.commits.settle, r.fencedBy)
	if err != nil {
		return container.InspectResponse{}, err
	}
	if r.fencedBy(last) {
		return container.InspectResponse{}, activities.Errorf(activities.Fenced, "the step has been taken back: this call came too late")
	}
	now, err := l.engine.ContainerInspect(ctx, r.Container.ID)
	if engine.IsNotFound(err) {
		return now, activities.Errorf(activities.DamagedRecord,
			"container %s is gone, and with it what the layers of the checkpoint lay over; a reset makes it anew from its image", nameOf(r.Container))
	}
	if err == nil && isPutAside(now) {
		return now, activities.Errorf(activities.Refused,
			"container %s was put aside when another took its place: undo that step first", nameOf(r.Container))
	}
	return now, engine.Explain("looking at the container", err)
}

// compare refuses to bring back what is not as it was kept. What was kept is told by how it differs from the checkpoint of
// the step that was rolled back.
func (l *layers) compare(ctx context.Context, now container.InspectResponse, r rollback) error {
	of, _, _ := strings.Cut(strings.TrimPrefix(r.Checkpoint, keptMarks), ":")
	a, err := l.askOf(ctx, now, helper.Request{Op: helper.Changes, Container: now.ID, Name: of, Keep: r.Checkpoint, Skip: r.Ignore})
	if err != nil {
		return err
	}
	seen := layered(a.Changes, r.Ignore)
	if !now.State.Running {
		seen.adopt(r.Before)
	}
	if differs := r.Before.diff(seen); len(differs) > 0 {
		return activities.Errorf(activities.DamagedRecord, "%d paths of what was kept of %s are not as they were: %s",
			len(differs), nameOf(r.Container), strings.Join(few(differs), "; "))
	}
	return nil
}

// startLimit bounds how long a container may need until its first process is one that lets layers stand.
const startLimit = 10 * time.Second

// start starts the container where it does not run and is not to stay so, and has its layers shown again.
func (l *layers) start(ctx context.Context, was container.InspectResponse, stopped bool) error {
	if was.State.Running || stopped {
		return nil
	}
	if err := l.engine.ContainerStart(ctx, was.ID, container.StartOptions{}); err != nil {
		return engine.Explain("starting container "+nameOf(was), err)
	}
	return l.settle(ctx, was.ID)
}

// settle has the layers shown that a restart has taken away.
func (l *layers) settle(ctx context.Context, id string) error {
	return l.patiently(ctx, helper.Request{Op: helper.Stacked, Container: id}, time.Now().Add(startLimit))
}

// patiently asks again until then: where a container has been started, its first process may prepare itself for a moment,
// and use its files while it does.
func (l *layers) patiently(ctx context.Context, r helper.Request, until time.Time) error {
	for {
		_, err := l.ask(ctx, r)
		if helper.KindOf(err) != helper.Unfit || time.Now().After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// prepared is when a container must be ready for layers, if it is to be at all.
func prepared(now container.InspectResponse) time.Time {
	began, _ := time.Parse(time.RFC3339Nano, now.State.StartedAt) // else it has long been
	return began.Add(startLimit)
}

// drop does nothing: a checkpoint that nothing was written over costs nothing, and one that a rollback has brought back is
// what the container is compared with until the record is released.
func (*layers) drop(context.Context, string, string) error { return nil }

// What a rollback has kept is a checkpoint too, named by the token and by the digest of what is in it.
const keptMarks = "kept:"

func keptMark(token string, of activities.Digest) string { return keptMarks + token + ":" + string(of) }

func (l *layers) kept(ctx context.Context, of rollback) (*kept, error) {
	a, err := l.ask(ctx, helper.Request{Op: helper.Named, Container: of.Container.ID, Name: keptMark(of.Token, "")})
	if engine.IsNotFound(err) {
		return nil, activities.Errorf(activities.Refused, "container %s has been removed since the rollback", nameOf(of.Container))
	}
	if err != nil || len(a.IDs) == 0 {
		return nil, err
	}
	return &kept{Image: a.IDs[0], After: activities.Digest(strings.TrimPrefix(a.IDs[0], keptMark(of.Token, "")))}, nil
}

// release lets go of a token's checkpoints, wherever they are. From a container that nobody has a checkpoint of any more what
// an unwound task has left standing is taken off.
func (l *layers) release(ctx context.Context, token string) error {
	known, err := l.home.containers()
	if err != nil {
		return err
	}
	for _, id := range known {
		stands, err := l.home.stands(ctx, id)
		if err != nil {
			return err
		}
		if !stands {
			continue
		}
		if err := l.releaseIn(ctx, id, token); err != nil {
			return err
		}
	}
	return nil
}

func (l *layers) releaseIn(ctx context.Context, id, token string) error {
	now, err := l.engine.ContainerInspect(ctx, id)
	if engine.IsNotFound(err) {
		if _, err := l.helper.Ask(ctx, helper.Request{Op: helper.Forget, Container: id}); err != nil {
			return tell(id[:12], err)
		}
		return l.home.end(id)
	}
	if err != nil {
		return engine.Explain("looking at the container", err)
	}
	all, err := l.helper.Ask(ctx, helper.Request{Op: helper.Named, Container: id}) // without its process: nothing but its book is read
	if err != nil {
		return tell(nameOf(now), err)
	}
	mine := slices.DeleteFunc(slices.Clone(all.IDs), func(mark string) bool {
		return mark != token && !strings.HasPrefix(mark, keptMark(token, ""))
	})
	if len(mine) > 0 {
		if _, err := l.helper.Ask(ctx, helper.Request{Op: helper.Drop, Container: id, Names: mine}); err != nil {
			return tell(nameOf(now), err)
		}
	}
	if len(mine) < len(all.IDs) || !now.State.Running || now.State.Paused {
		return nil
	}
	_, err = l.commitIn(ctx, id, nil)
	if k := helper.KindOf(err); k == helper.InUse || k == helper.Unfit {
		return nil // at the release of another
	}
	return err
}

// commitIn makes what the steps of tokens have done in a container a part of its own filesystem. Off says that no layers
// stand over that any more.
func (l *layers) commitIn(ctx context.Context, id string, tokens []string) (off bool, err error) {
	a, err := l.ask(ctx, helper.Request{Op: helper.Commit, Container: id, Names: tokens})
	return a.Yes, err
}

// through makes a command one that starts in the door of a step.
func (l *layers) through(ctx context.Context, token string, in container.InspectResponse, c command) (command, error) {
	if c.Workdir == "" {
		c.Workdir = in.Config.WorkingDir
	}
	if c.Workdir == "" {
		c.Workdir = "/"
	}
	a, err := l.ask(ctx, helper.Request{Op: helper.Enter, Container: in.ID, Name: token, Workdir: c.Workdir})
	if err != nil {
		return c, fmt.Errorf("entering the container: %w", err)
	}
	c.Workdir = a.Path
	return c, nil
}

// look tells a container by how it differs from the token's checkpoint.
func (l *layers) look(ctx context.Context, token, id string, ignore []string) (manifest, error) {
	a, err := l.ask(ctx, helper.Request{Op: helper.Changes, Container: id, Name: token, Skip: ignore})
	return layered(a.Changes, ignore), err
}

// beside tells by digests what a container has in the engine's own mounts, which no rollback of layers takes back. Of one that
// does not run nothing is told.
func (l *layers) beside(ctx context.Context, id string) (map[string]string, error) {
	a, err := l.ask(ctx, helper.Request{Op: helper.Beside, Container: id})
	switch {
	case helper.KindOf(err) == helper.Unfit:
		return nil, nil //nolint:nilnil // it is not running
	case err != nil:
		return nil, err
	}
	seen := map[string]string{}
	for _, c := range a.Changes {
		line, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(line)
		seen[c.Path] = hex.EncodeToString(sum[:8])
	}
	return seen, nil
}

var _ checkpoints = (*layers)(nil)
