package compensations

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
)

// Unwind undoes every entry, last in first out among those that depend on each other. It returns
// when each one is settled, or, with a report whose status is Open, when Options.Pause says so.
// Cancelling ctx does not stop it. An entry that is parked or waits for its host holds back only
// what it needs.
func (s *Saga) Unwind(ctx workflow.Context, cause Cause) Report {
	began := workflow.Now(ctx)
	s.unfinished = nil
	s.unwindEntries(ctx, cause, s.ledger.Entries())
	r := s.report(s.past)
	r.Lasted = workflow.Now(ctx).Sub(began)
	return r
}

func (s *Saga) report(before Past) Report {
	r := s.plan.report(before, s.cause)
	r.Notes = s.inbox.Ignored().Notes()
	return r
}

// UnwindSteps undoes the entries that isMeant selects and all that build on them, like Unwind, and
// leaves the others on the ledger: the workflow may go on. The report lists the selected entries.
// One that a person has skipped stays on the ledger.
//
// If Options.Pause interrupts it, the report's status is Open. The next call, on this saga or on
// the one that Resume makes of its Carry, then also undoes what is left.
func (s *Saga) UnwindSteps(ctx workflow.Context, cause Cause, isMeant func(activities.Entry) bool) Report {
	began := workflow.Now(ctx)
	s.unwindEntries(ctx, cause, Closure(s.ledger.Entries(), func(e activities.Entry) bool {
		_, unfinished := slices.BinarySearch(s.unfinished, e.Seq)
		return unfinished || isMeant(e)
	}))
	r := s.report(Past{})
	r.Lasted, r.Steps, s.unfinished = workflow.Now(ctx).Sub(began), nil, nil
	for _, it := range s.plan.items {
		r.Steps = append(r.Steps, it.report())
		if r.Status == Open && !it.leavesLedger() {
			s.unfinished = append(s.unfinished, it.entry.Seq)
		}
	}
	s.closePlan()
	s.options.Changed()
	return r
}

// Closure returns those of entries that isMeant selects, and all that build on them. Entries are
// the oldest first.
func Closure(entries []activities.Entry, isMeant func(activities.Entry) bool) []activities.Entry {
	var closure []activities.Entry
	in := map[string]bool{}
	for _, e := range entries { // an entry was registered after those that it builds on
		if isMeant(e) || slices.ContainsFunc(e.Needs, func(need string) bool { return in[need] }) {
			in[e.Step] = true
			closure = append(closure, e)
		}
	}
	return closure
}

func (s *Saga) unwindEntries(ctx workflow.Context, cause Cause, entries []activities.Entry) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	s.plan, s.cause = newPlan(entries), cause
	s.restoreProgress()
	s.options.Changed()
	for left := maxAlerts; ; {
		paused := s.options.Pause()
		if paused {
			s.recallWaiting()
			left -= s.sendAlerts(ctx, left)
		} else {
			left = maxAlerts
			s.sendAlerts(ctx, left)
		}
		for !paused && s.mayStart() && s.plan.nextReady() != nil {
			s.startUndo(ctx, s.plan.nextReady())
		}
		if s.plan.isDone() || paused && s.isIdle() {
			return
		}
		// Something must end, be resolved by a person, or be served by a host that is back.
		_ = workflow.Await(ctx, func() bool {
			return s.plan.isDone() || s.hasAlerts() && left > 0 || s.options.Pause() != paused || paused && s.isIdle() ||
				!paused && s.mayStart() && s.plan.nextReady() != nil
		})
	}
}

// maxPending is how many undos are scheduled at once, including those that wait for their hosts: a
// server allows about 2,000.
const maxPending = 1000

// mayStart reports whether one more undo may be scheduled.
func (s *Saga) mayStart() bool {
	return s.hasRoom() && s.plan.running+s.plan.unserved < maxPending
}

// hasRoom reports whether fewer undos run than may run at once.
func (s *Saga) hasRoom() bool { return s.plan.running < s.options.Parallel }

// isIdle reports whether no activity of the unwinding is pending.
func (s *Saga) isIdle() bool { return s.plan.running == 0 && s.plan.unserved == 0 && s.alerts == 0 }

