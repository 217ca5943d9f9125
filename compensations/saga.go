package compensations

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
)

// Metrics of the workflow's worker, with the tag action, and outcome for what was undone.
const (
	MetricParked = "unwind_undo_parked"
	// MetricWaiting counts undos that wait for a worker.
	MetricWaiting = "unwind_undo_waiting"
	MetricUndone  = "unwind_undo_done"
)

// Options are the settings of a Saga. The zero value is right.
type Options struct {
	// Identity makes the tokens: the same in every run of a chain. Defaults to the FirstRunID of the workflow.
	Identity string
	// Undo is the policy of steps that bring none. Defaults to UndoPolicy's own defaults.
	Undo activities.UndoPolicy
	// HostWait is how long an undo stays on the queue of a host before it shows as waiting for that host, where its policy
	// does not say; it is then scheduled anew, for as long as it takes. Defaults to 2 minutes.
	HostWait time.Duration
	// Changed is called when the state of an entry has changed while the saga unwinds. Defaults to nothing.
	Changed func()
}

func (o Options) withDefaults(ctx workflow.Context) Options {
	if o.Identity == "" {
		o.Identity = workflow.GetInfo(ctx).FirstRunID
	}
	if o.HostWait == 0 {
		o.HostWait = 2 * time.Minute
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	return o
}

// Saga is the ledger of one workflow and what unwinds it. All calls come from that workflow's coroutines.
type Saga struct {
	options Options
	ledger  Ledger
	plan    *plan // nil while the workflow goes forward
	cause   Cause
}

// New makes a saga for the workflow of ctx.
func New(ctx workflow.Context, o Options) *Saga {
	return &Saga{options: o.withDefaults(ctx)}
}

// Step is what a saga must know of a step to take it back.
type Step struct {
	// ID is unique in the workflow.
	ID string
	// Action is the activity type of the forward, Undo that of the compensation; empty: there is nothing to take back.
	Action, Undo string
	// Generation tells a step that is done anew after it was undone from the first time. Defaults to 1.
	Generation int
	// Place is where forward and undo run.
	Place activities.Place
	// Needs are the steps that this one builds on: they are undone after it.
	Needs []string
	// Keys are the resources that it touches.
	Keys []string
	// Params are what the undo needs, as data.
	Params json.RawMessage
	// Policy bounds the undo. Zero fields default to Options.Undo.
	Policy activities.UndoPolicy
}

// Register puts a step on the ledger, before its forward is scheduled, and returns the entry that must be an argument of
// the forward. Registering the same step and generation again returns the same entry.
func (s *Saga) Register(ctx workflow.Context, step Step) activities.Entry {
	if step.Generation == 0 {
		step.Generation = 1
	}
	policy := step.Policy
	policy.Attempt = cmp.Or(policy.Attempt, s.options.Undo.Attempt)
	policy.Within = cmp.Or(policy.Within, s.options.Undo.Within)
	policy.Heartbeat = cmp.Or(policy.Heartbeat, s.options.Undo.Heartbeat)
	e := activities.Entry{
		Step: step.ID, Action: step.Action, UndoType: step.Undo,
		Token: activities.NewToken(s.options.Identity, step.ID, step.Generation), Since: workflow.Now(ctx).UTC(),
		Place: step.Place, Needs: step.Needs, Keys: step.Keys, Params: step.Params, Policy: policy.Compact(),
	}
	e, fresh := s.ledger.Push(e)
	if !fresh {
		for _, known := range s.ledger.Entries() {
			if known.Token == e.Token {
				return known
			}
		}
	}
	return e
}

// Adopt takes over the entries of another run of the same task (the run that this one was reset from).
func (s *Saga) Adopt(entries []activities.Entry) { s.ledger.Adopt(entries) }

// Entries is the ledger, the oldest first.
func (s *Saga) Entries() []activities.Entry { return s.ledger.Entries() }

// Unwinding says that Unwind was called.
func (s *Saga) Unwinding() bool { return s.plan != nil }

// Pending is how many entries are not settled, and how many of those wait for a person.
func (s *Saga) Pending() (pending, parked int) {
	if s.plan == nil {
		return len(s.ledger.Entries()), 0
	}
	return s.plan.counts()
}

// Report tells how the unwinding stands. Before Unwind it lists the ledger.
func (s *Saga) Report() Report {
	if s.plan != nil {
		return s.plan.report(s.cause)
	}
	r := Report{Status: Open}
	for _, e := range s.ledger.Entries() {
		r.Steps = append(r.Steps, StepReport{Step: e.Step, Action: e.Action, State: string(Registered)})
	}
	return r
}

// Resolve decides a parked undo. An error says why the resolution decides nothing.
func (s *Saga) Resolve(r Resolution) error {
	if s.plan == nil {
		return errors.New("nothing is parked: the task is not unwinding")
	}
	if err := s.plan.resolve(r); err != nil {
		return err
	}
	s.options.Changed()
	return nil
}

// Unwind undoes every entry, last in first out among those that depend on each other, and returns when each one is
// settled. No cancellation reaches it. One undo runs at a time; one that waits for its host or is parked holds back only
// what it needs.
func (s *Saga) Unwind(ctx workflow.Context, cause Cause) Report {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	began := workflow.Now(ctx)
	s.plan, s.cause = newPlan(s.ledger.Entries()), cause
	s.options.Changed()

	var active *item
	for !s.plan.done() {
		if active == nil || active.state != Running {
			if active = s.plan.next(); active != nil {
				s.start(ctx, active)
			} else if s.plan.held() != nil {
				s.options.Changed()
			}
		}
		// A busy one must leave Running; else something must become free, by a person or by a host that is back.
		current := active
		_ = workflow.Await(ctx, func() bool {
			if current != nil {
				return current.state != Running
			}
			return s.plan.next() != nil || s.plan.done() || s.plan.heldBack()
		})
	}
	r := s.plan.report(cause)
	r.Took = workflow.Now(ctx).Sub(began)
	return r
}

// start undoes one entry in a coroutine of its own.
func (s *Saga) start(ctx workflow.Context, it *item) {
	if it.entry.UndoType == "" { // a step that only reads
		it.state, it.undone = Settled, activities.Undone{Outcome: activities.Nothing}
		return
	}
	it.state = Running
	s.options.Changed()
	workflow.GoNamed(ctx, "undo "+it.entry.Step, func(ctx workflow.Context) {
		s.undo(ctx, it)
		s.options.Changed()
	})
}

// Bounds of what goes on by itself: each round is a few events in a history that has an end.
const (
	maxForced   = 5                // times that a drift policy overwrites drift which is another each time
	maxPause    = 10 * time.Minute // between looks at an open circuit breaker
	maxHostWait = time.Hour        // between two schedulings of an undo that waits for its host
)

// undo schedules the undo of one entry until it is settled, parked, or decided by a person.
func (s *Saga) undo(ctx workflow.Context, it *item) {
	ctx, it.cancel = workflow.WithCancel(ctx)
	began, pause, hostWait := workflow.Now(ctx), time.Second, cmp.Or(it.entry.Policy.HostWait, s.options.HostWait)
	for {
		undone, err := s.attempt(ctx, it, hostWait)
		if it.state != Running && it.state != Waiting {
			return // resolved meanwhile
		}
		var timeout *temporal.TimeoutError
		var app *temporal.ApplicationError
		switch {
		case err == nil && it.forces(undone):
			it.forced++
			it.decision = activities.Decision{Force: undone.Drift.Digest, Who: "the step's drift policy"}
			continue
		case err == nil:
			if it.forced > 0 && undone.Outcome.Settles() {
				it.notes = append(it.notes, "drift was overwritten, as the step's drift policy says")
			}
			s.settle(it, undone)
			s.count(ctx, it)
			return
		case errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START:
			it.wait("waiting for " + place(it.entry.Place))
			s.count(ctx, it)
			s.options.Changed()
			began, hostWait = workflow.Now(ctx), min(2*hostWait, maxHostWait)
			continue
		case errors.As(err, &app) && app.Type() == string(activities.WorkerStopping):
			continue
		case errors.As(err, &app) && app.Type() == string(activities.BreakerOpen):
			pause = min(max(2*pause, app.NextRetryDelay()), maxPause)
		case temporal.IsCanceledError(err): // nobody asked for it: a worker let go of the attempt
		default:
			s.fail(ctx, it, Reason(err))
			return
		}
		if within := it.entry.Policy.WithDefaults().Within; workflow.Now(ctx).Add(pause).Sub(began) > within {
			s.fail(ctx, it, fmt.Sprintf("not done within %s: %s", within, Reason(err)))
			return
		}
		_ = workflow.Sleep(ctx, pause)
	}
}

// forces says that the step's drift policy overwrites what an undo has found.
func (it *item) forces(undone activities.Undone) bool {
	return undone.Outcome == activities.Drifted && undone.Drift != nil && it.driftPolicy() == activities.DriftForce &&
		it.decision.Force != undone.Drift.Digest && it.forced < maxForced
}

// wait shows that no worker serves the entry's place.
func (it *item) wait(reason string) {
	if it.state != Waiting {
		it.parks++
	}
	it.state, it.reason = Waiting, reason
}

func (s *Saga) fail(ctx workflow.Context, it *item, reason string) {
	it.undone = activities.Undone{Outcome: activities.Failed}
	s.plan.park(it, reason)
	s.count(ctx, it)
}

func (s *Saga) attempt(ctx workflow.Context, it *item, hostWait time.Duration) (activities.Undone, error) {
	e, policy := it.entry, it.entry.Policy.WithDefaults()
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              e.Place.Queue,
		ScheduleToCloseTimeout: policy.Within,
		ScheduleToStartTimeout: min(hostWait, policy.Within),
		StartToCloseTimeout:    min(policy.Attempt, policy.Within),
		HeartbeatTimeout:       policy.Heartbeat,
		Summary:                "undo " + e.Step,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute,
		},
	})
	var undone activities.Undone
	err := workflow.ExecuteActivity(ctx, e.UndoType, activities.Backward{Entry: e, Decision: it.decision}).Get(ctx, &undone)
	return undone, err
}

