package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
)

// An undo that begins after the end of its task needs records that retention may release meanwhile. So all of them are held before
// the first is used: a file whose newest change was undone, and whose older ones could not be, would be in a state that nobody has ever seen.

// HoldRequest is the argument of HoldActivity: tokens of one world on one host. Their holder is the workflow that asks.
type HoldRequest struct {
	World  string   `json:"world"`
	Tokens []string `json:"tokens"`
}

// Held is the result of HoldActivity.
type Held struct {
	// Released are the tokens that cannot be held: their release has begun.
	Released []string `json:"released,omitempty"`
}

// changeHold is the version of a history that holds records.
const changeHold = "hold-records"

// maxHeld is how many records one activity holds: each takes a write to a disk.
const maxHeld = 1000

// holdRecords holds the records of all entries for this workflow, until it is over. It waits for the hosts that have them. The error
// is refused where one of them is released; the others may be held then, to no harm.
func holdRecords(ctx workflow.Context, entries []activities.Entry) error {
	version := workflow.GetVersion(ctx, changeHold, workflow.DefaultVersion, 2)
	if version == workflow.DefaultVersion {
		return nil
	}
	type place struct{ queue, world string }
	var requests []HoldRequest
	var futures []workflow.Future
	last := map[place]int{} // the request of a place that is not full
	places := []place{}
	steps := map[string]string{}
	for _, e := range entries {
		if e.UndoType == "" {
			continue // it only reads
		}
		steps[e.Token] = e.Step
		at := place{e.Place.Queue, activities.WorldOf(e.Action)}
		i, begun := last[at]
		if !begun || len(requests[i].Tokens) == maxHeld {
			i = len(requests)
			last[at] = i
			requests, places = append(requests, HoldRequest{World: at.world}), append(places, at)
		}
		requests[i].Tokens = append(requests[i].Tokens, e.Token)
	}
	for i, r := range requests {
		if version >= 2 && i >= maxInFlight { // one of many places
			_ = futures[i-maxInFlight].Get(ctx, nil)
		}
		futures = append(futures, workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			TaskQueue: places[i].queue, Summary: fmt.Sprintf("hold %d records of the world %s", len(r.Tokens), r.World),
			StartToCloseTimeout: time.Hour, HeartbeatTimeout: time.Minute,
			RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
		}), HoldActivity, r))
	}
	var released []string
	for _, future := range futures {
		var held Held
		if err := future.Get(ctx, &held); err != nil {
			return err
		}
		for _, token := range held.Released {
			released = append(released, steps[token])
		}
	}
	if len(released) == 0 {
		return nil
	}
	names := strings.Join(released[:min(len(released), maxNamed)], ", ")
	if len(released) > maxNamed {
		names += fmt.Sprintf(" and %d more", len(released)-maxNamed)
	}
	return refusef("the undo records of %d of %d steps are released (%s): their time is over, or newer records have filled the bounds of retention; roll back a part that is kept, with --step or --to",
		len(released), len(steps), names)
}

// maxNamed is how many steps an error names.
const maxNamed = 20
