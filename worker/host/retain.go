package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/retention"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// Bounds on what one round of retention reports.
const (
	retainOrphans   = 50
	retainAbandoned = 50
	retainProblems  = 50
)

// lag is how far lists of workflows and the clocks of others may be behind.
const lag = 5 * time.Second

// orphaned counts, by world, the open records of this host whose workflow is gone; abandoned those
// that were given up.
const (
	orphaned  = "unwind_orphan_records"
	abandoned = "unwind_abandoned_records"
)

// retain is one round over the journals of this host: it marks records whose task has committed,
// and releases and later forgets expired ones. Records that are open or in use stay.
func (b builtin) retain(ctx context.Context, _ protocol.RetainRequest) (protocol.RetentionResult, error) {
	defer activities.Beat(ctx)() // a journal with many records takes long to list
	// A rollback that began after this moment must find its records: lists lag by seconds, clocks a
	// little.
	now := time.Now().Add(-lag)
	busy, err := b.server.Busy(ctx)
	if err != nil {
		return protocol.RetentionResult{}, err
	}
	r := &round{builtin: b, busy: busy, owners: map[activities.Owner]ownerState{}, now: now}
	journals := b.registry.Records()
	for _, world := range slices.Sorted(maps.Keys(journals)) {
		if err := r.retainWorld(ctx, world, journals[world]); err != nil {
			return r.told, err
		}
	}
	return r.told, errors.Join(b.passes.prune(), b.spent.prune(), r.retainContexts(ctx))
}

// round is one round of retention.
type round struct {
	builtin
	busy   map[string]bool // task IDs
	owners map[activities.Owner]ownerState
	now    time.Time
	told   protocol.RetentionResult
}

// ownerState is the state of the workflow that a record belongs to.
type ownerState struct {
	recovery.Run
	// gone: the server does not know it any more.
	gone bool
	// needed: its ledger is being worked on, or has to be; otherwise over is when it ended, by itself
	// or recovered.
	needed bool
	over   time.Time
	// doubtful: the run is gone but its workflow ID exists; only a token tells whether the chain is
	// the same.
	doubtful bool
}

// retainWorld looks at the journal of one world. An error ends the round; what concerns only this
// world is reported in the result.
func (r *round) retainWorld(ctx context.Context, world string, journal activities.Records) error {
	records, problems, err := journal.Records(ctx)
	if err != nil {
		r.problemf("world %s: %v", world, err)
		return ctx.Err()
	}
	for _, p := range problems {
		r.problemf("world %s: %v", world, p)
	}
	var idle []activities.Record
	orphans := 0
	for _, record := range records {
		if record.State == activities.RecordReleased {
			idle = append(idle, record)
			continue
		}
		owner, err := r.ownerOf(ctx, record)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case err != nil:
			r.problemf("world %s, token %s: %v", world, record.Entry.Token, err)
		case owner.gone && record.Ended.IsZero():
			orphans++
			r.reportOrphan(ctx, world, record)
		case owner.needed || r.busy[owner.Task]:
		default:
			if record := r.setExpiry(ctx, world, journal, owner, record); !r.isHeld(ctx, world, journal, record) {
				idle = append(idle, record)
			}
		}
	}
	activity.GetMetricsHandler(ctx).WithTags(map[string]string{"world": world}).Gauge(orphaned).Update(float64(orphans))
	return r.releaseExpired(ctx, world, journal, idle)
}

// isHeld says that somebody needs the record for an undo after the end of its task. Holds of
// workflows that are over are ended. One that the server does not know any more keeps the record
// until its time is over, as what it knew may come back with the history.
func (r *round) isHeld(ctx context.Context, world string, journal activities.Records, record activities.Record) bool {
	for _, holder := range record.Holders {
		if isEnvironment(holder) {
			return true
		}
		s, err := r.stateOf(ctx, holder)
		switch { // a doubtful one is the same: an id is used once
		case err != nil:
			r.problemf("world %s, token %s, held by %s: %v", world, record.Entry.Token, holder.Workflow, err)
			return true
		case s.needed:
			return true
		case s.gone && r.now.Before(record.Until):
			if len(r.told.Held) < retainOrphans {
				name := nameOf(world, record)
				name.Holder = holder.Workflow
				r.told.Held = append(r.told.Held, name)
				r.warn(ctx, "a record that is held by a workflow which the server does not know: it is kept until its time is over",
					world, record)
			}
			return true
		}
		if err := journal.EndHold(ctx, record.Entry.Token, holder); err != nil {
			r.problemf("world %s, token %s, held by %s: %v", world, record.Entry.Token, holder.Workflow, err)
			return true
		}
	}
	return false
}

// setExpiry sets until when a record is kept whose task is over. An open record is marked
// committed: its step is done for good, or left as it is by a person's decision. So is the world if
// an undo has begun and not ended; that undo is abandoned when its time is over.
func (r *round) setExpiry(ctx context.Context, world string, journal activities.Records, owner ownerState,
	record activities.Record) activities.Record {
	until := owner.over.Add(cmp.Or(record.Entry.Keep, activities.DefaultKeep))
	switch {
	case owner.gone:
	case record.State == activities.RecordOpen:
		if err := journal.Commit(ctx, record.Entry.Token, until); err != nil {
			r.problemf("world %s, token %s: %v", world, record.Entry.Token, err)
			return record
		}
		r.told.Committed++
		record.State, record.Ended, record.Until = activities.RecordCommitted, owner.over, until
	case record.State == activities.RecordUndone:
		if until.After(record.Until) {
			record.Until = until
		}
		if record.Ended.IsZero() && r.now.After(record.Until) {
			return r.abandon(ctx, world, journal, record)
		}
	}
	return record
}

