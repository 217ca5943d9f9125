package compensations

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	// Parallel is how many undos run at once; those that depend on each other never do. Defaults to 1: strictly the last
	// one first.
	Parallel int
	// Redoable keeps what the undos take away, where a world can, so that they can be taken back.
	Redoable bool
	// Changed is called when the state of an entry has changed while the saga unwinds. Defaults to nothing.
	Changed func()
	// Alert is called, in a coroutine of its own, when an undo needs a person or waits for its host. It may schedule
	// activities. Defaults to nothing.
	Alert func(ctx workflow.Context, s StepReport)
	// Pause makes Unwind and UnwindSteps start no further undo, and return when none runs, so that the workflow can continue
	// as new with Carry. Defaults to never.
	Pause func() bool
}

func (o Options) withDefaults(ctx workflow.Context) Options {
	o.Identity = cmp.Or(o.Identity, workflow.GetInfo(ctx).FirstRunID)
	o.HostWait = cmp.Or(o.HostWait, 2*time.Minute)
	o.Parallel = cmp.Or(o.Parallel, 1)
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Pause == nil {
		o.Pause = func() bool { return false }
	}
	return o
}

// Saga is the ledger of one workflow and what unwinds it. All calls come from that workflow's coroutines.
type Saga struct {
	options Options
	ledger  Ledger
	past    Past            // what earlier runs and partial unwindings have done
	left    map[string]Left // what they know of entries that they have left, by token
	part    []int           // the entries that UnwindSteps has still to undo, by sequence number, where it was paused
	plan    *plan           // nil while nothing unwinds
	cause   Cause
	alerts  int // that are under way

	signals workflow.ReceiveChannel // nil while nobody has called Listen
	ignored []string                // of those
}

// New makes a saga for the workflow of ctx.
func New(ctx workflow.Context, o Options) *Saga {
	return &Saga{options: o.withDefaults(ctx)}
}

// Step is what a saga must know of a step to take it back.
type Step struct {
	// ID is unique in the workflow.
	ID string
	// Action is the activity type of the forward, Undo that of the compensation.
	Action, Undo string
	// ReadOnly steps have no Undo: there is nothing to take back.
	ReadOnly bool
	// Generation tells a step that is done anew after it was undone from the first time. Defaults to 1.
	Generation int
	// Place is where forward and undo run. Its Queue defaults to the workflow's own; the rest is for actions that keep a
	// journal.
	Place activities.Place
	// Needs are the steps that this one builds on: they are undone after it.
	Needs []string
	// Keys are the resources that it touches.
	Keys []string
	// Params are what the undo needs, as data.
	Params json.RawMessage
	// Policy bounds the undo. Zero fields default to Options.Undo.
	Policy activities.UndoPolicy
	// Savepoint names the place in the ledger just before this step.
	Savepoint string
	// Pivot marks a step that, once it is done, is not unwound past: see Keep.
	Pivot bool
	// Commits says that the action wants to be told when its task has committed: see activities.Committer.
	Commits bool
	// Keep is how long it can be rolled back after the end; zero is activities.DefaultKeep.
	Keep time.Duration
	// Pinned keeps its record for all of that time, however many newer ones there are and however much they take.
	Pinned bool
	// Redoes is the token of the rolled back step that this one does again.
	Redoes string
}

// Register puts a step on the ledger, before its forward is scheduled, and returns the entry that must be an argument of
// the forward. Registering the same step and generation again returns the same entry. It panics, and so fails the workflow
// task until the code is mended, where a step has no Undo and is not ReadOnly, or its id is another step's.
func (s *Saga) Register(ctx workflow.Context, step Step) activities.Entry {
	if step.Undo == "" != step.ReadOnly {
		panic(fmt.Sprintf("compensations: step %q must have an Undo or be ReadOnly", step.ID))
	}
	step.Place.Queue = cmp.Or(step.Place.Queue, workflow.GetInfo(ctx).TaskQueueName)
	policy := step.Policy
	policy.Attempt = cmp.Or(policy.Attempt, s.options.Undo.Attempt)
	policy.Within = cmp.Or(policy.Within, s.options.Undo.Within)
	policy.Attempts = cmp.Or(policy.Attempts, s.options.Undo.Attempts)
	policy.Heartbeat = cmp.Or(policy.Heartbeat, s.options.Undo.Heartbeat)
	if step.Keep == activities.DefaultKeep {
		step.Keep = 0
	}
	e, fresh := s.ledger.Push(activities.Entry{
		Step: step.ID, Action: step.Action, UndoType: step.Undo,
		Token: activities.NewToken(s.options.Identity, step.ID, max(1, step.Generation)), Since: workflow.Now(ctx).UTC().Truncate(time.Second),
		Place: step.Place, Needs: step.Needs, Keys: step.Keys, Params: step.Params, Policy: policy.Compact(),
		Savepoint: step.Savepoint, Pivot: step.Pivot, Commits: step.Commits, Keep: step.Keep, Pinned: step.Pinned, Redoes: step.Redoes,
	})
	if !fresh && (e.Action != step.Action || e.UndoType != step.Undo) {
		panic(fmt.Sprintf("compensations: step %q is registered already, with undo %q", step.ID, e.UndoType))
	}
	return e
}

