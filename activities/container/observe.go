package container

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

func (x *execAction) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	t, err := x.store.Open(ctx, e)
	if err != nil {
		return activities.Observation{}, err
	}
	rec, found, err := readRecord(t)
	switch {
	case err != nil:
		return activities.Observation{}, err
	case !found:
		return activities.Observation{State: activities.Unseen, Detail: "there is no record of the step: it has not run, or its record is released"}, nil
	}
	var undone activities.Undone
	over, err := t.Read(journal.Outcome, &undone)
	switch {
	case err != nil:
		return activities.Observation{}, err
	case rec.ReadOnly && over:
		return activities.Observation{State: activities.AsBefore, Detail: "the command only reads"}, nil
	case rec.ReadOnly:
		return activities.Observation{State: activities.AsLeft, Detail: "the command only reads"}, nil
	}
	s, err := x.view(ctx, t, rec)
	if err != nil {
		return activities.Observation{}, err
	}
	return s.Observation(over), nil
}
