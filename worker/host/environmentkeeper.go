package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	steps "github.com/seed-62bf7108/unwind/activities/environment"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// environmentKeeper asks the workflows that have environments, for steps.
type environmentKeeper struct {
	server recovery.Server
	// stored is where this host stores checkpoints.
	stored string
}

// The two check the same.
var _ = [1]struct{}{}[steps.MaxNotes-environment.MaxNotes]

// lookLimit is how long a look at an environment may take.
const lookLimit = 20 * time.Second

// Look implements steps.Keeper.
func (k environmentKeeper) Look(ctx context.Context, name string) (steps.Environment, error) {
	if err := environment.CheckName(name); err != nil {
		return steps.Environment{}, activities.Errorf(activities.Refused, "environment: %v", err)
	}
	if k.server.Client == nil {
		return steps.Environment{}, errors.New("an environment is asked on a server, when the step runs")
	}
	v, err := k.view(ctx, name)
	switch missing := (*serviceerror.NotFound)(nil); {
	case errors.As(err, &missing):
		return k.lookAtStored(name)
	case err != nil:
		return steps.Environment{}, fmt.Errorf("environment %s: %w", name, err)
	case v.Host == "":
		return steps.Environment{}, fmt.Errorf("environment %s has not found its host yet; try again", name)
	}
	return environmentOf(v), nil
}

// view asks for what an environment is now.
func (k environmentKeeper) view(ctx context.Context, name string) (v environment.View, err error) {
	limited, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	answer, err := k.server.Client.QueryWorkflow(limited, environment.WorkflowID(name), "", environment.QueryView)
	if err == nil {
		err = answer.Get(&v)
	}
	return v, err
}

// lookAtStored shows what the host still has of an environment that nobody keeps.
func (k environmentKeeper) lookAtStored(name string) (steps.Environment, error) {
	v := environment.View{Document: environment.Document{Name: name}}
	all, err := readCheckpoints(filepath.Join(k.stored, name))
	for _, s := range all {
		v.Checkpoints = append(v.Checkpoints, s.Checkpoint)
	}
	gone := environmentOf(v)
	gone.Gone = true
	return gone, err
}

// environmentOf is an environment as steps see it.
func environmentOf(v environment.View) steps.Environment {
	e := steps.Environment{Name: v.Document.Name, Host: v.Host, Unit: v.Document.Stops(), Quiesced: v.Document.Quiesced()}
	for _, name := range slices.Sorted(maps.Keys(v.Document.Parts)) {
		p := v.Document.Parts[name]
		e.Parts = append(e.Parts, steps.Part{Name: name, Kind: p.Kind(), Resource: p.Resource(), Memory: p.Memory})
	}
	if v.Doing != nil {
		e.Doing = &steps.Operation{What: v.Doing.What, Task: v.Doing.Task,
			ID: environment.TakenBy(v.Document.Name, v.Doing.Task)}
	}
	for _, c := range v.Checkpoints {
		of := checkpointOf(c)
		of.Untouched = v.Document.Untouched(c)
		for _, p := range c.Parts {
			if v.Document.Has(p) {
				of.Parts = append(of.Parts, steps.Part{Name: p.Name, Kind: p.Kind, Resource: p.Resource,
					Memory: v.Document.Parts[p.Name].Memory})
			}
		}
		e.Checkpoints = append(e.Checkpoints, of)
	}
	return e
}

func checkpointOf(c environment.Checkpoint) steps.Checkpoint {
	return steps.Checkpoint{ID: c.ID, Created: c.Created, Trigger: string(c.Trigger), Notes: c.Notes, Quiesced: c.Quiesced,
		Pinned: c.Pinned, Bytes: c.Bytes}
}

func stepOf(s steps.Step) *environment.Step {
	return &environment.Step{Token: s.Token, Task: s.Task, ID: s.ID}
}

// whoOf is who a task of an environment is for.
func whoOf(s steps.Step) string { return fmt.Sprintf("task %s, step %s", s.Task, s.ID) }

// ask sends an update, and waits for its result. It does not end what it has asked for: sent again,
// the update waits for that.
func (k environmentKeeper) ask(ctx context.Context, name, update string, result any, arguments ...any) error {
	return explainKeeper(name, k.send(ctx, name, update, result, arguments...))
}