// Forward registers a step and returns what its forward gets: the argument from which a history alone tells the ledger, and
// by which a run that was reset is known (activities.SameRun). An argument of your own embeds it.
func (s *Saga) Forward(ctx workflow.Context, step Step) activities.Forward {
	return activities.Forward{Entry: s.Register(ctx, step), OriginalRunID: OriginalRun(ctx)}
}

// OriginalRun is the id of the run that this one was reset from; its own where it was not.
func OriginalRun(ctx workflow.Context) string {
	info := workflow.GetInfo(ctx)
	return cmp.Or(info.OriginalRunID, info.WorkflowExecution.RunID) // the test environment tells no original
}

// Configure changes the options of a saga that does not unwind yet. Its ledger is kept.
func (s *Saga) Configure(ctx workflow.Context, o Options) { s.options = o.withDefaults(ctx) }

// Adopt takes over the entries of another run of the same task: the one that this one was reset from, or that is dead.
func (s *Saga) Adopt(entries []activities.Entry) { s.ledger.Adopt(entries) }

// Keep takes entries off the ledger for good: they stay done, and nothing of this workflow undoes them any more.
func (s *Saga) Keep(which func(activities.Entry) bool) {
	kept := map[string]bool{}
	for _, e := range s.ledger.Entries() {
		if which(e) {
			kept[e.Token] = true
		}
	}
	s.ledger.Drop(func(token string) bool { return kept[token] })
}

// Entries is the ledger, the oldest first.
func (s *Saga) Entries() []activities.Entry { return s.ledger.Entries() }

// Unwinding says that an unwinding is under way, or is over.
func (s *Saga) Unwinding() bool { return s.plan != nil }

// Pending is how many entries are not settled, and how many of those wait for a person.
func (s *Saga) Pending() (pending, parked int) {
	if s.plan == nil {
		return len(s.ledger.Entries()), 0
	}
	return s.plan.open, len(s.plan.parked)
}

// Report tells how the unwinding stands. Before Unwind it lists the ledger.
func (s *Saga) Report() Report {
	if s.plan != nil {
		return s.report(s.past)
	}
	r := Report{Status: Open, Notes: slices.Clone(s.ignored)}
	r.Steps = append(r.Steps, s.past.Steps...)
	for _, e := range s.ledger.Entries() {
		r.Steps = append(r.Steps, StepReport{Step: e.Step, Action: e.Action, State: string(Registered)})
	}
	return r
}

// Recent are the last n entries whose undo has begun, the newest first, and all that wait for a person.
func (s *Saga) Recent(n int) (recent, parked []StepReport) {
	if s.plan == nil {
		return nil, nil
	}
	for _, it := range slices.Backward(s.plan.begun[max(0, len(s.plan.begun)-n):]) {
		recent = append(recent, it.report())
	}
	for _, it := range s.plan.parked {
		parked = append(parked, it.report())
	}
	return recent, parked
}

// Past is what became of the entries that are off the ledger.
func (s *Saga) Past() Past { return s.past }

// Resolve decides a parked undo. An error says why the resolution decides nothing.
func (s *Saga) Resolve(r Resolution) error {
	decide := s.resolveLeft // between two runs, or before the second has begun its plan
	if s.plan != nil {
		decide = s.plan.resolve
	}
	if err := decide(r); err != nil {
		return err
	}
	s.options.Changed()
	return nil
}

// resolveLeft decides a park that an unwinding has left, for the plan that takes it up.
func (s *Saga) resolveLeft(r Resolution) error {
	for _, e := range slices.Backward(s.ledger.Entries()) {
		known, left := s.left[e.Token]
		if !left || e.Step != r.Step {
			continue
		}
		decided, err := known.Resolve(e, r)
		if err != nil {
			return err
		}
		s.left[e.Token] = decided
		return nil
	}
	return fmt.Errorf("nothing is parked: no undo of step %q waits for a person", r.Step)
}

