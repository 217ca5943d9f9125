package activities

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
)

// Host is what a worker provides to all of its actions.
type Host struct {
	// Secrets resolves ${{ secrets.NAME }}. Defaults to none allowed.
	Secrets SecretSource
	// CheckCommands are the programs that command checks may run; "*" is any. Defaults to none.
	CheckCommands []string
	// CheckAddresses are what HTTP checks may ask: HOST, HOST:PORT, or "*" for any. Defaults to none.
	CheckAddresses []string
	// RefuseCutDiffs refuses a planned change whose diff is longer than a gate can show. Defaults to
	// asking a person about it.
	RefuseCutDiffs bool
	// Floors say which changes a person must approve whatever a task says. Defaults to none.
	Floors Floors
	// Purposes record what steps were for. Defaults to none: a purpose of another task is not known.
	Purposes Purposes
	// Rules judge each change, and Passes record which forwards they have let act. Defaults to none: a
	// forward is not planned when it acts.
	Rules  Rules
	Passes Passes
	// Signers verify who has approved a change, or decided about an undo, and Decisions record the latter.
	// Defaults to none: a name is a claim.
	Signers   Signers
	Decisions Decisions
	// Allowances are the standing approvals. Defaults to none.
	Allowances Allowances
}

// Masker returns a Masker of every secret that the worker knows.
func (h Host) Masker() *Masker {
	m := &Masker{}
	if h.Secrets != nil {
		for _, value := range h.Secrets.Values() {
			m.Add(value)
		}
	}
	return m
}

// Registrar is the part of a Temporal worker that Register needs.
type Registrar interface {
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
}

// Register registers every action's activities with a worker.
func (r *Registry) Register(to Registrar, host Host) {
	for name, a := range r.actions {
		spec := a.Spec()
		b := boundAction{action: a, name: name, host: host, records: r.worlds[WorldOf(name)].Records, readOnly: spec.ReadOnly,
			floor: host.Floors.of(spec), intent: spec.Intent}
		for suffix, fn := range map[string]any{
			"": b.apply, ".plan": b.plan, ".undo": b.undo, ".reset": b.reset, ".observe": b.observe, ".release": b.release,
		} {
			to.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name + suffix})
		}
		if c, ok := a.(Committer); ok {
			to.RegisterActivityWithOptions(boundCommitter{c, name, host}.commit,
				activity.RegisterOptions{Name: name + CommitSuffix})
		}
	}
}

// boundAction is an action as a worker runs it.
type boundAction struct {
	action  Action
	name    string
	host    Host
	records Records // of its world; nil if it keeps none

	readOnly bool
	floor    Floor
	intent   []string // see Spec.Intent
}

func (b boundAction) apply(ctx context.Context, given Forward) (Result, error) {
	return runForward(ctx, b.host, b.name, given, func(ctx context.Context, f Forward) (Result, error) {
		if f.Consent == Approved && f.Want == "" {
			f.Consent = Unasked // it says nothing about what was approved
		}
		return b.underRules(ctx, f, given.Step, func(p Pass) (Result, error) {
			ctx := WithApproval(ctx, Approval{Consent: f.Consent, Floor: b.floor, Policy: p.Ruling})
			if b.readOnly { // there is no record that would let a second attempt pass
				if err := Judge(ctx, Change{Risk: Low, Unchanged: true}); err != nil {
					return Result{}, err
				}
			}
			return b.forPurpose(ctx, f, func(want Digest) (Result, error) {
				return b.action.Apply(ctx, f.Entry, f.Step, cmp.Or(p.Change, want))
			})
		})
	}, func(r Result) Result { return capResult(r, given.Entry.UndoOutputs) })
}

func (b boundAction) plan(ctx context.Context, given Forward) (Change, error) {
	return runForward(ctx, b.host, b.name, given, func(ctx context.Context, f Forward) (Change, error) {
		c, err := b.foresee(ctx, f, given.Step)
		if long := len(c.Diff); err == nil && long > MaxDiff && b.host.RefuseCutDiffs {
			return Change{},
				Errorf(Refused,
					"its diff of %s is longer than the %d that a person is shown, and this worker refuses what nobody can read "+
						"(cutDiffs: refuse in its config): split the step", CountOf(long, "byte"), MaxDiff)
		}
		return c, err
	}, capChange)
}

