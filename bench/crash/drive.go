package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// drive plays one task with its faults from the beginning to the verdict. An error is one of the
// matrix itself.
func (r *run) drive(ctx context.Context, p plan) (err error) {
	began := time.Now()
	defer func() {
		for _, each := range p.Parts {
			if failed := each.clear(context.WithoutCancel(ctx), r); failed != nil {
				err = errors.Join(err, fmt.Errorf("clearing %s away: %w", each, failed))
			}
		}
	}()
	for _, each := range p.Parts {
		if err := each.setUp(ctx, r, p.ID); err != nil {
			return fmt.Errorf("setting up %s: %w", each, err)
		}
	}
	if err := r.armFaults(p); err != nil {
		return err
	}
	d := &driver{run: r, plan: p, decided: map[activities.Digest]time.Time{}, closed: make(chan compensations.Report, 1)}
	if err := d.startTask(ctx); err != nil {
		return err
	}
	e, v, err := d.toTheEnd(ctx)
	if err != nil {
		return err
	}
	frozen := 0
	for _, m := range r.fleet.members {
		if err := disarm(m.armed(), p.ID); err != nil {
			return err
		}
		n, stuck := m.thaw(p.ID)
		if frozen += n; stuck > 0 {
			v.Blocked = append(v.Blocked,
				fmt.Sprintf("%s: %d workers that were woken did not finish within %s", m.Host, stuck, stopLimit))
		}
	}
	r.fleet.calm(ctx) // others may have frozen a worker that was at work for this task
	if e.Report.Status != "" {
		for _, each := range p.Parts {
			w, err := each.judgePart(ctx, r, e)
			if err != nil {
				return fmt.Errorf("looking at %s: %w", each, err)
			}
			v.merge(w)
		}
	}
	r.record(p, e, v, frozen, time.Since(began))
	return nil
}

// armFaults arms the points at which a process is to break.
func (r *run) armFaults(p plan) error {
	for _, f := range p.Faults {
		if f.At == "" {
			continue
		}
		how := breakKill
		if f.Kind == freezeAt {
			how = breakStop
		}
		if err := (arm{f.At, how, p.ID}).armChild(r.fleet.members[f.Host].armed(), f.Nth); err != nil {
			return err
		}
	}
	return nil
}

// inject has the other faults happen when their time has come, until ctx ends.
func (r *run) inject(ctx context.Context, p plan, all *sync.WaitGroup, failed chan<- error) {
	for _, f := range p.Faults {
		if inject := injectors[f.Kind]; inject != nil {
			all.Go(func() {
				pause(ctx, f.After)
				if r.truce.wait(ctx); ctx.Err() == nil {
					failed <- inject(ctx, r, f)
				}
			})
		}
	}
}

// record counts a task and reports it.
func (r *run) record(p plan, e taskEnd, v verdict, frozen int, took time.Duration) {
	r.note(p.ID, v)
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &r.figures
	f.Tasks++
	f.Frozen += frozen
	switch e.Report.Status {
	case compensations.Committed, compensations.Redone:
		f.Committed++
		for _, each := range p.Parts {
			if buys, ok := each.(*payments); ok {
				r.moved += moved(buys.Kind)
			}
		}
	case compensations.Remains:
		f.Named++
		f.Unwound++
	case compensations.Unwound:
		f.Unwound++
	case compensations.Open: // blocked
	}
	cause := ""
	if e.Report.Cause != nil {
		cause = string(e.Report.Cause.Kind) + " " + e.Report.Cause.Step + " " + e.Report.Cause.Text
	}
	switch len(e.Earlier) {
	case 1:
		f.RolledBack++
	case 2:
		f.Redone++
	}
	fmt.Fprintf(r.Log, "%-16s %5.1fs %-9s %s %s, kills so far %d. %s\n", p.ID, took.Seconds(), p.Ends, p.Sequel,
		e.Report.Status, r.killed(), strings.TrimSpace(cause))
	if !v.clean() {
		fmt.Fprintf(r.Log, "   parts %v\n   faults %v\n   gate %q at once %v\n", p.Parts, p.Faults, p.Gate, p.AtOnce)
		raw, _ := json.Marshal(e.Report) // plain data
		fmt.Fprintf(r.Log, "   report %s\n", raw)
	}
}

