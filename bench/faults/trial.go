package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Limits on what one trial waits for.
const (
	trialLimit   = 3 * time.Minute
	recoverLimit = 40 * time.Second
)

// side is one of the two that are compared.
type side string

const (
	usualSide  side = "usual"
	unwindSide side = "unwind"
)

// trial is one fault thrown at one side.
type trial struct {
	stage  *stage
	fault  fault
	side   side
	worker *process // nil: the stage's own
	run    client.WorkflowRun
	ended  string
	// report is what Unwind says of the end; nil: nothing.
	report *compensations.Report
	err    error
}

func (t *trial) id() string { return t.fault.name + "-" + string(t.side) }

// playTrial starts the trial, throws the fault, and waits for the end.
func (t *trial) playTrial(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, trialLimit, fmt.Errorf("not over within %s", trialLimit))
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", t.id(), errors.Join(err, context.Cause(ctx)))
		}
	}()
	t.stage.counters.openTrial(t.id(), t.fault.script)
	queue := t.stage.post.Queue
	if t.fault.killed {
		t.worker = &process{post: t.stage.post}
		t.worker.post.Queue = t.id()
		queue = t.id()
		if err := t.worker.startWorker(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.worker.stop()) }()
	}
	options := client.StartWorkflowOptions{ID: t.id(), TaskQueue: queue, WorkflowExecutionTimeout: t.fault.timeout}
	if t.side == usualSide {
		t.run, err = t.stage.client.ExecuteWorkflow(ctx, options, usualType, t.id())
	} else {
		options.TypedSearchAttributes = protocol.ServingAttributes("bench", "")
		t.run, err = t.stage.client.ExecuteWorkflow(ctx, options, protocol.AgentTaskType, document(t.id()))
	}
	if err != nil {
		return err
	}
	if t.fault.throw != nil {
		if err := t.fault.throw(ctx, t); err != nil {
			return err
		}
	}
	status, err := t.wait(ctx, t.run)
	if err != nil {
		return err
	}
	t.ended = words[status]
	if t.side == unwindSide &&
		(status == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED || status == enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT) {
		return t.recover(ctx)
	}
	return nil
}

// caught waits until the script has caught a call of the trial.
func (t *trial) caught(ctx context.Context) error {
	select {
	case <-t.stage.counters.catch(t.id()):
		return nil
	case <-ctx.Done():
		return errors.New("no call hangs or fails")
	}
}

// document is the task: the same three steps.
func document(trial string) map[string]any {
	list := make([]map[string]any, len(steps))
	for i, step := range steps {
		list[i] = map[string]any{
			"id": step, "uses": actionName, "with": params{Trial: trial, Step: step}, "timeout": "1m",
			"retry": map[string]any{"attempts": attempts, "backoff": "1s"},
		}
	}
	return map[string]any{"name": trial, "agent": "bench", "steps": list}
}

var words = map[enumspb.WorkflowExecutionStatus]string{
	enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:  "completed",
	enumspb.WORKFLOW_EXECUTION_STATUS_FAILED:     "failed",
	enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED:   "canceled",
	enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED: "terminated",
	enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:  "timed out",
}

// wait waits for the end of a run, keeps the report that it ended with, and says how it ended.
func (t *trial) wait(ctx context.Context, run client.WorkflowRun) (enumspb.WorkflowExecutionStatus, error) {
	var report compensations.Report
	var app *temporal.ApplicationError
	var canceled *temporal.CanceledError
	err := run.Get(ctx, &report)
	switch {
	case ctx.Err() != nil:
		return 0, err
	case errors.As(err, &app) && app.HasDetails():
		err = app.Details(&report)
	case errors.As(err, &canceled) && canceled.HasDetails():
		err = canceled.Details(&report)
	default:
		err = nil // the status says it
	}
	if err != nil {
		return 0, err
	}
	if report.Status != "" {
		t.report = &report
	}
	described, err := t.stage.client.DescribeWorkflowExecution(ctx, run.GetID(), run.GetRunID())
	if err != nil {
		return 0, err
	}
	return described.WorkflowExecutionInfo.Status, nil
}

// recover unwinds what a dead run has left. What does not end is reported as it is.
func (t *trial) recover(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, recoverLimit)
	defer cancel()
	chain := protocol.Chain{WorkflowID: t.run.GetID(), RunID: t.run.GetRunID(), FirstRunID: t.run.GetRunID()}
	id := protocol.RecoverID(chain)
	run, err := t.stage.client.ExecuteWorkflow(limited, client.StartWorkflowOptions{
		ID: id, TaskQueue: t.stage.post.Queue, TypedSearchAttributes: protocol.ServingAttributes("bench", ""),
	}, protocol.RecoverType, protocol.RecoverRequest{Chain: chain, Ended: t.ended, Who: "bench"})
	if err != nil {
		return err
	}
	status, err := t.wait(limited, run)
	if err == nil {
		t.ended += ", Recover " + words[status]
		return nil
	}
	t.ended += fmt.Sprintf(", Recover not ended after %s", recoverLimit)
	return t.stage.client.TerminateWorkflow(ctx, id, "", "the bench is over: "+err.Error())
}

// result is counted in the world, when nothing runs any more.
func (t *trial) result() outcome {
	o := outcome{Ended: t.ended, Left: []string{}, Unnamed: []string{}}
	done := t.ended == words[enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED]
	switch {
	case t.report == nil:
	case t.report.Status == compensations.Unwound && len(t.report.Steps) == 0:
		o.Ended += ", refused at its start"
	default:
		o.Ended += ", " + string(t.report.Status)
	}
	for _, step := range steps {
		acted, over := t.stage.counters.count(t.id(), step)
		o.Acted += acted
		if done { // each was wanted once
			over--
		}
		if over == 0 {
			continue
		}
		o.Left = append(o.Left, fmt.Sprintf("%s %+d", step, over))
		if !t.names(step) {
			o.Unnamed = append(o.Unnamed, step)
		}
	}
	return o
}

// names says that the report tells of a step that something of it is left.
func (t *trial) names(step string) bool {
	return t.report != nil && slices.ContainsFunc(t.report.Steps, func(s compensations.StepReport) bool {
		return s.Step == step && !s.Clean()
	})
}
