package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Plan has the workers plan a task.
func (c *Client) Plan(ctx context.Context, file File, queue string, log io.Writer) (protocol.Plan, error) {
	return ask[protocol.Plan](ctx, c, "plan", protocol.PlanTaskType, file, queue, log)
}

// Validate has the workers look at every step of a task.
func (c *Client) Validate(ctx context.Context, file File, queue string, log io.Writer) (protocol.Validation, error) {
	return ask[protocol.Validation](ctx, c, "validate", protocol.ValidateTaskType, file, queue, log)
}

// Refusal is the error of a task that is certain to be refused; nil where nothing was found.
func (f File) Refusal(refusals ...activities.Refusal) error {
	if len(refusals) == 0 {
		return nil
	}
	lines := make([]string, len(refusals))
	for i, r := range refusals {
		lines[i] = f.Cite(fmt.Sprintf("steps.%s: %s", r.Step, r.Message))
	}
	return usage.Errorf("%s", strings.Join(lines, "\n"))
}

// Problems are refusals as problems of the file.
func (f File) Problems(refusals ...activities.Refusal) task.Problems {
	all := make(task.Problems, len(refusals))
	for i, r := range refusals {
		field := "steps." + r.Step
		line, column := f.Written.Position(field)
		all[i] = task.Problem{File: f.Written.File, Line: line, Column: column, Field: field, Message: r.Message}
	}
	return all
}

// ask runs a workflow that looks at a task. If interrupted, it cancels it, so that it cleans up.
func ask[T any](ctx context.Context, c *Client, what, workflowType string, file File, queue string,
	log io.Writer) (answer T, err error) {
	if err := c.checkHosts(ctx, file, queue); err != nil {
		return answer, err
	}
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: what + "-" + newID(file.Compiled.Name), TaskQueue: queue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            terminal.Clip(what+": "+terminal.OneLine(file.Compiled.Name), maxSummary),
	}, workflowType, file.Document)
	if err != nil {
		return answer, fmt.Errorf("start %s: %w", workflowType, err)
	}
	telling, stop := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() { c.tellWait(telling, Run{ID: run.GetID(), Queue: queue}, log); close(told) }()
	defer func() { stop(); <-told }()
	err = run.Get(ctx, &answer)
	if ctx.Err() != nil {
		calm, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectLimit)
		defer cancel()
		_ = c.CancelWorkflow(calm, run.GetID(), run.GetRunID())
		return answer, ctx.Err()
	}
	if refused, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		if refused.Type() == string(activities.Refused) {
			return answer,
				usage.Errorf("the worker refused the task: %s",
					strings.TrimPrefix(file.Cite("Refused: "+refused.Message()), "Refused: "))
		}
		return answer, fmt.Errorf("%s: %s: %s", what, refused.Type(), refused.Message())
	}
	return answer, err
}

// tellWait says once what the answer waits for.
func (c *Client) tellWait(ctx context.Context, t Run, log io.Writer) {
	for began := time.Now(); ctx.Err() == nil; pause(ctx, takenWithin/2) {
		if hosts, err := c.AwaitedHosts(ctx, t.ID); err == nil && len(hosts) > 0 {
			fmt.Fprintf(log, "waiting: %s%s\n", neededHosts(hosts), c.otherHosts(ctx, t.Queue))
			return
		}
		if time.Since(began) > c.silenceLimit() && ctx.Err() == nil && !c.HasWorker(ctx, t.Queue) {
			fmt.Fprintf(log, "waiting: %s\n", NoWorker(t))
			return
		}
	}
}
