package host

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/retention"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// Bounds on what one round of retention tells.
const (
	retainOrphans   = 50
	retainAbandoned = 50
	retainProblems  = 50
)

// behind is how far lists of workflows and the clocks of others may lag.
const behind = 5 * time.Second

// orphaned is, by world, how many open records of this host have a workflow that is gone; abandoned counts those that were
// given up.
const (
	orphaned  = "unwind_orphan_records"
	abandoned = "unwind_abandoned_records"
)

// retain is one round over the journals of this host: records whose task has committed are marked so, and what is over is
// released, then forgotten. What is open, or what somebody works on, stays.
func (b builtin) retain(ctx context.Context, _ workflows.RetainRequest) (workflows.RetentionResult, error) {
	// What a rollback needs that began after this look is not over at this time: a list is seconds behind, clocks a little.
	now := time.Now().Add(-behind)
	busy, err := b.server.Busy(ctx)
	if err != nil {
		return workflows.RetentionResult{}, err
	}
	r := &round{builtin: b, busy: busy, owners: map[activities.Owner]standing{}, now: now}
	journals := b.registry.Records()
	for _, world := range slices.Sorted(maps.Keys(journals)) {
		if err := r.world(ctx, world, journals[world]); err != nil {
			return r.told, err
		}
	}
	return r.told, nil
}

// round is one round of retention.
type round struct {
	builtin
	busy   map[string]bool // tasks
	owners map[activities.Owner]standing
	now    time.Time
	told   workflows.RetentionResult
}

// standing is what became of the workflow that a record belongs to.
type standing struct {
	recovery.Run
	// gone says that the server does not know it any more.
	gone bool
	// needed says that its ledger is at work, or has to be; else over is when it came to its end, by itself or recovered.
	needed bool
	over   time.Time
	// doubtful says that the run is gone but its workflow id is there: only a token tells whether the chain is the same.
	doubtful bool
}

// world looks at the journal of one world. Its error ends the round; what concerns the world only is told.
func (r *round) world(ctx context.Context, world string, journal activities.Records) error {
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
		activity.RecordHeartbeat(ctx)
		if record.State == activities.RecordReleased {
			idle = append(idle, record)
			continue
		}
		owner, err := r.owner(ctx, record)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case err != nil:
			r.problemf("world %s, token %s: %v", world, record.Entry.Token, err)
		case owner.gone && record.Ended.IsZero():
			orphans++
			r.orphan(ctx, world, record)
		case owner.needed || r.busy[owner.Task]:
		default:
			idle = append(idle, r.date(ctx, world, journal, owner, record))
		}
	}
	activity.GetMetricsHandler(ctx).WithTags(map[string]string{"world": world}).Gauge(orphaned).Update(float64(orphans))
	return r.clear(ctx, world, journal, idle)
}

// date says until when a record is kept whose task is over. An open one is marked: its step is done for good, or left as it
// is by a person's decision. So is the world where an undo has begun and not ended: that is given up when its time is over.
func (r *round) date(ctx context.Context, world string, journal activities.Records, owner standing, record activities.Record) activities.Record {
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

// abandon gives up an undo that nobody will bring to its end.
func (r *round) abandon(ctx context.Context, world string, journal activities.Records, record activities.Record) activities.Record {
	if err := journal.Abandon(ctx, record.Entry.Token); err != nil {
		r.problemf("world %s, token %s is not given up: %v", world, record.Entry.Token, err)
		return record
	}
	record.Ended = r.now
	if len(r.told.Abandoned) < retainAbandoned {
		r.told.Abandoned = append(r.told.Abandoned, nameOf(world, record))
	}
	activity.GetMetricsHandler(ctx).WithTags(map[string]string{"world": world}).Counter(abandoned).Inc(1)
	r.warn(ctx, "an undo that a person has left as it was is given up, and its record released", world, record)
	return record
}

func nameOf(world string, record activities.Record) workflows.RecordName {
	return workflows.RecordName{
		World: world, Token: record.Entry.Token, Workflow: record.Owner.Workflow, Step: record.Entry.Step, Since: record.Since,
	}
}

func (r *round) warn(ctx context.Context, what, world string, record activities.Record) {
	activity.GetLogger(ctx).Warn(what, "world", world, "token", record.Entry.Token,
		"workflow", record.Owner.Workflow, "step", record.Entry.Step, "since", record.Since)
}

// clear releases and forgets what the policy chooses.
func (r *round) clear(ctx context.Context, world string, journal activities.Records, idle []activities.Record) error {
	p := r.config.Retention
	release, forget := retention.Choose(idle, retention.Policy{Versions: p.Versions, Checkpoints: p.Checkpoints, Bytes: p.Bytes, Audit: p.Audit}, r.now)
	if len(release) > 0 { // a rollback may have begun since
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
		if err := r.registry.Release(ctx, r.host(), record.Entry); err != nil {
			r.problemf("world %s, token %s is not released: %v", world, record.Entry.Token, err)
		} else {
			r.told.Released++
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

// owner finds out what became of the workflow that a record belongs to.
func (r *round) owner(ctx context.Context, record activities.Record) (standing, error) {
	s, known := r.owners[record.Owner]
	if !known {
		var err error
		if s, err = r.stands(ctx, record.Owner); err != nil {
			return s, err
		}
		r.owners[record.Owner] = s
	}
	if s.doubtful && !issued(record.Entry, s.FirstRunID) {
		return standing{Run: recovery.Run{Task: s.Task}, gone: true}, nil
	}
	return s, nil
}

func (r *round) stands(ctx context.Context, owner activities.Owner) (s standing, err error) {
	s.Task = owner.Workflow
	if owner.Workflow == "" {
		return standing{gone: true}, nil
	}
	run, err := r.server.LastOf(ctx, owner.Workflow, owner.Run)
	if recovery.WhyOf(err) == recovery.Unknown { // an early run of a long chain may be past the namespace's retention
		s.doubtful = true
		run, err = r.server.Describe(ctx, owner.Workflow, "")
	}
	if recovery.WhyOf(err) == recovery.Unknown {
		return standing{Run: recovery.Run{Task: owner.Workflow}, gone: true}, nil
	}
	if err != nil {
		return s, err
	}
	s.Run = run
	last, err := r.server.LastRecovery(ctx, run)
	s.needed, s.over = !last.Settled() || last.Dead(), last.Closed
	return s, err
}

// generations is how many generations of a step are looked through for a token.
const generations = 100

// issued says that the token was given out in the chain of that first run.
func issued(e activities.Entry, firstRunID string) bool {
	for g := range generations {
		if e.Token == activities.NewToken(firstRunID, e.Step, g+1) {
			return true
		}
	}
	return false
}

func (r *round) orphan(ctx context.Context, world string, record activities.Record) {
	if len(r.told.Orphans) == retainOrphans {
		r.told.More++
		return
	}
	r.told.Orphans = append(r.told.Orphans, nameOf(world, record))
	r.warn(ctx, "an open record whose workflow is gone: nobody undoes it by himself", world, record)
}

func (r *round) problemf(format string, args ...any) {
	if len(r.told.Problems) < retainProblems {
		r.told.Problems = append(r.told.Problems, clip(fmt.Sprintf(format, args...)))
	}
}

// clip keeps a text short enough for a history.
func clip(s string) string {
	if len(s) > activities.MaxItem {
		return strings.ToValidUTF8(s[:activities.MaxItem], "") + "..."
	}
	return s
}
