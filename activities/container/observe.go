package container

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/command"
	"github.com/seed-62bf7108/unwind/activities/container/target"
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
		return activities.Observation{State: activities.Unseen,
			Detail: "there is no record of the step: it has not run, or its record is released"}, nil
	}
	var undone activities.Undone
	over, err := t.Read(journal.Outcome, &undone)
	switch {
	case err != nil:
		return activities.Observation{}, err
	case rec.ReadOnly && over:
		return activities.Observation{State: activities.AsBefore, Detail: "the command only reads"}, nil
	}
	_, ended, err := target.ReadCompletion(t)
	switch {
	case err != nil:
		return activities.Observation{}, err
	case rec.ReadOnly && ended:
		return activities.Observation{State: activities.AsLeft, Detail: "the command only reads"}, nil
	case rec.ReadOnly:
		return activities.Observation{State: activities.Unseen,
			Detail: "the command only reads, and has not come to its end"}, nil
	}
	s, err := x.view(ctx, t, rec)
	if err != nil {
		return activities.Observation{}, err
	}
	seen := s.Observation(over)
	if over || ended {
		return seen, nil
	}
	return withoutEnding(t, seen)
}

// withoutEnding is what can be said of a command whose step has not come to its end: one that has
// left the filesystem as it was before may have run all the same.
func withoutEnding(t *journal.Token, seen activities.Observation) (activities.Observation, error) {
	for n := maxRuns; n > 0; n-- {
		run := command.Attempt{Token: t, Number: n}
		standing, err := run.Standing()
		if err != nil {
			return activities.Observation{}, err
		}
		if standing == "" {
			continue
		}
		if seen.State == activities.AsBefore {
			seen.State = activities.Unseen
		}
		seen.Detail = standing + "; " + seen.Detail
		break
	}
	return seen, nil
}
