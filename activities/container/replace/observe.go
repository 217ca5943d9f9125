package replace

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// view looks at the container that has taken the old one's place.
func (a *Action) view(ctx context.Context, t *journal.Token, rec stepRecord, fresh string) (target.View, error) {
	s := target.View{Name: engine.NameOf(rec.Old), Before: manifest.Manifest{}}
	done, ended, err := target.ReadCompletion(t)
	if err != nil || !ended || done.After == "" {
		return s, err
	}
	if s.After, err = manifest.Load(t.Dir(), target.AfterFile, done.After); err != nil {
		return s, err
	}
	id, err := a.Lineage.Standing(ctx, fresh)
	if err != nil {
		return s, err
	}
	holder, err := engine.FindHolder(ctx, a.Engine, s.Name)
	if err != nil {
		return s, err
	}
	if holder == rec.Old.ID {
		if stands, err := a.stands(ctx, fresh); err != nil || !stands { // it is back already: nothing is in its way
			s.After = nil
			return s, err
		}
	}
	if holder != id {
		s.Gone, s.Occupant = true, holder
		return s, nil
	}
	s.Now, err = manifest.Take(ctx, a.Engine, id, rec.Ignore)
	return s, err
}

func (a *Action) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	t, err := a.Store.Open(ctx, e)
	if err != nil {
		return activities.Observation{}, err
	}
	rec, found, err := a.readRecord(ctx, t)
	if err != nil {
		return activities.Observation{}, err
	}
	if !found {
		return activities.Observation{State: activities.Unseen,
			Detail: "there is no record of the step: it has not run, or its record is released"}, nil
	}
	name := engine.NameOf(rec.Old)
	holder, err := engine.FindHolder(ctx, a.Engine, name)
	if err != nil {
		return activities.Observation{}, err
	}
	if holder == rec.Old.ID {
		return activities.Observation{State: activities.AsBefore,
			Detail: name + " is the container that it was before the step"}, nil
	}
	var fresh reference
	if _, err := t.Read(newDoc, &fresh); err != nil {
		return activities.Observation{}, err
	}
	if fresh.ID == "" {
		return activities.Observation{State: activities.Unseen,
			Detail: name + " is another container than before, and the step has not made it"}, nil
	}
	s, err := a.view(ctx, t, rec, fresh.ID)
	if err != nil {
		return activities.Observation{}, err
	}
	if drift := s.Drift(); drift != nil {
		return activities.Observation{State: activities.Elsewise, Detail: s.String(), Drift: drift}, nil
	}
	if s.After == nil {
		return activities.Observation{State: activities.Unseen, Detail: "the step has not come to its end"}, nil
	}
	return activities.Observation{State: activities.AsLeft, Detail: name + " is the container that the step has made"}, nil
}
