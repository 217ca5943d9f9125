package environments

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

type rawJSON = json.RawMessage

// checkNew refuses what cannot be a new checkpoint.
func (k *keeper) checkNew(id, notes string) error {
	if err := protocol.CheckID(id); err != nil || !strings.HasPrefix(id, "cp-") || len(id) > 40 {
		return protocol.RefuseRequestf(environment.Bad,
			"id %q: the id of a checkpoint begins with cp- and is at most 40 long", id)
	}
	if len(notes) > environment.MaxNotes {
		return protocol.RefuseRequestf(environment.Bad, "notes: they have %s, more than %d", activities.CountOf(len(notes),
			"byte"),
			environment.MaxNotes)
	}
	return nil
}

func (k *keeper) checkpoint(ctx workflow.Context, r environment.CheckpointRequest) (environment.Checkpoint, error) {
	if err := k.checkNew(r.ID, r.Notes); err != nil {
		return environment.Checkpoint{}, err
	}
	id := environment.CheckpointTaskID(k.Name, r.ID)
	end, err := k.begin(ctx, fmt.Sprintf("take checkpoint %s of environment %s", r.ID, k.Name), id)
	if err != nil {
		return environment.Checkpoint{}, err
	}
	defer end()
	if err := k.admit(ctx, r.Step, false); err != nil {
		return environment.Checkpoint{}, err
	}
	if known, err := k.find(r.ID); err == nil {
		return known.Checkpoint, nil
	}
	steps, err := k.run(ctx, id, r.Who, k.CheckpointTask(k.home, r.ID, r.Who))
	if err != nil {
		return environment.Checkpoint{}, err
	}
	var neededBy []environment.Step
	if r.Step != nil {
		neededBy = []environment.Step{*r.Step} // its task may go back to it
	}
	return k.keep(ctx, environment.Checkpoint{ID: r.ID, Task: id, Trigger: r.Trigger, Notes: r.Notes, Pinned: r.Pinned,
		NeededBy: neededBy}, steps)
}

// keep stores a checkpoint that a task has taken, and lets go of what is no longer kept.
func (k *keeper) keep(ctx workflow.Context, c environment.Checkpoint,
	steps []environment.Done) (environment.Checkpoint, error) {
	s, err := k.Find(c.ID, c.Task, c.Trigger, steps)
	if err != nil {
		return s.Checkpoint, protocol.RefuseRequestf(environment.Failed, "%v", err)
	}
	s.Notes, s.Pinned, s.NeededBy = c.Notes, c.Pinned, c.NeededBy
	s.RolledBackTo, s.RolledBackToCreated, s.PutBack = c.RolledBackTo, c.RolledBackToCreated, c.PutBack
	s.Past, s.MorePast, s.Own = c.Past, c.MorePast, c.Own
	for _, host := range s.Others(k.home) {
		if err := k.call(ctx, host, "hold what checkpoint "+c.ID+" has there", environment.HoldActivity,
			environment.Holding{Environment: k.Name, Checkpoint: c.ID, Entries: s.On(host)}, nil); err != nil {
			return s.Checkpoint, err
		}
	}
	if err := k.update(ctx, "keep checkpoint "+c.ID, environment.KeepActivity, s); err != nil {
		return s.Checkpoint, err
	}
	return s.Checkpoint, k.drop(ctx, k.Retention.Expired(k.view().Checkpoints, workflow.Now(ctx)))
}

// drop lets go of checkpoints.
func (k *keeper) drop(ctx workflow.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	for _, s := range k.stored {
		if !slices.Contains(ids, s.ID) {
			continue
		}
		for _, host := range s.Others(k.home) {
			if err := k.call(ctx, host, "let go of what checkpoint "+s.ID+" has there", environment.LetGoActivity,
				environment.Holding{Environment: k.Name, Checkpoint: s.ID, Entries: s.On(host)}, nil); err != nil {
				return err
			}
		}
	}
	return k.update(ctx, "let go of "+activities.CountOf(len(ids), "checkpoint"), environment.DropActivity,
		environment.DropRequest{Environment: k.Name, IDs: ids})
}

func (k *keeper) rollBack(ctx workflow.Context, r environment.RollbackRequest) (environment.RolledBack, error) {
	if err := k.checkNew(r.Safety, ""); err != nil {
		return environment.RolledBack{}, err
	}
	id := environment.RollbackTaskID(k.Name, r.Safety)
	end, err := k.begin(ctx, fmt.Sprintf("roll environment %s back to %s", k.Name, r.To), id)
	if err != nil {
		return environment.RolledBack{}, err
	}
	defer end()
	if err := k.admit(ctx, r.Step, r.Undoing); err != nil {
		return environment.RolledBack{}, err
	}
	to, err := k.find(r.To)
	if err != nil {
		return environment.RolledBack{}, err
	}
	target := to.Only(r.Parts)
	answer := environment.RolledBack{To: to.Checkpoint, Notes: k.Untouched(to.Checkpoint)}
	if len(answer.Notes) > 0 && !slices.ContainsFunc(target.Parts, k.Has) {
		return answer, protocol.RefuseRequestf(environment.Bad, "no part of environment %s is in checkpoint %s", k.Name, r.To)
	}
	if safety, err := k.find(r.Safety); err == nil { // the call was repeated, after it was answered
		answer.Safety, answer.Past, answer.MorePast = safety.Checkpoint, safety.Past, safety.MorePast
		var steps []environment.Done
		err := k.call(ctx, "", "read what "+id+" has done", environment.DoneActivity, id, &steps)
		answer.Stages = k.Stages(steps)
		return answer, err
	}
	k.going = &going{task: id, to: target}
	defer func() { k.going = nil }()
	if r.Step != nil {
		k.going.asker = r.Step.Task
	}
	if err := k.goPast(ctx, k.going, environment.Busy); err != nil {
		return answer, err
	}
	var neededBy []environment.Step
	if r.Step != nil && !r.Undoing {
		neededBy = []environment.Step{*r.Step}
		if err := k.need(ctx, to, *r.Step); err != nil { // what the rollback takes may be one too many of them
			return answer, err
		}
	}
	steps, err := k.run(ctx, id, r.Who, k.RollbackTask(k.home, target, r.Who))
	if err != nil {
		return answer, err
	}
	answer.Stages, answer.Notes = k.Stages(steps), append(answer.Notes, k.going.notes...)
	answer.Past, answer.MorePast = k.going.past, k.going.more
	answer.Safety, err = k.keep(ctx, environment.Checkpoint{ID: r.Safety, Task: id, Trigger: environment.PreRollback,
		Notes: "safety checkpoint before rollback to " + r.To, NeededBy: neededBy, RolledBackTo: r.To,
		RolledBackToCreated: to.Created, PutBack: k.putBack(target), Past: answer.Past, MorePast: answer.MorePast,
		Own: k.going.own}, steps)
	return answer, err
}

