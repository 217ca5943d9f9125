package compensations

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations/inbox"
)

// Metrics of the workflow's worker. They have the tag action, and MetricUndone also has outcome.
const (
	MetricParked = "unwind_undo_parked"
	// MetricWaiting counts undos that wait for a worker.
	MetricWaiting = "unwind_undo_waiting"
	MetricUndone  = "unwind_undo_done"
)

// Options are the settings of a Saga. The zero value is usable.
type Options struct {
	// Identity is what tokens are made from: the same in every run of a chain. Defaults to the
	// FirstRunID of the workflow.
	Identity string
	// Undo is the policy of steps that have none. Defaults to UndoPolicy's own defaults.
	Undo activities.UndoPolicy
	// HostWait is how long an undo stays on the queue of a host before it shows as waiting for that
	// host, unless its policy says otherwise; it is then rescheduled for as long as it takes. Defaults
	// to 2 minutes.
	HostWait time.Duration
	// Parallel is how many undos run at once; those that depend on each other never do. Defaults to 1:
	// strictly last in first out.
	Parallel int
	// Redoable makes undos keep what they remove, where a world can, so that they can be reversed.
	Redoable bool
	// Changed is called when the state of an entry has changed while the saga unwinds. Defaults to a
	// no-op.
	Changed func()
	// Alert is called, in a coroutine of its own, when undos need a person or wait for their host:
	// with at most 50 undos at a time, and at most 10 calls at once. It may schedule an activity.
	// Defaults to a no-op.
	Alert func(ctx workflow.Context, undos []StepReport)
	// Pause makes Unwind and UnwindSteps start no further undo, and return when none is running, so
	// that the workflow can continue as new with Carry. Defaults to never.
	Pause func() bool
	// Paused returns for how long the workflow was paused in Temporal since then, which counts for no
	// budget. It is asked when a budget is used up, and may schedule an activity. Defaults to never.
	Paused func(ctx workflow.Context, since time.Time) time.Duration
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
	if o.Paused == nil {
		o.Paused = func(workflow.Context, time.Time) time.Duration { return 0 }
	}
	return o
}

// Saga holds the ledger of one workflow and unwinds it. All calls come from that workflow's
// coroutines.
type Saga struct {
	options Options
	ledger  Ledger
	inbox   inbox.Inbox // receives nothing before Listen

	past       Past                // what earlier runs and partial unwindings have done
	progress   map[string]Progress // what they found out about entries that are still on the ledger, by token
	done       map[string]bool     // the tokens whose forwards are known to have succeeded
	results    Results             // what is known of their results
	unfinished []int               // the sequence numbers of the entries that a paused UnwindSteps has yet to undo

	plan   *plan // nil while nothing unwinds
	cause  Cause
	alerts int // the number of running calls of Options.Alert
}

// New makes a saga for the workflow of ctx.
func New(ctx workflow.Context, o Options) *Saga {
	return &Saga{options: o.withDefaults(ctx), done: map[string]bool{}, results: Results{}}
}

// Step is what a saga must know of a step to undo it.
type Step struct {
	// ID is unique in the workflow.
	ID string
	// Action is the activity type of the forward, Undo that of the compensation.
	Action, Undo string
	// ReadOnly steps have no Undo: there is nothing to undo.
	ReadOnly bool
	// Generation counts the repetitions of the step: a step that is repeated after an undo has another
	// token. Defaults to 1.
	Generation int
	// Place is where forward and undo run. Its Queue defaults to the workflow's own; the other fields
	// are for actions that keep a journal.
	Place activities.Place
	// Needs are the steps that this one builds on: they are undone after it.
	Needs []string
	// Keys are the resources that the step touches, Changes and Reads their canonical names: see
	// activities.Entry.
	Keys, Changes, Reads []string
	// Params are what the undo needs, as data.
	Params json.RawMessage
	// UndoOutputs names the outputs of the forward that the undo is given: see MarkDone.
	UndoOutputs []string
	// Policy bounds the undo. Zero fields default to Options.Undo.
	Policy activities.UndoPolicy
	// Savepoint names the place in the ledger just before this step.
	Savepoint string
	// Pivot marks a step past which nothing is unwound once it is done: see CommitEntries.
	Pivot bool
	// Commits means that the action wants to be told when its task has committed: see
	// activities.Committer.
	Commits bool
	// Keep is how long the step can be rolled back after the task's end. Defaults to
	// activities.DefaultKeep.
	Keep time.Duration
	// Pinned keeps the record for all of that time, however many newer ones there are and however much
	// space they take.
	Pinned bool
	// Redoes is the token of the rolled-back step that this one repeats.
	Redoes string
	// Corrected means that a person has given the step other parameters than its document.
	Corrected bool
}