// foresee plans a forward, and refuses what the worker's rules deny. These see the step as it is
// written, with references to secrets.
func (b boundAction) foresee(ctx context.Context, f Forward, written Step) (Change, error) {
	c, err := b.planChange(ctx, f)
	if err != nil {
		return c, err
	}
	if c, err = b.judge(ctx, f, written, c, b.historyOf(ctx)); err != nil {
		return c, err
	}
	return b.findAllowances(ctx, f, c), nil
}

func (b boundAction) planChange(ctx context.Context, f Forward) (Change, error) {
	c, err := b.action.Plan(ctx, f.Entry, f.Step)
	if err != nil {
		return c, err
	}
	c = noteCutDiff(c)
	c.Floor, c.Horizon = b.floor.demand(c), f.horizonOf(c)
	return c, nil
}

// judge adds to a planned change what the worker's rules decide about it.
func (b boundAction) judge(ctx context.Context, f Forward, written Step, c Change, seen *seenHistory) (Change, error) {
	if b.host.Rules != nil {
		masked, err := maskAll(MaskerFrom(ctx), c)
		if err != nil {
			return c, err
		}
		c.Policy = b.host.Rules.Judge(ctx, Case{Task: seen.task, Agent: f.Agent, Action: b.name, Host: f.Entry.Place.Host,
			Step: written, Change: masked, History: seen.read})
		if err := ctx.Err(); err != nil { // whoever was asked could not answer any more
			return c, err
		}
		if c.Policy.denies() {
			return Change{}, Errorf(Denied, "this worker's policy denies the change: %s; nothing was touched",
				c.Policy.Describe())
		}
	}
	return b.purposeOf(ctx, f).mark(c)
}

func (b boundAction) undo(ctx context.Context, back Backward) (Undone, error) {
	return b.backward(ctx, back, verdictForce, b.action.Undo)
}

func (b boundAction) reset(ctx context.Context, back Backward) (Undone, error) {
	r, ok := b.action.(Resetter)
	if !ok {
		return Undone{},
			applicationError(Errorf(Refused, "%s has no reset; retry, force, skip or accept", b.action.Spec().Name), nil)
	}
	return b.backward(ctx, back, verdictReset, r.Reset)
}

func (b boundAction) backward(ctx context.Context, back Backward, verdict string,
	do func(context.Context, Entry, Decision) (Undone, error)) (Undone, error) {
	return callAction(ctx, b.host, b.name, &back.Entry, func(ctx context.Context, _ *Masker) (Undone, error) {
		began := time.Now()
		undone, err := b.asDecided(ctx, back, verdict, func() (Undone, error) { return do(ctx, back.Entry, back.Decision) })
		if err == nil {
			err = b.withdraw(back.Entry, undone)
		}
		if b.records != nil && TypeOf(err) == DamagedRecord {
			err = errors.Join(err, b.records.Claim(ctx, back.Entry))
		}
		if undone.Outcome == Drifted {
			b.nameOthers(ctx, back.Entry, undone.Drift)
		}
		if undone.Took == 0 {
			undone.Took = time.Since(began).Round(time.Millisecond)
		}
		return undone, err
	}, capUndone)
}

func (b boundAction) observe(ctx context.Context, e Entry) (Observation, error) {
	return callAction(ctx, b.host, b.name, &e, func(ctx context.Context, _ *Masker) (Observation, error) {
		seen, err := b.action.Observe(ctx, e)
		b.nameOthers(ctx, e, seen.Drift)
		return seen, err
	}, capObservation)
}