// Unwind undoes every entry, last in first out among those that depend on each other, and returns when each one is
// settled, or when Options.Pause says so: then the report's status is Open. No cancellation reaches it. One that waits for
// its host or is parked holds back only what it needs.
func (s *Saga) Unwind(ctx workflow.Context, cause Cause) Report {
	began := workflow.Now(ctx)
	s.part = nil
	s.unwind(ctx, cause, s.ledger.Entries())
	r := s.report(s.past)
	r.Took = workflow.Now(ctx).Sub(began)
	return r
}

func (s *Saga) report(before Past) Report {
	r := s.plan.report(before, s.cause)
	r.Notes = slices.Clone(s.ignored)
	return r
}

// UnwindSteps undoes the entries that which names and all that build on them, like Unwind, and leaves the others on the
// ledger: the workflow may go on. The report lists each of those entries. One that a person has skipped stays on the ledger.
//
// Where Options.Pause has interrupted it, the report's status is Open. The next call, of this saga or of the one that Resume
// makes of its Carry, then goes on with what is left, whatever else it is asked for.
func (s *Saga) UnwindSteps(ctx workflow.Context, cause Cause, which func(activities.Entry) bool) Report {
	began := workflow.Now(ctx)
	s.unwind(ctx, cause, Closure(s.ledger.Entries(), func(e activities.Entry) bool {
		_, left := slices.BinarySearch(s.part, e.Seq)
		return left || which(e)
	}))
	r := s.report(Past{})
	r.Took, r.Steps, s.part = workflow.Now(ctx).Sub(began), nil, nil
	for _, it := range s.plan.items {
		r.Steps = append(r.Steps, it.report())
		if r.Status == Open && !it.off() {
			s.part = append(s.part, it.entry.Seq)
		}
	}
	s.fold()
	s.options.Changed()
	return r
}

// Closure is those of entries, the oldest first, that which names, and all that build on them.
func Closure(entries []activities.Entry, which func(activities.Entry) bool) []activities.Entry {
	var closure []activities.Entry
	in := map[string]bool{}
	for _, e := range entries { // what builds on an entry was registered after it
		if which(e) || slices.ContainsFunc(e.Needs, func(need string) bool { return in[need] }) {
			in[e.Step] = true
			closure = append(closure, e)
		}
	}
	return closure
}

func (s *Saga) unwind(ctx workflow.Context, cause Cause, entries []activities.Entry) {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	s.plan, s.cause = newPlan(entries), cause
	s.restore()
	s.options.Changed()
	for {
		s.tell(ctx)
		paused := s.options.Pause()
		for !paused && s.plan.busy < s.options.Parallel && s.plan.next() != nil {
			s.start(ctx, s.plan.next())
		}
		if paused {
			s.letGo()
		}
		if s.plan.done() || paused && s.idle() {
			return
		}
		// Something must end, become free by a person, or be served again by a host that is back.
		_ = workflow.Await(ctx, func() bool {
			return s.plan.done() || len(s.plan.untold) > 0 || s.options.Pause() != paused || paused && s.idle() ||
				!paused && s.plan.busy < s.options.Parallel && s.plan.next() != nil
		})
	}
}

// idle holds when no activity of the unwinding is pending.
func (s *Saga) idle() bool { return s.plan.busy == 0 && len(s.plan.sent) == 0 && s.alerts == 0 }

// letGo takes back the undos that wait for their host.
func (s *Saga) letGo() {
	for _, it := range s.plan.items {
		if it.state == Waiting {
			it.cancel()
		}
	}
}

// start undoes one entry in a coroutine of its own.
func (s *Saga) start(ctx workflow.Context, it *item) {
	if it.entry.UndoType == "" { // a step that only reads
		it.Undone = activities.Undone{Outcome: activities.Nothing}
		s.plan.set(it, Settled)
		return
	}
	s.plan.set(it, Running)
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
	policy := it.entry.Policy.WithDefaults()
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
			it.Forced++
			it.Decision = activities.Decision{Force: undone.Drift.Digest, Who: "the step's drift policy"}
			continue
		case err == nil:
			if it.Forced > 0 && undone.Outcome.Settles() {
				it.Notes = append(it.Notes, "drift was overwritten, as the step's drift policy says")
			}
			s.settle(ctx, it, undone)
			return
		case ctx.Err() != nil: // let go, for the workflow to continue as new
			s.plan.set(it, Pending)
			return
		case errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START:
			s.wait(ctx, it)
			if s.options.Pause() {
				s.plan.set(it, Pending)
				return
			}
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
		if workflow.Now(ctx).Add(pause).Sub(began) > policy.Within {
			s.fail(ctx, it, fmt.Sprintf("not done within %s: %s", policy.Within, Reason(err)))
			return
		}
		_ = workflow.Sleep(ctx, pause)
	}
}