// putBack are the parts of a checkpoint that a rollback puts back.
func (k *keeper) putBack(to environment.Checkpoint) (names []string) {
	for _, p := range to.Parts {
		if k.Has(p) {
			names = append(names, p.Name)
		}
	}
	return names
}

// compare changes nothing, and waits for its turn all the same: it looks at parts as they are.
func (k *keeper) compare(ctx workflow.Context, r environment.CompareRequest) (environment.Comparison, error) {
	answer := environment.Comparison{From: r.From, To: r.To}
	if err := protocol.CheckID(r.ID); err != nil {
		return answer, protocol.RefuseRequestf(environment.Bad, "id: %v", err)
	}
	id := environment.CompareTaskID(k.Name, r.ID)
	end, err := k.begin(ctx, fmt.Sprintf("compare checkpoint %s of environment %s", r.From, k.Name), id)
	if err != nil {
		return answer, err
	}
	defer end()
	from, err := k.find(r.From)
	if err != nil {
		return answer, err
	}
	var to *environment.Checkpoint
	if r.To != "" {
		other, err := k.find(r.To)
		if err != nil {
			return answer, err
		}
		to = &other.Checkpoint
	}
	answer.Left = k.NotCompared(from.Checkpoint, to)
	if len(answer.Left) == len(from.Parts) {
		return answer, protocol.RefuseRequestf(environment.Bad, "no part of checkpoint %s can be compared", r.From)
	}
	steps, err := k.run(ctx, id, r.Who, k.CompareTask(k.home, r.ID, from.Checkpoint, to, r.Who))
	answer.Parts = k.Compare(from.Checkpoint, steps)
	return answer, err
}

func (k *keeper) pin(ctx workflow.Context, r environment.PinRequest) (environment.Checkpoint, error) {
	end, err := k.begin(ctx, "pin or unpin "+r.ID, "")
	if err != nil {
		return environment.Checkpoint{}, err
	}
	defer end()
	s, err := k.find(r.ID)
	givesUp := r.GiveUp && !r.Pinned && len(s.NeededBy) > 0
	if err != nil || s.Pinned == r.Pinned && !givesUp {
		return s.Checkpoint, err
	}
	if s.Pinned = r.Pinned; givesUp {
		s.NeededBy = nil
	}
	return s.Checkpoint, k.update(ctx, "pin or unpin "+r.ID, environment.KeepActivity, s)
}

func (k *keeper) delete(ctx workflow.Context, id string) error {
	end, err := k.begin(ctx, "delete checkpoint "+id, "")
	if err != nil {
		return err
	}
	defer end()
	s, err := k.find(id)
	if err != nil {
		return err
	}
	if err := refuseKept(s.Checkpoint); err != nil {
		return err
	}
	return k.drop(ctx, []string{id})
}

func (k *keeper) prune(ctx workflow.Context) (environment.Pruned, error) {
	end, err := k.begin(ctx, "prune checkpoints", "")
	if err != nil {
		return environment.Pruned{}, err
	}
	defer end()
	return k.pruneTo(ctx, k.Retention.Expired(k.view().Checkpoints, workflow.Now(ctx)))
}

func (k *keeper) pruneTo(ctx workflow.Context, ids []string) (environment.Pruned, error) {
	err := k.drop(ctx, ids)
	return environment.Pruned{Deleted: append([]string{}, ids...), Kept: len(k.stored)}, err
}

func (k *keeper) apply(ctx workflow.Context, d environment.Document) error {
	end, err := k.begin(ctx, "change the environment", "")
	if err != nil {
		return err
	}
	defer end()
	err = d.Check()
	switch {
	case err != nil:
	case d.Name != k.Name:
		err = fmt.Errorf("name: it is %s, and stays; remove it and apply another", k.Name)
	case d.On != "" && d.On != k.home:
		err = fmt.Errorf("on: environment %s is on %s, which has its checkpoints; remove it first", k.Name, k.home)
	}
	if err != nil {
		return protocol.RefuseRequestf(environment.Bad, "%v", err)
	}
	k.Document = d
	return nil
}

func (k *keeper) remove(ctx workflow.Context) (environment.Pruned, error) {
	end, err := k.begin(ctx, "remove the environment", "")
	if err != nil {
		return environment.Pruned{}, err
	}
	defer end()
	var ids []string
	for _, s := range k.stored {
		if err := refuseKept(s.Checkpoint); err != nil {
			return environment.Pruned{}, err
		}
		ids = append(ids, s.ID)
	}
	pruned, err := k.pruneTo(ctx, ids)
	k.closed = err == nil
	return pruned, err
}