// driver follows one task.
type driver struct {
	*run
	plan plan
	// first is the run of the task; now is the workflow that owns its ledger, and since when.
	first   string
	now     protocol.Chain
	since   time.Time
	stops   int // how often it was canceled or terminated
	decided map[activities.Digest]time.Time
	closed  chan compensations.Report
	// chains are the first runs of the task and of the acts of its sequel so far.
	chains []string
}

// own makes a workflow the one that is followed.
func (d *driver) own(ctx context.Context, c protocol.Chain) {
	if c.RunID == d.now.RunID {
		return
	}
	d.now, d.since = c, time.Now()
	go d.await(ctx, c)
}

// document is the task file.
func (d *driver) document() (json.RawMessage, error) {
	var steps []map[string]any
	for i, each := range d.plan.Parts {
		for n, s := range each.steps() {
			if d.plan.AtOnce && n == 0 && i+1 < len(d.plan.Parts) {
				s["needs"] = []string{}
			}
			if d.plan.AtOnce && n > 0 {
				s["needs"] = []any{each.steps()[n-1]["id"]}
			}
			s["retry"] = map[string]any{"attempts": d.plan.Attempts, "backoff": "200ms", "max": "1s"}
			if s["id"] == d.plan.Gate {
				s["gate"] = "ask"
			} else if uses := fmt.Sprint(s["uses"]); strings.HasPrefix(uses, "stripe.payment_intent.c") ||
				uses == "stripe.refund.create" {
				s["gate"] = "none" // else each payment would ask
			}
			steps = append(steps, s)
		}
	}
	// of one agent, the second of two equal payments would be asked about
	return json.Marshal(map[string]any{"name": d.plan.ID, "agent": d.plan.ID, "steps": steps})
}

// again is how soon something is tried again that the server has not answered.
const again = 100 * time.Millisecond

// startTask starts the task, however often the server goes away meanwhile.
func (d *driver) startTask(ctx context.Context) error {
	doc, err := d.document()
	if err != nil {
		return err
	}
	for {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		run, err := d.client.ExecuteWorkflow(limited, client.StartWorkflowOptions{
			ID: d.plan.ID, TaskQueue: queue, WorkflowTaskTimeout: 3 * time.Second,
			WorkflowExecutionErrorWhenAlreadyStarted: true,
			WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		}, protocol.AgentTaskType, doc)
		cancel()
		var already *serviceerror.WorkflowExecutionAlreadyStarted
		switch {
		case err == nil:
			d.first = run.GetRunID()
			return nil
		case errors.As(err, &already): // by an attempt whose answer was lost
			d.first = already.RunId
			return nil
		case ctx.Err() != nil:
			return err
		}
		pause(ctx, again)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// toTheEnd lets the faults happen, and follows the task and its sequel.
func (d *driver) toTheEnd(ctx context.Context) (e taskEnd, v verdict, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var injected sync.WaitGroup
	failed := make(chan error, len(d.plan.Faults))
	defer injected.Wait()
	defer cancel()
	d.inject(ctx, d.plan, &injected, failed)
	d.chains = []string{d.first}
	d.own(ctx, protocol.Chain{WorkflowID: d.plan.ID, RunID: d.first, FirstRunID: d.first})
	e.Report, v, err = d.follow(ctx, failed)
	for _, do := range d.plan.Sequel.acts() {
		if err != nil || !v.clean() || len(e.Earlier) == 0 && !e.committed() {
			break
		}
		if refused := d.playSequel(ctx, do); refused != nil {
			v.Blocked = []string{"what is to be " + string(d.plan.Sequel) + " is refused: " + refused.Error()}
			break
		}
		e.Earlier = append(e.Earlier, e.Report)
		e.Report, v, err = d.follow(ctx, failed)
	}
	e.Chains = d.chains
	return e, v, err
}

// follow decides the gates, cancels what is to be canceled, and returns how the workflow has ended
// that is followed now.
func (d *driver) follow(ctx context.Context, failed <-chan error) (report compensations.Report, v verdict, err error) {
	limit, inPeace := time.After(d.Patience), false
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return report, v, ctx.Err()
		case err := <-failed:
			if err != nil {
				return report, v, err
			}
		case report := <-d.closed:
			if report.Status == "" {
				v.Blocked = []string{"the task has ended without a report"}
			}
			return report, v, nil
		case <-limit:
			if !inPeace {
				defer d.truce.hold()()
				limit, inPeace = time.After(d.Patience), true
				continue
			}
			s, _ := d.state(ctx) // best effort
			v.Blocked = []string{fmt.Sprintf("not closed within %s, nor in %[1]s of peace: %s %s", d.Patience, d.pending(ctx),
				describeState(s))}
			return report, v, d.giveUp(ctx)
		case <-tick.C:
			if stuck := d.decideWaiting(ctx); stuck != "" {
				v.Blocked = []string{stuck}
				return report, v, d.giveUp(ctx)
			}
		}
	}
}

