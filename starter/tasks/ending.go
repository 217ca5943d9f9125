package tasks

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Ending is how a closed task ended.
type Ending struct {
	// Report is nil if the task was terminated or timed out.
	Report *compensations.Report
	// Failure is one line; empty for a committed task.
	Failure string
}

// AwaitEnd waits for the end of a task, across all runs of its chain.
func (c *Client) AwaitEnd(ctx context.Context, id, runID string) (Ending, error) {
	var report compensations.Report
	err := c.GetWorkflow(ctx, id, runID).Get(ctx, &report)
	if err == nil {
		return Ending{Report: &report}, nil
	}
	if ctx.Err() != nil {
		return Ending{}, ctx.Err()
	}
	var failed *temporal.ApplicationError
	var canceled *temporal.CanceledError
	var terminated *temporal.TerminatedError
	var timeout *temporal.TimeoutError
	var e Ending
	switch {
	case errors.As(err, &failed):
		e.Failure = failed.Message()
		if failed.HasDetails() && failed.Details(&report) == nil && report.Status != "" {
			e.Report = &report
		}
	case errors.As(err, &canceled):
		e.Failure = "canceled"
		if canceled.HasDetails() && canceled.Details(&report) == nil && report.Status != "" {
			e.Report = &report
			e.Failure = string(report.Status) + ": canceled"
		}
	case errors.As(err, &terminated):
		e.Failure = "terminated from outside: nothing was unwound by this run; `starter recover " + terminal.ShellQuote(id) +
			"` unwinds it"
	case errors.As(err, &timeout):
		e.Failure = "timed out from outside: nothing was unwound by this run; `starter recover " + terminal.ShellQuote(id) +
			"` unwinds it"
	default:
		return e, fmt.Errorf("end of task %s: %w", id, err)
	}
	return e, nil
}

// Refusal is why a worker refused the task before any step of it; false if none did.
func (e Ending) Refusal() (string, bool) {
	if e.Report == nil {
		return "", false
	}
	return refusalOf(true, len(e.Report.Steps), e.Report.Cause)
}

func refusalOf(closed bool, steps int, cause *compensations.Cause) (string, bool) {
	if !closed || steps > 0 || cause == nil || cause.Kind != compensations.Failure {
		return "", false
	}
	return cause.Text, true
}

// ClosedState is the state of a closed task, rebuilt from its report.
func ClosedState(t Run, e Ending) protocol.State {
	s := protocol.State{Task: t.ID, Name: t.Name, Agent: t.Agent, Phase: protocol.Closed, Report: e.Report,
		Steps: []protocol.StepView{}}
	if e.Report == nil {
		return s
	}
	s.Cause = e.Report.Cause
	known := map[string]int{}
	for _, r := range e.Report.Steps {
		v := protocol.StepView{ID: r.Step, Uses: r.Action, State: forwardState(e.Report, r), Summary: r.Summary, Try: r.Try}
		if i, isKnown := known[r.Step]; isKnown { // by an earlier try
			s.Steps[i] = v
			continue
		}
		known[r.Step] = len(s.Steps)
		s.Steps = append(s.Steps, v)
	}
	return s
}

// forwardState is how far a step had come before the task unwound. A report has that only for steps
// without an entry on the ledger; for all others it has the state of the undo.
func forwardState(r *compensations.Report, s compensations.StepReport) protocol.StepState {
	if !Registered(s) {
		return protocol.StepState(s.State)
	}
	if r.Cause != nil && r.Cause.Step == s.Step {
		return protocol.StepFailed
	}
	return ""
}

// CurrentState reads a task's state from its end, from its worker or else from its history. The
// text says where, unless it was the end or the worker.
func (c *Client) CurrentState(ctx context.Context, t Run) (protocol.State, Ending, string, error) {
	if t.Closed() {
		e, err := c.AwaitEnd(ctx, t.ID, t.RunID)
		if err != nil {
			return protocol.State{}, e, "", err
		}
		if e.Report != nil {
			return ClosedState(t, e), e, "", nil
		}
		s, err := c.readHistory(ctx, t)
		return s, e, "read from the history: " + e.Failure, err
	}
	s, err := c.QueryState(ctx, t.ID, t.RunID)
	if why, silent := SilenceReason(err, t); silent {
		s, err = c.readHistory(ctx, t)
		return s, Ending{}, "read from the history: " + why, err
	}
	return s, Ending{}, "", err
}

// Registered says that a step has an entry on the ledger. For others, the report has the state of
// the forward.
func Registered(s compensations.StepReport) bool {
	switch protocol.StepState(s.State) {
	case protocol.NotStarted, protocol.Planning, protocol.AtGate, protocol.Running, protocol.Done, protocol.StepFailed,
		protocol.Canceled:
		return false
	}
	return true
}