// abandon gives up an undo that nobody will finish.
func (r *round) abandon(ctx context.Context, world string, journal activities.Records,
	record activities.Record) activities.Record {
	if err := journal.Abandon(ctx, record.Entry.Token); err != nil {
		r.problemf("world %s, token %s is not given up: %v", world, record.Entry.Token, err)
		return record
	}
	record.Ended = r.now
	if len(r.told.Abandoned) < retainAbandoned {
		r.told.Abandoned = append(r.told.Abandoned, nameOf(world, record))
	}
	activity.GetMetricsHandler(ctx).WithTags(map[string]string{"world": world}).Counter(abandoned).Inc(1)
	r.warn(ctx, "an undo that a person decided to leave unfinished is given up, and its record released", world, record)
	return record
}

func nameOf(world string, record activities.Record) protocol.RecordName {
	return protocol.RecordName{
		World: world, Token: record.Entry.Token, Workflow: record.Owner.Workflow, Step: record.Entry.Step,
		Since: record.Since,
	}
}

func (r *round) warn(ctx context.Context, what, world string, record activities.Record) {
	activity.GetLogger(ctx).Warn(what, "world", world, "token", record.Entry.Token,
		"workflow", record.Owner.Workflow, "step", record.Entry.Step, "since", record.Since)
}

// releaseExpired releases and forgets what the policy chooses.
func (r *round) releaseExpired(ctx context.Context, world string, journal activities.Records,
	idle []activities.Record) error {
	p := r.config.Retention
	release, forget := retention.Choose(idle,
		retention.Policy{Versions: p.Versions, Checkpoints: p.Checkpoints, Bytes: p.Bytes, Audit: p.Audit}, r.now)
	if len(release) > 0 { // a rollback may have begun meanwhile
		busy, err := r.server.Busy(ctx)
		if err != nil {
			return err
		}
		r.busy = busy
	}
	for _, record := range release {
		if r.busy[r.owners[record.Owner].Task] {
			continue
		}
		err := r.registry.Release(ctx, r.host(), record.Entry)
		app, _ := errors.AsType[*temporal.ApplicationError](err)
		switch {
		case err == nil:
			r.told.Released++
		case app != nil && app.Type() == string(activities.Fenced): // a rollback that has begun meanwhile holds it
		default:
			r.problemf("world %s, token %s is not released: %v", world, record.Entry.Token, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	for _, record := range forget {
		if err := journal.Forget(ctx, record.Entry.Token); err != nil {
			r.problemf("world %s, token %s is not forgotten: %v", world, record.Entry.Token, err)
		} else {
			r.told.Forgotten++
		}
	}
	return ctx.Err()
}

// ownerOf finds the state of the workflow that a record belongs to.
func (r *round) ownerOf(ctx context.Context, record activities.Record) (ownerState, error) {
	s, err := r.stateOf(ctx, record.Owner)
	if err != nil {
		return s, err
	}
	if s.doubtful && !isIssued(record.Entry, s.FirstRunID) {
		return ownerState{Run: recovery.Run{Task: s.Task}, gone: true}, nil
	}
	return s, nil
}

// stateOf is the state of a workflow as this round has first seen it.
func (r *round) stateOf(ctx context.Context, owner activities.Owner) (s ownerState, err error) {
	s, known := r.owners[owner]
	if !known {
		if s, err = r.findOwner(ctx, owner); err == nil {
			r.owners[owner] = s
		}
	}
	return s, err
}

func (r *round) findOwner(ctx context.Context, owner activities.Owner) (s ownerState, err error) {
	s.Task = owner.Workflow
	if owner.Workflow == "" {
		return ownerState{gone: true}, nil
	}
	run, err := r.server.LastOf(ctx, owner.Workflow, owner.Run)
	if recovery.WhyOf(err) == recovery.Unknown { // an early run of a long chain may be past the namespace's retention
		s.doubtful = true
		run, err = r.server.Describe(ctx, owner.Workflow, "")
	}
	if recovery.WhyOf(err) == recovery.Unknown {
		return ownerState{Run: recovery.Run{Task: owner.Workflow}, gone: true}, nil
	}
	if err != nil {
		return s, err
	}
	s.Run = run
	last, err := r.server.LastRecovery(ctx, run)
	s.needed, s.over = !last.Settled() || last.Dead(), last.Closed
	return s, err
}

// generations is how many generations of a step are searched for a token.
const generations = 100

// isIssued reports whether the token was issued in the chain of that first run.
func isIssued(e activities.Entry, firstRunID string) bool {
	for g := range generations {
		if e.Token == activities.NewToken(firstRunID, e.Step, g+1) {
			return true
		}
	}
	return false
}

func (r *round) reportOrphan(ctx context.Context, world string, record activities.Record) {
	if len(r.told.Orphans) == retainOrphans {
		r.told.More++
		return
	}
	r.told.Orphans = append(r.told.Orphans, nameOf(world, record))
	r.warn(ctx, "an open record whose workflow is gone: nothing will undo it automatically", world, record)
}

func (r *round) problemf(format string, args ...any) {
	if len(r.told.Problems) < retainProblems {
		text := r.host().Masker().String(fmt.Sprintf(format, args...))
		r.told.Problems = append(r.told.Problems, payload.Clip(text, activities.MaxItem))
	}
}