// await returns how a workflow ended, however often the server goes away meanwhile. It returns
// nothing about one that was terminated: another workflow continues it.
func (d *driver) await(ctx context.Context, c protocol.Chain) {
	var report compensations.Report
	for ctx.Err() == nil {
		err := d.client.GetWorkflow(ctx, c.WorkflowID, c.RunID).Get(ctx, &report)
		var failed *temporal.ApplicationError
		var canceled *temporal.CanceledError
		var over *temporal.WorkflowExecutionError
		var dead *temporal.TerminatedError
		switch {
		case err == nil:
		case errors.As(err, &failed):
			_ = failed.Details(&report) // without a report it counts as blocked
		case errors.As(err, &canceled):
			_ = canceled.Details(&report)
		case errors.As(err, &dead):
			return
		case !errors.As(err, &over):
			pause(ctx, again)
			continue
		}
		select {
		case d.closed <- report:
		case <-ctx.Done():
		}
		return
	}
}

// state asks a worker.
func (d *driver) state(ctx context.Context) (s protocol.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	answer, err := d.client.QueryWorkflow(ctx, d.now.WorkflowID, d.now.RunID, protocol.QueryState)
	if err == nil {
		err = answer.Get(&s)
	}
	return s, err
}

// pending describes the activities that the server knows to be running.
func (d *driver) pending(ctx context.Context) (all []string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	now, err := d.client.DescribeWorkflowExecution(ctx, d.now.WorkflowID, d.now.RunID)
	if err != nil {
		return []string{err.Error()}
	}
	for _, a := range now.PendingActivities {
		all = append(all, fmt.Sprintf("%s %s attempt %d, last on %s: %s", a.ActivityType.GetName(), a.State, a.Attempt,
			a.LastWorkerIdentity, a.LastFailure.GetMessage()))
	}
	return all
}

// describeState is a state in a line.
func describeState(s protocol.State) string {
	raw, _ := json.Marshal(s) // plain data
	return string(raw)
}

// decideWaiting decides what waits for a person. It says what is parked without a cause.
func (d *driver) decideWaiting(ctx context.Context) (stuck string) {
	d.stop(ctx)
	s, err := d.state(ctx)
	if err != nil {
		return "" // no worker answers just now
	}
	for _, g := range s.Gates {
		d.decide(ctx, g)
	}
	if s.Report == nil {
		return ""
	}
	for _, step := range s.Report.Steps {
		if compensations.UndoState(step.State) != compensations.Parked {
			continue
		}
		if step.Outcome == activities.Unknown && len(step.Losses) > 0 && d.killedSupervisor() {
			d.accept(ctx, step) // nobody can know, and the report says so
			continue
		}
		raw, _ := json.Marshal(step) // plain data
		return "parked: " + string(raw)
	}
	return ""
}