// recallWaiting cancels the undos that wait for their host, or for a circuit breaker.
func (s *Saga) recallWaiting() {
	for _, it := range s.plan.items {
		if it.state == Waiting {
			it.cancel()
		}
	}
}

// startUndo undoes one entry in a coroutine of its own.
func (s *Saga) startUndo(ctx workflow.Context, it *item) {
	if it.entry.UndoType == "" { // a read-only step
		it.Undone = activities.Undone{Outcome: activities.Nothing}
		s.plan.setState(it, Settled)
		return
	}
	it.Reason = ""
	s.plan.setState(it, Running)
	s.options.Changed()
	workflow.GoNamed(ctx, "undo "+it.entry.Step, func(ctx workflow.Context) {
		s.undoEntry(ctx, it)
		s.options.Changed()
	})
}

// Bounds on what repeats without a person: each round adds events, and a history is limited.
const (
	maxForced   = 5                // how often a drift policy overwrites drift that differs each time
	maxPause    = 10 * time.Minute // between looks at an open circuit breaker
	maxHostWait = time.Hour        // between two schedulings of an undo that waits for its host
)

// undoEntry schedules the undo of one entry until it is settled, parked, or decided by a person.
func (s *Saga) undoEntry(ctx workflow.Context, it *item) {
	ctx, it.cancel = workflow.WithCancel(ctx)
	policy := it.entry.Policy.WithDefaults()
	limits := Limits{Attempt: policy.Attempt, Heartbeat: policy.Heartbeat}
	began, pause, hostWait := workflow.Now(ctx), time.Second, cmp.Or(it.entry.Policy.HostWait, s.options.HostWait)
	tries := newTries(policy.Attempts)
	isAsking := false // whether the breaker is open still; shown as waiting, and runs if it is not
	defer func() { it.behindBreaker = false }()
	for {
		undone, err := s.runUndo(ctx, it,
			spell{tries.next, hostWait, max(policy.Within-workflow.Now(ctx).Sub(began), time.Second)})
		if isAsking {
			s.plan.running, isAsking = s.plan.running-1, false
		}
		if it.chosen != "" {
			s.endWithdrawn(ctx, it, undone, err)
			return
		}
		var timeout *temporal.TimeoutError
		var app *temporal.ApplicationError
		isUnserved := errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START
		isCutOff := errors.As(err, &app) && app.Type() == string(activities.BreakerOpen)
		s.endWait(it, isUnserved, isCutOff)
		switch {
		case err == nil && it.overwritesDrift(undone):
			it.Forced++
			it.Undone = undone // which is shown if a person must sign for it
			it.force(*undone.Drift, "the step's drift policy", "")
			continue
		case err == nil:
			if it.Forced > 0 && undone.Outcome.Settles() {
				it.Notes = append(it.Notes, "drift was overwritten, as the step's drift policy says")
			}
			s.settleUndo(ctx, it, undone)
			return
		case ctx.Err() != nil: // recalled, so that the workflow can continue as new
			s.plan.setState(it, Pending)
			return
		case isUnserved:
			s.markWaiting(ctx, it, DescribePlace(it.entry.Place))
			if s.options.Pause() {
				s.plan.setState(it, Pending)
				return
			}
			began, hostWait = workflow.Now(ctx), min(2*hostWait, maxHostWait)
			continue
		case isCutOff: // the world was not asked, so this is no try of its undo
			it.behindBreaker = true
			s.markWaiting(ctx, it, "the circuit breaker of "+it.entry.Action)
			if s.options.Pause() {
				s.plan.setState(it, Pending)
				return
			}
			pause = min(max(2*pause, app.NextRetryDelay()), maxPause)
			isAsking = s.awaitTurn(ctx, pause)
			began = workflow.Now(ctx)
			continue
		case errors.As(err, &app) && app.Type() == string(activities.WorkerStopping):
			continue
		case temporal.IsCanceledError(err): // nobody asked for it: a worker let go of the attempt
		case tries.goOn(err):
			pause = time.Minute
		default:
			s.parkRefused(ctx, it, limits.Reason(err), app != nil && app.Type() == string(activities.Unproved))
			return
		}
		spent := workflow.Now(ctx).Add(pause).Sub(began)
		if spent > policy.Within && spent-s.options.Paused(ctx, began) > policy.Within {
			s.parkFailed(ctx, it, fmt.Sprintf("not done within %s: %s", policy.Within, limits.Reason(err)))
			return
		}
		if workflow.Now(ctx).Sub(began) >= patience {
			s.markFailing(it, limits.Reason(err))
		}
		if s.options.Pause() {
			s.plan.setState(it, Pending)
			return
		}
		_ = workflow.Sleep(ctx, pause)
	}
}