func (b boundAction) release(ctx context.Context, e Entry) error {
	_, err := callAction(ctx, b.host, b.name, &e, func(ctx context.Context, _ *Masker) (struct{}, error) {
		err := b.action.Release(ctx, e)
		if err == nil {
			err = b.forgetDecisions(e)
		}
		return struct{}{}, errors.Join(err, b.forgetPass(e.Token))
	}, func(s struct{}) struct{} { return s })
	return err
}

// CommitSuffix is the suffix of the activity type of a Committer's Commit, as in
// "container.exec.commit".
const CommitSuffix = ".commit"

// boundCommitter is a Committer as a worker runs it.
type boundCommitter struct {
	action Committer
	name   string
	host   Host
}

func (b boundCommitter) commit(ctx context.Context, c Commitment) (Committed, error) {
	// it belongs to no single entry
	return callAction(ctx, b.host, b.name, &Entry{Version: EntryVersion},
		func(ctx context.Context, _ *Masker) (Committed, error) {
			return b.action.Commit(ctx, c)
		}, func(c Committed) Committed {
			c.Notes = capList(c.Notes)
			return c
		})
}

// Release releases a token like its activity, from within another activity of this worker.
func (r *Registry) Release(ctx context.Context, host Host, e Entry) error {
	b, err := r.bind(host, e)
	if err != nil {
		return err
	}
	return b.release(ctx, e)
}

// Observe observes a token like its activity, from within another activity of this worker.
func (r *Registry) Observe(ctx context.Context, host Host, e Entry) (Observation, error) {
	b, err := r.bind(host, e)
	if err != nil {
		return Observation{}, err
	}
	return b.observe(ctx, e)
}

// Undo undoes a token like its activity, from within another activity of this worker.
func (r *Registry) Undo(ctx context.Context, host Host, e Entry, d Decision) (Undone, error) {
	b, err := r.bind(host, e)
	if err != nil {
		return Undone{}, err
	}
	return b.undo(ctx, Backward{Entry: e, Decision: d})
}

// bind is the action of an entry as this worker runs it.
func (r *Registry) bind(host Host, e Entry) (boundAction, error) {
	a := r.Action(e.Action)
	if a == nil {
		return boundAction{}, Errorf(Refused, "this worker does not know the action %q", e.Action)
	}
	return boundAction{action: a, name: e.Action, host: host, records: r.worlds[WorldOf(e.Action)].Records,
		readOnly: a.Spec().ReadOnly, intent: a.Spec().Intent}, nil
}

func ownerOf(info activity.Info) Owner {
	return Owner{Workflow: info.WorkflowExecution.ID, Run: info.WorkflowExecution.RunID}
}

// runForward runs a forward with its secrets. In a run that was reset it fails before anything else
// can.
func runForward[T any](ctx context.Context, host Host, action string, f Forward,
	do func(context.Context, Forward) (T, error), limit func(T) T) (T, error) {
	if err := SameRun(ctx, f.OriginalRunID); err != nil {
		var none T
		return none, err
	}
	return callAction(ctx, host, action, &f.Entry, func(ctx context.Context, m *Masker) (_ T, err error) {
		if f.Step.With, err = resolveSecrets(f.Step.With, host.Secrets, action, m); err != nil {
			var none T
			return none, err
		}
		return do(ctx, f)
	}, limit)
}

// SameRun returns a non-retryable ApplicationError of type ResetRun if the running workflow was
// reset: if its original run's id is not its own.
func SameRun(ctx context.Context, originalRunID string) error {
	if own := activity.GetInfo(ctx).WorkflowExecution.RunID; own != originalRunID {
		return applicationError(Errorf(ResetRun, "run %s was reset from %s; a reset run only unwinds", own, originalRunID),
			nil)
	}
	return nil
}