// stop cancels or terminates a task that is to end so, when its time has come.
func (d *driver) stop(ctx context.Context) {
	ran := time.Since(d.since)
	if len(d.chains) > 1 { // the task has committed
		if d.plan.StopSequel > 0 && d.stops == 0 && ran > d.plan.StopSequel && d.terminate(ctx) {
			d.stops++
		}
		return
	}
	switch {
	case d.plan.Ends == cancelled && d.stops == 0 && ran > d.plan.StopAfter:
		if d.client.CancelWorkflow(ctx, d.now.WorkflowID, d.now.RunID) == nil {
			d.stops++
		}
	case d.plan.Ends != terminated:
	case d.stops == 0 && ran > d.plan.StopAfter, d.stops == 1 && d.plan.StopAgain > 0 && ran > d.plan.StopAgain:
		if d.terminate(ctx) {
			d.stops++
		}
	}
}

// terminate ends what owns the ledger with nothing undone, and has it recovered. It is not done
// where the server does not answer: then the next look goes on with it.
func (d *driver) terminate(ctx context.Context) (done bool) {
	server := recovery.Server{Client: d.client, Namespace: d.server.Namespace}
	dead, err := server.TakeOver(ctx, d.now.WorkflowID, "crash", converter.GetDefaultDataConverter())
	if err == nil {
		dead, err = server.Recover(ctx, dead, "crash")
	}
	var refused *recovery.Refusal
	switch {
	case err == nil:
		d.own(ctx, dead.Chain)
		return true
	case !errors.As(err, &refused):
		return false
	case refused.Why == recovery.Taken: // by the sweep, or by an attempt whose answer was lost
		other, err := server.Describe(ctx, refused.ID, "")
		if err == nil {
			d.own(ctx, other.Chain)
		}
		return err == nil
	}
	return true // it had ended by itself
}

// decideAgain is after how long a gate is decided once more that is still there: a worker may have
// told of a gate that went with it, before it was in the history; the decision came before the gate
// then, and decided nothing.
const decideAgain = 10 * time.Second

// decide decides a gate.
func (d *driver) decide(ctx context.Context, g protocol.GateView) {
	if time.Since(d.decided[g.Digest]) < decideAgain {
		return
	}
	signal := protocol.SignalApprove
	if d.plan.Ends == rejected && g.Step == d.plan.last() {
		signal = protocol.SignalReject
	}
	err := d.client.SignalWorkflow(ctx, d.now.WorkflowID, d.now.RunID, signal,
		protocol.Decision{Step: g.Step, Digest: g.Digest, Who: "crash"})
	if err == nil {
		d.decided[g.Digest] = time.Now()
	}
}

// killedSupervisor says that a terraform was left to itself: only then may an outcome be unknown.
func (d *driver) killedSupervisor() bool {
	for _, m := range d.fleet.members {
		if _, n := m.firedAt(); n > 0 {
			return true
		}
	}
	return false
}

func (d *driver) accept(ctx context.Context, s compensations.StepReport) {
	// if it is lost, the next look sends it
	_ = d.client.SignalWorkflow(ctx, d.now.WorkflowID, d.now.RunID, compensations.SignalResolve, map[string]any{
		"step": s.Step, "digest": s.Digest, "do": "accept", "who": "crash", "why": "nobody can know",
	})
}

// giveUp ends a task that is blocked, so that it is in nobody's way.
func (d *driver) giveUp(ctx context.Context) error {
	for ctx.Err() == nil {
		err := d.client.TerminateWorkflow(ctx, d.now.WorkflowID, d.now.RunID, "blocked")
		var gone *serviceerror.NotFound
		if err == nil || errors.As(err, &gone) {
			return nil
		}
		pause(ctx, again)
	}
	return ctx.Err()
}
