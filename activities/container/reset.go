package container

import (
	"context"
	"fmt"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// Reset makes the container anew from the image that it was made from in the first place. It needs
// of the step's record no more than the name of the container, which is in the entry too; a command
// that has provably not run costs nobody a container.
func (x *execAction) Reset(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	u, undone, over, err := x.beginUndo(ctx, e)
	if over || err != nil {
		return undone, err
	}
	t := u.Token
	point.Reach("container.exec:reset-begun")
	runs, err := mayRun(t, d.Done)
	if err != nil && !target.IsDamaged(err) {
		return activities.Undone{}, err
	}
	if err == nil && !runs {
		return x.endUndo(ctx, e, t, nothingDone(t))
	}
	by, err := x.planReset(ctx, e, t)
	if err != nil {
		return activities.Undone{}, err
	}
	if by.Occupant != "" {
		s := target.View{Name: engine.NameOf(by.Container), Gone: true, Occupant: by.Occupant}
		if drift := s.Drift(); d.Force != drift.Digest {
			return activities.Undone{Outcome: activities.Drifted, Observed: s.String(), Drift: drift}, nil
		}
	}
	if _, err := t.Create(endingDoc, &by); err != nil {
		return activities.Undone{}, err
	}
	point.Reach("container.exec:reset-decided")
	return x.conclude(ctx, e, t, by)
}

// planReset finds what a reset has to make: by the record, or where that is damaged by the name
// that the container has in the entry.
func (x *execAction) planReset(ctx context.Context, e activities.Entry, t *journal.Token) (conclusion, error) {
	by := conclusion{Turn: checkpoint.ResetTurn}
	var stands lineage.Successor
	rec, found, err := readRecord(t)
	if err == nil && found {
		stands, by.Container, err = x.findPresent(ctx, rec.Container.ID)
		if engine.IsNotFound(err) || err == nil && aside.Is(by.Container) {
			by.Container = rec.Container
			by.Occupant, err = engine.FindHolder(ctx, x.engine, engine.NameOf(rec.Container))
		}
	}
	if !found || target.IsDamaged(err) {
		by.Container, err = x.findNamed(ctx, e)
	}
	if err != nil {
		return by, err
	}
	if by.Image, err = x.lineage.Origin(ctx, by.Container); err != nil {
		return by, err
	}
	done, ended, err := target.ReadCompletion(t)
	if target.IsDamaged(err) {
		err = nil
	}
	by.Stopped = ended && by.Occupant == "" && done.IsStoppedSince(by.Container) && !stands.HasFailed(by.Container)
	return by, err
}

// findPresent finds the container that had an id once, under the one that it has now, which stands
// has.
func (x *execAction) findPresent(ctx context.Context, id string) (stands lineage.Successor, c container.InspectResponse,
	err error) {
	if stands, err = x.lineage.Walk(ctx, id, func(lineage.Successor) bool { return false }); err != nil {
		return stands, c, err
	}
	c, err = x.engine.ContainerInspect(ctx, stands.ID)
	return stands, c, engine.Explain("looking at the container", err)
}

// findNamed finds the container that the entry names.
func (x *execAction) findNamed(ctx context.Context, e activities.Entry) (container.InspectResponse, error) {
	p, err := activities.DecodeParams[params](e.Params)
	if err != nil {
		return container.InspectResponse{}, err
	}
	c, err := x.engine.ContainerInspect(ctx, p.Container)
	if engine.IsNotFound(err) {
		return c, activities.Errorf(activities.DamagedRecord,
			"the record of token %s is damaged, and there is no container %q any more to see how it was made", e.Token,
			p.Container)
	}
	return c, engine.Explain("looking at container "+p.Container, err)
}

// makeAnew makes the container that the ending describes, and says what was seen.
func (x *execAction) makeAnew(ctx context.Context, e activities.Entry, by conclusion) (activities.Undone, error) {
	name := engine.NameOf(by.Container)
	back, err := x.backends.Commit.RollBack(ctx, checkpoint.Rollback{
		Token: e.Token, Turn: checkpoint.ResetTurn, Container: by.Container, Checkpoint: by.Image, Occupant: by.Occupant,
		Stopped: by.Stopped,
	})
	if err != nil {
		return activities.Undone{}, err
	}
	point.Reach("container.exec:reset-made")
	if err := x.backends.Release(ctx, e.Token); err != nil {
		return activities.Undone{}, err
	}
	undone := activities.Undone{
		Outcome:  activities.Residue,
		Observed: fmt.Sprintf("%s was made anew from its image %s", name, by.Image),
		Losses: append([]string{
			"everything that was done in the container since it was made from its image, by this step and by all others",
		}, append(checkpoint.LossesByRecreation(), target.NotRolledBack(by.Container, nil)...)...),
	}
	return x.standsNow(ctx, undone, back)
}