// forces says that the step's drift policy overwrites what an undo has found.
func (it *item) forces(undone activities.Undone) bool {
	return undone.Outcome == activities.Drifted && undone.Drift != nil && it.entry.Policy.Drift == activities.DriftForce &&
		it.Decision.Force != undone.Drift.Digest && it.Forced < maxForced
}

// wait shows that no worker serves the entry's place.
func (s *Saga) wait(ctx workflow.Context, it *item) {
	first := it.state != Waiting
	if first {
		it.Parks++
	}
	it.Shown = ""
	it.Reason = "waiting for " + place(it.entry.Place)
	s.plan.set(it, Waiting)
	s.count(ctx, it)
	if first {
		s.alert(ctx, it)
	}
	s.options.Changed()
}

func (s *Saga) fail(ctx workflow.Context, it *item, reason string) {
	it.Undone = activities.Undone{Outcome: activities.Failed}
	s.park(ctx, it, reason)
}

func (s *Saga) park(ctx workflow.Context, it *item, reason string) {
	s.plan.park(it, reason)
	if it.state != Parked {
		s.count(ctx, it)
	}
	s.tell(ctx)
}

// tell tells about what was parked, also by what became of another one.
func (s *Saga) tell(ctx workflow.Context) {
	for _, it := range s.plan.untold {
		if it.state == Parked {
			s.count(ctx, it)
			s.alert(ctx, it)
		}
	}
	s.plan.untold = nil
}

// alert tells somebody about an undo that needs a person.
func (s *Saga) alert(ctx workflow.Context, it *item) {
	if s.options.Alert == nil || it.state != Parked && it.state != Waiting {
		return
	}
	report := it.report()
	ctx, _ = workflow.NewDisconnectedContext(ctx) // it is told even when it has been resolved meanwhile
	s.alerts++
	workflow.GoNamed(ctx, "alert "+it.entry.Step, func(ctx workflow.Context) {
		s.options.Alert(ctx, report)
		s.alerts--
	})
}

func (s *Saga) attempt(ctx workflow.Context, it *item, hostWait time.Duration) (activities.Undone, error) {
	e, policy := it.entry, it.entry.Policy.WithDefaults()
	activityType, summary := e.UndoType, "undo "+e.Step
	if it.Reset {
		activityType, summary = e.Action+".reset", "reset "+e.Step
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              e.Place.Queue,
		ScheduleToCloseTimeout: policy.Within,
		ScheduleToStartTimeout: min(hostWait, policy.Within),
		StartToCloseTimeout:    min(policy.Attempt, policy.Within),
		HeartbeatTimeout:       policy.Heartbeat,
		Summary:                summary,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute,
			MaximumAttempts: int32(min(policy.Attempts, maxAttempts)), //nolint:gosec // bounded
		},
	})
	decision := it.Decision
	decision.Redoable = s.options.Redoable
	var undone activities.Undone
	err := workflow.ExecuteActivity(ctx, activityType, activities.Backward{Entry: e, Decision: decision}).Get(ctx, &undone)
	return undone, err
}

// maxAttempts bounds what a policy may ask for.
const maxAttempts = 1_000_000

func (s *Saga) settle(ctx workflow.Context, it *item, undone activities.Undone) {
	it.Undone, it.Reason, it.Shown = undone, "", ""
	switch {
	case undone.Outcome.Settles():
		s.plan.set(it, Settled)
	case undone.Outcome == activities.Drifted && it.entry.Policy.Drift == activities.DriftSkip:
		it.Reason = "drifted; skipped, as the step's drift policy says"
		s.plan.set(it, Skipped)
	case undone.Outcome == "":
		s.fail(ctx, it, fmt.Sprintf("the undo %s returned no outcome: whether it has undone anything is not known", it.entry.UndoType))
		return
	case undone.Outcome == activities.Drifted:
		s.park(ctx, it, "someone else changed it since: "+undone.Observed)
		return
	default:
		s.park(ctx, it, undone.Observed)
		return
	}
	s.count(ctx, it)
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
	metrics.WithTags(map[string]string{"outcome": string(it.Undone.Outcome)}).Counter(MetricUndone).Inc(1)
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
		if app.Type() == "" {
			return app.Message()
		}
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