func (s *Saga) settle(it *item, undone activities.Undone) {
	it.undone, it.reason = undone, ""
	switch {
	case undone.Outcome.Settles():
		it.state = Settled
	case undone.Outcome == activities.Drifted && it.driftPolicy() == activities.DriftSkip:
		it.state, it.reason = Skipped, "drifted; skipped, as the step's drift policy says"
	case undone.Outcome == activities.Drifted:
		s.plan.park(it, "someone else changed it since: "+undone.Observed)
	default:
		s.plan.park(it, undone.Observed)
	}
}

// count tells the worker's metrics how an undo ended: what is parked needs somebody's eyes.
func (s *Saga) count(ctx workflow.Context, it *item) {
	metrics := workflow.GetMetricsHandler(ctx).WithTags(map[string]string{"action": it.entry.Action})
	switch it.state {
	case Parked:
		metrics.Counter(MetricParked).Inc(1)
		return
	case Waiting:
		metrics.Counter(MetricWaiting).Inc(1)
		return
	case Registered, Pending, Running, Settled, Accepted, Skipped:
	}
	metrics.WithTags(map[string]string{"outcome": string(it.undone.Outcome)}).Counter(MetricUndone).Inc(1)
}

func (it *item) driftPolicy() activities.DriftPolicy {
	if it.entry.Policy.Drift == "" {
		return activities.DriftAsk
	}
	return it.entry.Policy.Drift
}

func place(p activities.Place) string {
	if p.Host != "" {
		return "host " + p.Host
	}
	return "a worker on queue " + p.Queue
}

// Reason is an activity's error in the words that a person needs: the innermost message, with its type.
func Reason(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return fmt.Sprintf("%s: %s", app.Type(), app.Message())
	}
	if timeout, ok := errors.AsType[*temporal.TimeoutError](err); ok {
		if last := timeout.Unwrap(); last != nil {
			return fmt.Sprintf("timed out (%s); the last error was: %s", timeout.TimeoutType(), Reason(last))
		}
		return fmt.Sprintf("timed out (%s)", timeout.TimeoutType())
	}
	if panicked, ok := errors.AsType[*temporal.PanicError](err); ok {
		return "the activity panicked: " + panicked.Error()
	}
	return err.Error()
}