// callAction runs one call of an action: it resolves secrets, heartbeats, and masks and then caps
// everything that is returned (in that order, because half a secret would not be found). A panic is
// turned into an error, because the SDK would not mask it in the history and in the log.
func callAction[T any](ctx context.Context, host Host, action string, e *Entry,
	do func(context.Context, *Masker) (T, error), limit func(T) T) (v T, err error) {
	var none T
	masker := host.Masker()
	defer func() {
		if p := recover(); p != nil {
			v, err = none, endCall(ctx, Errorf(ActionFailed, "the action panicked: %v", p), masker)
		}
	}()
	if e.Version != EntryVersion {
		return none, applicationError(Errorf(UnknownFormat,
			"recorded by a version that this one cannot undo: the entry has format %d, and this worker knows %d; run a "+
				"worker of the version that recorded it",
			e.Version, EntryVersion), masker)
	}
	params, err := resolveSecrets(e.Params, host.Secrets, action, masker)
	if err != nil {
		return none, applicationError(err, masker)
	}
	e.Params = params
	ctx = context.WithValue(ctx, progressKey, &progress{step: e.Step, masker: masker})
	stop := Beat(ctx)
	defer stop()
	ctx = WithOwner(ctx, ownerOf(activity.GetInfo(ctx)))
	v, err = do(host.allow(WithMasker(ctx, masker)), masker)
	if err != nil || isCutOff(ctx) { // a result is in the journal: the next worker is told it
		return none, endCall(ctx, err, masker)
	}
	if v, err = maskAll(masker, v); err != nil {
		return none, applicationError(err, masker)
	}
	return limit(v), nil
}

// Beat heartbeats for an activity until stop is called, so that a dead process is noticed and a
// cancellation arrives. A call that is over before the first heartbeat is due costs only a timer,
// no goroutine.
func Beat(ctx context.Context) (stop func()) {
	timeout := activity.GetInfo(ctx).HeartbeatTimeout
	if timeout <= 0 {
		return func() {}
	}
	p, _ := ctx.Value(progressKey).(*progress)
	if p == nil {
		p = &progress{}
	}
	done := make(chan struct{})
	first := time.AfterFunc(timeout/3, func() {
		t := time.NewTicker(timeout / 3)
		defer t.Stop()
		for {
			p.beat(ctx)
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-t.C:
			}
		}
	})
	return func() {
		first.Stop()
		close(done)
	}
}

// isCutOff reports whether the worker, which is being stopped, waits no longer for the call. It
// then sends no result any more: the SDK would report an error of its own instead.
func isCutOff(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), worker.ErrWorkerShutdown)
}

// isWorkerStopping reports whether the worker is being stopped. A worker that serves workflows too
// stops these first, and cuts off the calls of its actions with them, before it closes their stop
// channel.
func isWorkerStopping(ctx context.Context) bool {
	if isCutOff(ctx) {
		return true
	}
	select {
	case <-activity.GetWorkerStopChannel(ctx):
		return true
	default:
		return false
	}
}

// endCall returns why a call ended: a cancellation by the workflow, a worker that is being stopped,
// or the call's error.
func endCall(ctx context.Context, err error, m *Masker) error {
	if ctx.Err() == nil {
		return applicationError(err, m)
	}
	if isWorkerStopping(ctx) {
		return applicationError(Errorf(WorkerStopping, "the worker is being stopped"), m)
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return applicationError(err, m)
	}
	return temporal.NewCanceledError(headText(m.String(err.Error()), MaxSummary))
}

// applicationError returns the outermost error, without a cause: the SDK would retry a wrapped one
// whatever its type, and a cause would not be masked.
func applicationError(err error, m *Masker) error {
	var typed *Error
	if !errors.As(err, &typed) {
		typed = &Error{Type: ActionFailed, Message: err.Error()}
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) { // nobody's mistake, but it needs a person
			typed.Message = "a disk is full: " + typed.Message + "; nothing is lost: make room on it"
		}
	}
	message := typed.Message
	if typed.Output != "" {
		message += "\n" + strings.TrimRight(typed.Output, "\n")
	}
	return temporal.NewApplicationErrorWithOptions(headText(m.String(message), 4000), string(typed.Type),
		temporal.ApplicationErrorOptions{
			NonRetryable:   typed.Type.Final(),
			NextRetryDelay: typed.NextRetry,
		})
}