// Register puts a step on the ledger, before its forward is scheduled, and returns the entry that
// must be an argument of the forward. Registering the same step and generation again returns the
// same entry. If a step has no Undo and is not ReadOnly, or another step has its id, Register
// panics, and so fails the workflow task until the code is fixed.
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
	generation := 0
	if step.Generation > 1 {
		generation = step.Generation
	}
	e, fresh := s.ledger.Push(activities.Entry{
		Step: step.ID, Action: step.Action, UndoType: step.Undo,
		Token: activities.NewToken(s.options.Identity, step.ID, max(1, step.Generation)),
		Since: workflow.Now(ctx).UTC().Truncate(time.Second),
		Place: step.Place, Needs: step.Needs, Keys: step.Keys, Changes: step.Changes, Reads: step.Reads, Params: step.Params,
		UndoOutputs: step.UndoOutputs, Policy: policy.Compact(),
		Savepoint: step.Savepoint, Pivot: step.Pivot, Commits: step.Commits, Keep: step.Keep, Pinned: step.Pinned,
		Redoes:     step.Redoes,
		Generation: generation, Corrected: step.Corrected,
	})
	if !fresh && (e.Action != step.Action || e.UndoType != step.Undo) {
		panic(fmt.Sprintf("compensations: step %q is registered already, with undo %q", step.ID, e.UndoType))
	}
	return e
}

// Forward registers a step and returns the argument of its forward, which an argument of your own
// can embed. The ledger can be rebuilt from these arguments in a history, and they tell a forward
// that its run was reset (activities.SameRun).
func (s *Saga) Forward(ctx workflow.Context, step Step) activities.Forward {
	return activities.Forward{Entry: s.Register(ctx, step), OriginalRunID: OriginalRun(ctx)}
}

// OriginalRun returns the id of the run that this one was reset from, or its own id if it was not
// reset.
func OriginalRun(ctx workflow.Context) string {
	info := workflow.GetInfo(ctx)
	return cmp.Or(info.OriginalRunID, info.WorkflowExecution.RunID) // the test environment sets no OriginalRunID
}

// Configure changes the options of a saga that is not unwinding yet, and keeps its ledger.
func (s *Saga) Configure(ctx workflow.Context, o Options) { s.options = o.withDefaults(ctx) }

// Adopt adds the entries of another run of the same task: a dead one, or the one that this run was
// reset from.
func (s *Saga) Adopt(entries []activities.Entry) { s.ledger.Adopt(entries) }

// CommitEntries takes entries off the ledger for good: they stay done, and this workflow never
// undoes them.
func (s *Saga) CommitEntries(isCommitted func(activities.Entry) bool) {
	committed := map[string]bool{}
	for _, e := range s.ledger.Entries() {
		if isCommitted(e) {
			committed[e.Token] = true
		}
	}
	s.ledger.Drop(func(token string) bool { return committed[token] })
}

// Entries returns the ledger, the oldest entry first.
func (s *Saga) Entries() []activities.Entry { return s.ledger.Entries() }

// Last is the highest sequence number that an entry was given.
func (s *Saga) Last() int { return s.ledger.last }

// Unwinding reports whether Unwind was called, or UnwindSteps is under way.
func (s *Saga) Unwinding() bool { return s.plan != nil }

