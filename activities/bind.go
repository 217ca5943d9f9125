package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
)

// Host is what a worker gives to all actions that it runs.
type Host struct {
	// Secrets resolves ${{ secrets.NAME }}; nil: none are allowed.
	Secrets SecretSource
	// CheckCommands are the programs that command checks may run; "*" is any. Defaults to none.
	CheckCommands []string
}

// Registrar is the part of a Temporal worker that Register needs.
type Registrar interface {
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
}

// Register registers every action's activities with a worker.
func (r *Registry) Register(to Registrar, host Host) {
	for name, a := range r.actions {
		b := bound{action: a, host: host}
		for suffix, fn := range map[string]any{
			"": b.apply, ".plan": b.plan, ".undo": b.undo, ".observe": b.observe, ".release": b.release,
		} {
			to.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name + suffix})
		}
	}
}

// bound is an action as a worker runs it.
type bound struct {
	action Action
	host   Host
}

func (b bound) apply(ctx context.Context, f Forward) (Result, error) {
	return call(ctx, b.host, &f.Entry, func(ctx context.Context, m *Masker) (Result, error) {
		if err := b.forward(ctx, &f, m); err != nil {
			return Result{}, err
		}
		return b.action.Apply(ctx, f.Entry, f.Step, f.Want)
	}, capResult)
}

func (b bound) plan(ctx context.Context, f Forward) (Change, error) {
	return call(ctx, b.host, &f.Entry, func(ctx context.Context, m *Masker) (Change, error) {
		if err := b.forward(ctx, &f, m); err != nil {
			return Change{}, err
		}
		return b.action.Plan(ctx, f.Entry, f.Step)
	}, capChange)
}

func (b bound) undo(ctx context.Context, back Backward) (Undone, error) {
	return call(ctx, b.host, &back.Entry, func(ctx context.Context, _ *Masker) (Undone, error) {
		began := time.Now()
		undone, err := b.action.Undo(ctx, back.Entry, back.Decision)
		if undone.Took == 0 {
			undone.Took = time.Since(began).Round(time.Millisecond)
		}
		return undone, err
	}, func(u Undone) Undone { capDrift(u.Drift); return u })
}

func (b bound) observe(ctx context.Context, e Entry) (Observation, error) {
	return call(ctx, b.host, &e, func(ctx context.Context, _ *Masker) (Observation, error) {
		return b.action.Observe(ctx, e)
	}, func(o Observation) Observation { capDrift(o.Drift); return o })
}

func (b bound) release(ctx context.Context, e Entry) error {
	_, err := call(ctx, b.host, &e, func(ctx context.Context, _ *Masker) (struct{}, error) {
		return struct{}{}, b.action.Release(ctx, e)
	}, func(s struct{}) struct{} { return s })
	return err
}

// forward is what only a forward goes through: a run that was reset goes no further, and secrets get their values.
func (b bound) forward(ctx context.Context, f *Forward, m *Masker) (err error) {
	if err := SameRun(ctx, f.OriginalRunID); err != nil {
		return err
	}
	f.Step.With, err = resolveSecrets(f.Step.With, b.host.Secrets, m)
	return err
}

// SameRun is ResetRun where the running workflow was reset: its original run's id is not its own.
func SameRun(ctx context.Context, originalRunID string) error {
	if own := activity.GetInfo(ctx).WorkflowExecution.RunID; own != originalRunID {
		return Errorf(ResetRun, "run %s was reset from %s; a reset run only unwinds", own, originalRunID)
	}
	return nil
}

// call runs one call of an action: with its secrets resolved, its heart beating, everything that it returns masked and
// then capped (in that order: a secret that is cut in two would no longer be found).
func call[T any](ctx context.Context, host Host, e *Entry, do func(context.Context, *Masker) (T, error), limit func(T) T) (T, error) {
	var none T
	masker := &Masker{}
	if e.Version > EntryVersion {
		return none, applicationError(Errorf(UnknownFormat,
			"entry format %d is newer than this worker's %d; upgrade the worker", e.Version, EntryVersion), masker)
	}
	params, err := resolveSecrets(e.Params, host.Secrets, masker)
	if err != nil {
		return none, applicationError(err, masker)
	}
	e.Params = params
	stop := beat(ctx)
	defer stop()
	v, err := do(WithCheckCommands(WithMasker(ctx, masker), host.CheckCommands), masker)
	if err != nil {
		return none, ended(ctx, err, masker)
	}
	if v, err = maskAll(masker, v); err != nil {
		return none, applicationError(err, masker)
	}
	return limit(v), nil
}

// beat heartbeats until stop is called, so that a dead process is seen and a cancellation arrives.
func beat(ctx context.Context) (stop func()) {
	timeout := activity.GetInfo(ctx).HeartbeatTimeout
	if timeout <= 0 {
		return func() {}
	}
	done := make(chan struct{})
	var once sync.Once
	go func() {
		t := time.NewTicker(timeout / 3)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-t.C:
				activity.RecordHeartbeat(ctx)
			}
		}
	}()
	return func() { once.Do(func() { close(done) }) }
}

// ended says why a call ended: a cancellation asked for by the workflow, a worker that is being stopped, or its error.
func ended(ctx context.Context, err error, m *Masker) error {
	if ctx.Err() == nil {
		return applicationError(err, m)
	}
	select {
	case <-activity.GetWorkerStopChannel(ctx):
		return applicationError(Errorf(WorkerStopping, "the worker is being stopped"), m)
	default:
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return applicationError(err, m)
	}
	return temporal.NewCanceledError(head(m.String(err.Error()), MaxSummary))
}

// applicationError is built outermost and without a cause: a wrapped one would be retried whatever its type, and a cause
// would carry what is not masked.
func applicationError(err error, m *Masker) error {
	var typed *Error
	if !errors.As(err, &typed) {
		typed = &Error{Type: ActionFailed, Message: err.Error()}
	}
	message := typed.Message
	if typed.Output != "" {
		message += "\n" + strings.TrimRight(typed.Output, "\n")
	}
	return temporal.NewApplicationErrorWithOptions(head(m.String(message), 4000), string(typed.Type), temporal.ApplicationErrorOptions{
		NonRetryable:   typed.Type.Final(),
		NextRetryDelay: typed.NextRetry,
	})
}

// capResult cuts outputs that are too long for the history, the longest first, and says so.
func capResult(r Result) Result {
	r.Summary = head(r.Summary, MaxSummary)
	for range r.Outputs {
		total, name, longest := 2, "", -1
		for k, v := range r.Outputs {
			n := len(text(v))
			total += len(k) + n + 6
			if n > longest || n == longest && k < name {
				name, longest = k, n
			}
		}
		if total <= MaxOutputs {
			break
		}
		keep := min(MaxOutputs/2, max(0, longest-(total-MaxOutputs)))
		r.Outputs[name] = head(text(r.Outputs[name]), keep)
		r.Notes = append(r.Notes, fmt.Sprintf("output %s is cut to %d of %d bytes", name, keep, longest))
	}
	return r
}

// text is a string itself, and the JSON of anything else.
func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, _ := json.Marshal(v) // v came out of JSON: maskAll, or the next payload conversion, has seen to it
	return string(b)
}

func capChange(c Change) Change {
	c.Summary, c.Diff = head(c.Summary, MaxSummary), head(c.Diff, MaxDiff)
	return c
}

func capDrift(d *Drift) {
	if d != nil {
		d.Diff = head(d.Diff, MaxDiff)
	}
}

func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const more = " ..."
	return strings.ToValidUTF8(s[:max(0, n-len(more))], "") + more
}
