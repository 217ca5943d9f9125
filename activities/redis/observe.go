package redis

import (
	"context"
	"encoding/json"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// Observe compares the keys with what the step left.
func (a *execAction) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	c, err := a.open(ctx, e)
	if err != nil {
		return activities.Observation{}, err
	}
	defer c.end()
	s, err := c.see(e)
	if err != nil {
		return activities.Observation{}, err
	}
	switch {
	case s.state == "", s.state == recordkeeping.Undoing && !s.hasImages:
		return activities.Observation{State: activities.AsBefore, Detail: "the commands of the step were never run"}, nil
	case s.state == recordkeeping.Undone && !s.forgotten:
		var outcome activities.Undone
		if err := c.decodeOutcome(e, s.outcome, &outcome); err != nil {
			return activities.Observation{}, err
		}
		if outcome.Outcome.Clean() {
			return activities.Observation{State: activities.AsBefore, Detail: outcome.Observed}, nil
		}
	}
	if !s.hasImages || s.state == recordkeeping.Undone {
		return activities.Observation{State: activities.Unseen,
			Detail: "what the step changed is no longer known: it was released"}, nil
	}
	if drift, _ := c.findDrift(s); drift != nil {
		return activities.Observation{State: activities.Elsewise, Detail: drift.Diff, Drift: drift}, nil
	}
	return activities.Observation{State: activities.AsLeft,
		Detail: activities.CountOf(len(s.keys), "key") + " as the step left it"}, nil
}

// Release drops the keys as they were. The record stays: no later forward or undo acts.
func (a *execAction) Release(ctx context.Context, e activities.Entry) error {
	c, err := a.open(ctx, e)
	if err != nil {
		return err
	}
	defer c.end()
	made, err := owned(ctx, e)
	if err != nil {
		return err
	}
	answer, err := c.run(releaseScript, nil, append([]any{c.id}, made...)...)
	if err != nil {
		return err
	}
	switch answer.text("happened") {
	case "undoing":
		return activities.Errorf(activities.Fenced, "token %s is being undone: its record is still needed", e.Token)
	case "damaged":
		return c.damaged(e, answer.text("what"))
	case "held":
		var holders []activities.Owner
		if err := json.Unmarshal([]byte(answer.text("holders")), &holders); err != nil || len(holders) == 0 {
			return c.damaged(e, "does not say who needs its record")
		}
		return activities.Errorf(activities.Fenced, "token %s is held by %s: its record is still needed", e.Token,
			holders[0].Workflow)
	}
	return nil
}