// Pending returns the number of entries that are not settled, and how many of those wait for a
// person.
func (s *Saga) Pending() (pending, parked int) {
	if s.plan == nil {
		return len(s.ledger.Entries()), 0
	}
	return s.plan.unsettled, len(s.plan.parked)
}

// Report describes the unwinding so far. Before Unwind it lists the ledger.
func (s *Saga) Report() Report {
	if s.plan != nil {
		return s.report(s.past)
	}
	r := Report{Status: Open, Notes: s.inbox.Ignored().Notes()}
	r.Steps = append(r.Steps, s.past.Steps...)
	for _, e := range s.ledger.Entries() {
		r.Steps = append(r.Steps, StepReport{Step: e.Step, Action: e.Action, Try: e.Generation, State: string(Registered)})
	}
	return r
}

// Recent returns the last n entries whose undo has begun, the newest first, and all entries that
// wait for a person.
func (s *Saga) Recent(n int) (recent, parked []StepReport) {
	if s.plan == nil {
		return nil, nil
	}
	for _, it := range slices.Backward(s.plan.started[max(0, len(s.plan.started)-n):]) {
		recent = append(recent, it.report())
	}
	for _, it := range s.plan.parked {
		parked = append(parked, it.report())
	}
	return recent, parked
}

// Failing returns the first n entries whose undo has failed for minutes, and is tried on; Reason
// says why it failed last.
func (s *Saga) Failing(n int) (failing []StepReport) {
	if s.plan == nil {
		return nil
	}
	for _, it := range s.plan.started {
		if it.isFailing() && len(failing) < n {
			failing = append(failing, it.report())
		}
	}
	return failing
}

// FirstParked is the step of the oldest park; empty where none waits for a person.
func (s *Saga) FirstParked() string {
	if s.plan == nil || len(s.plan.parked) == 0 {
		return ""
	}
	return s.plan.parked[0].entry.Step
}

// Past returns what became of the entries that have left the ledger.
func (s *Saga) Past() Past { return s.past }

// Resolve decides a parked undo. An error says why the resolution decides nothing.
func (s *Saga) Resolve(r Resolution) error {
	decide := s.resolveBetweenPlans
	if s.plan != nil {
		decide = s.plan.resolvePark
	}
	if err := decide(r); err != nil {
		return err
	}
	s.options.Changed()
	return nil
}

// CheckResolution returns why Resolve would refuse a resolution, and changes nothing.
func (s *Saga) CheckResolution(r Resolution) error {
	it, err := s.findUndo(r.Step)
	if err == nil {
		_, err = it.checkResolution(r)
	}
	return err
}

// UndoState is the present state of a step's undo; empty if none has begun.
func (s *Saga) UndoState(step string) UndoState {
	it, err := s.findUndo(step)
	if err != nil {
		return ""
	}
	return it.state
}

// UndoOf describes a step's undo; false if none has begun.
func (s *Saga) UndoOf(step string) (StepReport, bool) {
	it, err := s.findUndo(step)
	if err != nil {
		return StepReport{}, false
	}
	return it.report(), true
}

func (s *Saga) findUndo(step string) (*item, error) {
	if s.plan != nil {
		return s.plan.findItem(step)
	}
	e, known, err := s.findProgress(step)
	return known.item(e), err
}

// resolveBetweenPlans decides a park of a paused unwinding: between two runs, or before the next
// run has made its plan.
func (s *Saga) resolveBetweenPlans(r Resolution) error {
	e, known, err := s.findProgress(r.Step)
	if err != nil {
		return err
	}
	decided, err := known.Resolve(e, r)
	if err != nil {
		return err
	}
	s.progress[e.Token] = decided
	return nil
}

// findProgress returns what is known of a step whose undo has begun.
func (s *Saga) findProgress(step string) (activities.Entry, Progress, error) {
	for _, e := range slices.Backward(s.ledger.Entries()) {
		if known, begun := s.progress[e.Token]; begun && e.Step == step {
			return e, known, nil
		}
	}
	return activities.Entry{}, Progress{}, fmt.Errorf("nothing is parked: no undo of step %q waits for a person", step)
}