// endWithdrawn ends an undo that a person withdrew while it waited for its host, now that it can no
// longer act. If a worker took it at that moment, what it did counts.
func (s *Saga) endWithdrawn(ctx workflow.Context, it *item, undone activities.Undone, err error) {
	switch {
	case err == nil && undone.Outcome.Settles():
		it.Notes = append(it.Notes, "its host had taken it before that: it was undone")
		s.settleUndo(ctx, it, undone)
		return
	case err == nil:
		it.Undone = undone
	case !temporal.IsCanceledError(err):
		it.Notes = append(it.Notes, "its host had taken it before that: "+Reason(err))
	}
	s.plan.setState(it, it.chosen)
	s.countState(ctx, it.report())
}

// overwritesDrift reports whether the step's drift policy overwrites the drift that an undo has
// found. Once its worker has refused that, a person must sign for it.
func (it *item) overwritesDrift(undone activities.Undone) bool {
	return undone.Outcome == activities.Drifted && undone.Drift != nil && it.entry.Policy.Drift == activities.DriftForce &&
		it.Decision.Force != undone.Drift.Digest && it.Forced < maxForced && !it.Signed
}

// endWait ends the wait of an undo for something that is there now, unless it waits for that again.
func (s *Saga) endWait(it *item, isUnserved, isCutOff bool) {
	if it.state == Waiting && (it.behindBreaker != isCutOff || !isUnserved && !isCutOff) {
		s.plan.setState(it, Running)
		it.Reason, it.behindBreaker = "", false
	}
}

// awaitTurn waits until an undo may ask again whether a breaker is open, and takes a place among those
// that run for that, unless it is canceled: many may wait for one breaker.
func (s *Saga) awaitTurn(ctx workflow.Context, pause time.Duration) bool {
	_ = workflow.Sleep(ctx, pause)
	if workflow.Await(ctx, s.hasRoom) != nil {
		return false
	}
	s.plan.running++
	return true
}

// markWaiting shows what an undo waits for that goes on by itself: a worker on the entry's place, or
// a circuit breaker.
func (s *Saga) markWaiting(ctx workflow.Context, it *item, what string) {
	first := it.state != Waiting
	if first {
		it.Parks++
	}
	it.Shown = ""
	it.Reason = "waiting for " + what
	s.plan.setState(it, Waiting)
	if first {
		s.plan.announceItem(it)
	} else {
		s.countState(ctx, it.report())
	}
	s.options.Changed()
}

// isFailing reports whether the entry's undo has failed for minutes, and is tried on.
func (it *item) isFailing() bool { return it.state == Running && it.Reason != "" }

// markFailing shows why the entry's undo fails, while it is tried on, and has a person alerted the
// first time.
func (s *Saga) markFailing(it *item, reason string) {
	isNew := !it.isFailing()
	it.Reason = clip(reason, maxParkReason)
	if isNew {
		s.plan.announceItem(it)
	}
	s.options.Changed()
}

func (s *Saga) parkFailed(ctx workflow.Context, it *item, reason string) {
	it.Undone = activities.Undone{Outcome: activities.Failed}
	s.parkUndo(ctx, it, reason)
}

// parkRefused parks an undo whose error is final. What was shown to a person who must sign for it is
// shown again.
func (s *Saga) parkRefused(ctx workflow.Context, it *item, reason string, isUnproved bool) {
	if !isUnproved || it.Undone.Outcome == "" {
		it.Undone = activities.Undone{Outcome: activities.Failed}
	}
	it.Signed = it.Signed || isUnproved
	s.parkUndo(ctx, it, reason)
}

