package layers

import (
	"context"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
)

// ask asks the helper about a container of the engine. The engine is asked for the container's
// first process only where none is remembered, or the helper finds that what is remembered is not
// that process any more: a container that has been stopped, restarted or removed has another one,
// or none.
func (b *Backend) ask(ctx context.Context, r helper.Request) (helper.Answer, error) {
	if first, ok := b.processes.recall(r.Container); ok {
		r.PID, r.Born = first.pid, first.born
		a, err := b.send(ctx, first.of, r)
		if helper.KindOf(err) != helper.Stale {
			return a, err
		}
		b.processes.forget(r.Container)
	}
	now, err := b.engine.ContainerInspect(ctx, r.Container)
	if err != nil {
		return helper.Answer{}, engine.Explain("looking at the container", err)
	}
	return b.askOf(ctx, now, r)
}

// askOf asks about a container as it has just been inspected.
func (b *Backend) askOf(ctx context.Context, now container.InspectResponse, r helper.Request) (helper.Answer, error) {
	if r.PID, r.Born = 0, ""; now.State.Running {
		r.PID = now.State.Pid
	}
	a, err := b.send(ctx, engine.NameOf(now), r)
	if err == nil && a.Born != "" {
		b.processes.remember(r.Container, firstProcess{r.PID, a.Born, engine.NameOf(now)})
	}
	return a, err
}

// send sends a request about the container with a name, which is for messages.
func (b *Backend) send(ctx context.Context, name string, r helper.Request) (helper.Answer, error) {
	if r.Op == helper.Take {
		if err := b.notes.add(r.Container); err != nil {
			return helper.Answer{}, err
		}
	}
	a, err := b.helper.Ask(ctx, r)
	return a, explain(name, err)
}

// explain makes a helper's failure an error of an action.
func explain(name string, err error) error {
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
	case helper.Unfit, helper.Stale, helper.InUse, helper.Busy, helper.Full, helper.Failed: // it may mend
	}
	return &helperError{activities.Errorf(kind, "the layers over container %s: %v", name, err), err}
}

// helperError is an error of an action that still knows the helper's own.
type helperError struct {
	error
	cause error
}

func (e *helperError) Unwrap() []error { return []error{e.error, e.cause} }

// isOver says whether a container has layers, or checkpoints of them; no where id is a name.
func (b *Backend) isOver(ctx context.Context, id string) (bool, error) {
	if len(id) != 64 {
		return false, nil
	}
	if noted, err := b.notes.has(id); !noted || err != nil {
		return false, err
	}
	a, err := b.helper.Ask(ctx, helper.Request{Op: helper.Kept, Container: id})
	return a.Yes, explain(id[:12], err)
}