// send is ask with the error as it comes.
func (k environmentKeeper) send(ctx context.Context, name, update string, result any, arguments ...any) error {
	handle, err := k.server.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: environment.WorkflowID(name), UpdateName: update, Args: arguments,
		WaitForStage: client.WorkflowUpdateStageAccepted,
	})
	if err == nil {
		err = handle.Get(ctx, result)
	}
	return err
}

// busyRetry is when a step asks again, of an environment that is busy.
const busyRetry = 2 * time.Second

// explainKeeper gives the errors of an environment the types of those of steps.
func explainKeeper(name string, err error) error {
	if _, missing := errors.AsType[*serviceerror.NotFound](err); missing {
		return activities.Errorf(activities.Refused,
			"there is no environment %q; `starter env apply` makes it again, from what its host stores", name)
	}
	refused, is := errors.AsType[*temporal.ApplicationError](err)
	if !is {
		return err
	}
	typed := activities.Errorf(activities.ActionFailed, "%s", refused.Message())
	switch why := refused.Type(); why {
	case environment.Busy:
		typed.NextRetry = busyRetry
	case environment.Failed, environment.Open:
		typed.Type = activities.Unsuccessful
	case environment.Unknown, environment.Bad:
		typed.Type = activities.Refused
	case string(activities.Fenced), string(activities.Refused):
		typed.Type = activities.ErrorType(why)
	}
	return typed
}

// Checkpoint implements steps.Keeper.
func (k environmentKeeper) Checkpoint(ctx context.Context, name string, o steps.CheckpointOrder) (steps.Checkpoint,
	error) {
	var made environment.Checkpoint
	err := k.ask(ctx, name, environment.UpdateCheckpoint, &made, environment.CheckpointRequest{
		ID: o.ID, Trigger: environment.Agent, Notes: o.Notes, Pinned: o.Pinned, Who: whoOf(o.Step), Step: stepOf(o.Step),
	})
	c := checkpointOf(made)
	for _, p := range made.Parts {
		c.Parts = append(c.Parts, steps.Part{Name: p.Name, Kind: p.Kind, Resource: p.Resource})
	}
	return c, err
}

// RollBack implements steps.Keeper.
func (k environmentKeeper) RollBack(ctx context.Context, name string, o steps.RollbackOrder) (steps.RolledBack, error) {
	var done environment.RolledBack
	err := k.ask(ctx, name, environment.UpdateRollback, &done, environment.RollbackRequest{
		To: o.To, Safety: o.Safety, Parts: o.Parts, Who: whoOf(o.Step), Step: stepOf(o.Step), Undoing: o.Undoing,
	})
	back := steps.RolledBack{Safety: checkpointOf(done.Safety), Notes: done.Notes}
	for _, s := range done.Stages {
		back.Stages = append(back.Stages, map[string]any{"stage": s.Stage, "status": s.Status,
			"seconds": math.Round(s.Seconds*1000) / 1000, "parts": s.Parts, "notes": s.Notes})
	}
	return back, err
}

// Wrote implements steps.Keeper.
func (k environmentKeeper) Wrote(ctx context.Context, name, to string) (wrote []steps.Wrote, unknown []string,
	err error) {
	var all environment.Tasks
	if err := k.ask(ctx, name, environment.UpdateTasks, &all); err != nil {
		return nil, nil, err
	}
	v, err := k.view(ctx, name)
	if err != nil {
		return nil, nil, explainKeeper(name, err)
	}
	for _, c := range v.Checkpoints {
		if c.ID != to {
			continue
		}
		if err := unheard(all, c); err != nil {
			return nil, nil, err
		}
		c.Parts = slices.DeleteFunc(c.Parts, func(p environment.KeptPart) bool { return !v.Document.Has(p) })
		for _, t := range all.Past(c) {
			wrote = append(wrote, steps.Wrote{Task: t.Task, Parts: t.Names(), At: t.At, Open: t.Open})
		}
		unknown = all.Unknown(c)
	}
	return wrote, unknown, nil
}

// Past implements steps.Keeper.
func (k environmentKeeper) Past(ctx context.Context, name, task string) (past int, err error) {
	err = k.send(ctx, name, environment.UpdatePast, &past, task)
	return past, explainPast(name, err)
}