func (s *Saga) parkUndo(ctx workflow.Context, it *item, reason string) {
	s.plan.parkItem(it, reason)
	if it.state != Parked {
		s.countState(ctx, it.report())
	}
}

func (s *Saga) runUndo(ctx workflow.Context, it *item, bounds spell) (activities.Undone, error) {
	e, policy := it.entry, it.entry.Policy.WithDefaults()
	activityType, summary := e.UndoType, "undo "+e.Step
	if it.Reset {
		activityType, summary = e.Action+".reset", "reset "+e.Step
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              e.Place.Queue,
		ScheduleToCloseTimeout: bounds.left,
		ScheduleToStartTimeout: min(bounds.hostWait, bounds.left),
		StartToCloseTimeout:    min(policy.Attempt, bounds.left),
		HeartbeatTimeout:       policy.Heartbeat,
		WaitForCancellation:    true, // a host may just have taken it, and nothing may run beside an undo that acts
		Summary:                summary,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute,
			MaximumAttempts: int32(bounds.tries), //nolint:gosec // bounded
		},
	})
	decision := it.Decision
	decision.Redoable, decision.Done = s.options.Redoable, s.done[e.Token]
	if known, ok := s.results[e.Token]; ok {
		decision.Result = &known
	}
	var undone activities.Undone
	err := workflow.ExecuteActivity(ctx, activityType, activities.Backward{Entry: e, Decision: decision}).Get(ctx, &undone)
	return undone, err
}

// maxAttempts bounds the attempts that a policy may ask for.
const maxAttempts = 1_000_000

func (s *Saga) settleUndo(ctx workflow.Context, it *item, undone activities.Undone) {
	it.Undone, it.Reason, it.Shown = undone, "", ""
	switch {
	case undone.Outcome.Settles():
		s.plan.setState(it, Settled)
		s.plan.heal(it)
	case undone.Outcome == activities.Drifted && it.entry.Policy.Drift == activities.DriftSkip:
		it.Reason = "drifted; skipped, as the step's drift policy says"
		s.plan.setState(it, Skipped)
	case undone.Outcome == "":
		s.parkFailed(ctx, it,
			fmt.Sprintf("the undo %s returned no outcome: whether it has undone anything is not known", it.entry.UndoType))
		return
	case undone.Outcome == activities.Drifted:
		s.parkUndo(ctx, it, "someone else changed it since: "+undone.Observed)
		return
	default:
		s.parkUndo(ctx, it, undone.Observed)
		return
	}
	s.countState(ctx, it.report())
}

// heal notes of other entries that an undo has removed what their own had left over.
func (p *plan) heal(by *item) {
	for _, it := range p.items {
		if it.Undone.Outcome == activities.Residue && slices.Contains(by.Undone.Heals, it.entry.Token) {
			it.Undone.Outcome, it.Undone.Losses = activities.Compensated, nil
			it.Undone.Observed = fmt.Sprintf("healed by the undo of step %s; until then: %s", by.entry.Step, it.Undone.Observed)
		}
	}
}

// countState counts, in the worker's metrics, how an undo ended or that it needs attention.
func (s *Saga) countState(ctx workflow.Context, r StepReport) {
	metrics := workflow.GetMetricsHandler(ctx).WithTags(map[string]string{"action": r.Action})
	switch UndoState(r.State) {
	case Parked:
		metrics.Counter(MetricParked).Inc(1)
	case Waiting:
		metrics.Counter(MetricWaiting).Inc(1)
	case Running: // it fails, and is tried on
	default:
		metrics.WithTags(map[string]string{"outcome": string(r.Outcome)}).Counter(MetricUndone).Inc(1)
	}
}

// DescribePlace names who serves a place: its host, or a worker on its queue.
func DescribePlace(p activities.Place) string {
	if p.Host != "" {
		return "host " + p.Host
	}
	return "a worker on queue " + p.Queue
}
