package calls

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// maxHeld is how many records one activity holds: each takes a write to a disk.
const maxHeld = 1000

// HoldRecords holds the records of all entries for this workflow, until it is over. It waits for
// the hosts that have them. The error is refused where one of them is released; the others may be
// held then, to no harm.
func (t *Troubles) HoldRecords(ctx workflow.Context, entries []activities.Entry) error {
	type target struct{ queue, world string }
	var requests []protocol.HoldRequest
	var futures []workflow.Future
	last := map[target]int{} // the request of a target that is not full
	bearers := []activities.Entry{}
	steps := map[string]string{}
	for _, e := range entries {
		if e.UndoType == "" {
			continue // it only reads
		}
		steps[e.Token] = e.Step
		at := target{e.Place.Queue, activities.WorldOf(e.Action)}
		i, begun := last[at]
		if !begun || len(requests[i].Tokens) == maxHeld {
			i = len(requests)
			last[at] = i
			requests, bearers = append(requests, protocol.HoldRequest{World: at.world}), append(bearers, e)
		}
		requests[i].Tokens = append(requests[i].Tokens, e.Token)
	}
	ctx, done := workflow.WithCancel(ctx)
	defer done()
	for i, r := range requests {
		if i >= MaxInFlight { // one of many places
			_ = futures[i-MaxInFlight].Get(ctx, nil)
		}
		futures = append(futures, t.hold(ctx, r, bearers[i]))
	}
	var released []string
	for _, future := range futures {
		var held protocol.Held
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
	return protocol.Refusef(
		"the undo records of %d of %s are released (%s): their time is over, or newer records have filled the bounds of "+
			"retention; roll back a part that is kept, with --step or --to",
		len(released), activities.CountOf(len(steps), "step"), names)
}

// hold holds records where an entry has its own.
func (t *Troubles) hold(ctx workflow.Context, r protocol.HoldRequest, e activities.Entry) workflow.Future {
	future, settle := workflow.NewFuture(ctx)
	workflow.GoNamed(ctx, "hold records of "+e.Place.Queue, func(ctx workflow.Context) {
		var held protocol.Held
		err := t.persist(ctx, workflow.ActivityOptions{
			TaskQueue:           e.Place.Queue,
			Summary:             "hold " + activities.CountOf(len(r.Tokens), "record") + " of the world " + r.World,
			StartToCloseTimeout: time.Hour, HeartbeatTimeout: time.Minute,
		}, e.Place, cmp.Or(e.Policy.HostWait, forwardWait), protocol.HoldActivity, r, &held)
		settle.Set(held, err)
	})
	return future
}

// maxNamed is how many steps an error names.
const maxNamed = 20