// explainPast is explainKeeper for a look at tasks: a host or a database that does not answer may answer
// later, and nothing is stopped until then.
func explainPast(name string, err error) error {
	explained := explainKeeper(name, err)
	answer, is := errors.AsType[*temporal.ApplicationError](err)
	typed, isTyped := errors.AsType[*activities.Error](explained)
	if is && isTyped && answer.Type() == environment.Failed {
		typed.Type, typed.NextRetry = activities.ActionFailed, busyRetry
	}
	return explained
}

// unheard is an error for a later try while it cannot be told which tasks a rollback to a checkpoint
// goes past: whoever approves it would be shown too few.
func unheard(all environment.Tasks, to environment.Checkpoint) error {
	isBlind := func(p environment.KeptPart) bool { return slices.Contains(all.Blind, p.Name) }
	if len(all.Silent) == 0 && !slices.ContainsFunc(to.Parts, isBlind) {
		return nil
	}
	err := activities.Errorf(activities.ActionFailed,
		"which tasks have changed the parts of checkpoint %s cannot be told now; try again: %s", to.ID,
		strings.Join(all.Unread, "; "))
	err.NextRetry = busyRetry
	return err
}

// Cancel implements steps.Keeper.
func (k environmentKeeper) Cancel(ctx context.Context, name string, o steps.Operation) error {
	err := k.server.Client.CancelWorkflow(ctx, o.Task, "")
	var missing *serviceerror.NotFound
	var asked *serviceerror.CancellationAlreadyRequested
	if errors.As(err, &missing) || errors.As(err, &asked) {
		return nil // it has not begun, or is over, or ends already
	}
	if err != nil {
		return fmt.Errorf("environment %s: cancel task %s: %w", name, o.Task, err)
	}
	return nil
}

// Await implements steps.Keeper.
func (k environmentKeeper) Await(ctx context.Context, name, id string) (bool, error) {
	for _, task := range []string{environment.CheckpointTaskID(name, id), environment.RollbackTaskID(name, id)} {
		run, err := k.server.Describe(ctx, task, "")
		if recovery.WhyOf(err) == recovery.Unknown {
			continue
		}
		if err != nil {
			return false, err
		}
		needed, err := k.server.Needed(ctx, run)
		switch {
		case err != nil:
			return false, err
		case needed:
			return false, fmt.Errorf("task %s is not over; `starter show %s` says what it waits for", task, task)
		}
		return run.Unwind == compensations.Committed || run.Unwind == compensations.Partly, nil
	}
	return false, nil
}

// Compare implements steps.Keeper.
func (k environmentKeeper) Compare(ctx context.Context, name, id string) ([]steps.Difference, error) {
	var c environment.Comparison
	err := k.ask(ctx, name, environment.UpdateCompare, &c, environment.CompareRequest{
		ID: strings.ToLower(rand.Text()[:12]), From: id,
	})
	var all []steps.Difference
	for _, p := range c.Parts {
		all = append(all, steps.Difference{Part: p.Name, Changed: p.Changed, Times: p.Times, Diff: p.Diff,
			Digest: p.Digest})
	}
	return all, err
}

// Delete implements steps.Keeper.
func (k environmentKeeper) Delete(ctx context.Context, name, id string, pinned bool) error {
	var err error
	if pinned {
		err = k.ask(ctx, name, environment.UpdatePin, nil, environment.PinRequest{ID: id})
	}
	if err == nil {
		err = k.ask(ctx, name, environment.UpdateDelete, nil, id)
	}
	if refused, is := errors.AsType[*activities.Error](err); is && refused.Type == activities.Refused {
		v, looked := k.Look(ctx, name)
		isIt := func(c steps.Checkpoint) bool { return c.ID == id }
		if looked == nil && !slices.ContainsFunc(v.Checkpoints, isIt) {
			return nil // another undo has deleted it
		}
	}
	return err
}

// LetGo implements steps.Keeper.
func (k environmentKeeper) LetGo(ctx context.Context, name, token string) error {
	v, err := k.Look(ctx, name)
	if err != nil || v.Gone {
		return err
	}
	return k.ask(ctx, name, environment.UpdateLetGo, nil, token)
}
