package tasks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// NewCheckpointID makes an id for a checkpoint.
func NewCheckpointID() string { return "cp-" + strings.ToLower(rand.Text()[:8]) }

// ApplyEnvironment makes an environment, or gives the one of that name another document.
func (c *Client) ApplyEnvironment(ctx context.Context, d environment.Document, queue string) error {
	_, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: environment.WorkflowID(d.Name), TaskQueue: queue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:            "environment " + d.Name,
	}, environment.WorkflowType, environment.Start{Document: d})
	if err != nil {
		return fmt.Errorf("start environment %s: %w", d.Name, err)
	}
	return c.AskEnvironment(ctx, d.Name, environment.UpdateApply, nil, d)
}

// AskEnvironment sends an update to an environment, and waits for its result.
func (c *Client) AskEnvironment(ctx context.Context, name, update string, result any, arguments ...any) error {
	if _, err := c.Environment(ctx, name); err != nil { // an update waits for a worker for ever
		return err
	}
	return c.explainEnvironment(ctx, name, c.update(ctx, client.UpdateWorkflowOptions{
		WorkflowID: environment.WorkflowID(name), UpdateName: update, Args: arguments,
		WaitForStage: client.WorkflowUpdateStageAccepted,
	}, result))
}

// RollBackEnvironment puts an environment back to a checkpoint. It calls passed with each stage that
// is over, while the others go on; the answer has all of them.
func (c *Client) RollBackEnvironment(ctx context.Context, name string, r environment.RollbackRequest,
	passed func(environment.Passed)) (done environment.RolledBack, err error) {
	v, err := c.Environment(ctx, name)
	if err != nil {
		return done, err
	}
	answered := make(chan error, 1)
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		answered <- c.AskEnvironment(ctx, name, environment.UpdateRollback, &done, r)
		stop()
	}()
	told := map[environment.Stage]bool{}
	tell := func(stages []environment.Passed) {
		for _, each := range stages {
			if !told[each.Stage] {
				told[each.Stage] = true
				passed(each)
			}
		}
	}
	c.followStages(waiting, v, r, tell)
	if err = <-answered; err == nil {
		tell(done.Stages)
	}
	return done, err
}

// followStages tells of the stages of a rollback that are over, until ctx ends.
func (c *Client) followStages(ctx context.Context, v environment.View, r environment.RollbackRequest,
	tell func([]environment.Passed)) {
	to := slices.IndexFunc(v.Checkpoints, func(each environment.Checkpoint) bool { return each.ID == r.To })
	if to < 0 {
		return
	}
	task, begun := c.AwaitTask(ctx, environment.RollbackTaskID(v.Document.Name, r.Safety))
	for begun && ctx.Err() == nil {
		if steps, err := c.Recoveries().Done(ctx, task.ID, c.DataConverter()); err == nil {
			tell(v.Document.PassedStages(v.Checkpoints[to], steps))
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// EnvironmentRefusal is why an environment has refused something: nothing was touched.
type EnvironmentRefusal struct {
	// Why is the type of the refusal, such as environment.Pinned.
	Why  string
	text string
}

func (r *EnvironmentRefusal) Error() string { return r.text }

// explainEnvironment gives the errors of an environment their words. What was refused before
// anything was touched is a usage error.
func (c *Client) explainEnvironment(ctx context.Context, name string, err error) error {
	var missing *serviceerror.NotFound
	var refused *temporal.ApplicationError
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.As(err, &missing):
		return usage.Wrap(&EnvironmentRefusal{environment.Unknown, fmt.Sprintf(
			"there is no environment %q in namespace %s of %s; `starter env list` shows them", name, c.Namespace, c.Address)})
	case errors.As(err, &refused):
		text := refused.Message()
		if before := []string{environment.Unknown, environment.Pinned, environment.Busy,
			environment.Bad}; slices.Contains(before,
			refused.Type()) {
			return usage.Wrap(&EnvironmentRefusal{refused.Type(), text})
		}
		return errors.New(text)
	}
	return fmt.Errorf("environment %s: %w", name, err)
}

// Environment shows an environment.
func (c *Client) Environment(ctx context.Context, name string) (v environment.View, err error) {
	if err := environment.CheckName(name); err != nil {
		return v, usage.Errorf("NAME %v", err)
	}
	limited, cancel := context.WithTimeout(ctx, c.silenceLimit())
	defer cancel()
	answer, err := c.QueryWorkflow(limited, environment.WorkflowID(name), "", environment.QueryView)
	if limited.Err() != nil && ctx.Err() == nil {
		return v, fmt.Errorf("environment %s: no worker answers; start one", name)
	}
	if err == nil {
		err = answer.Get(&v)
	}
	return v, c.explainEnvironment(ctx, name, err)
}

// Environments lists the names of the environments of the namespace. The list lags by about a
// second.
func (c *Client) Environments(ctx context.Context) (names []string, err error) {
	all, err := c.listEnvironments(ctx)
	for _, e := range all {
		names = append(names, e.name)
	}
	return names, err
}

// listed is an environment, and the queue of its workflow.
type listed struct{ name, queue string }

func (c *Client) listEnvironments(ctx context.Context) (all []listed, err error) {
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: c.Namespace,
		Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", environment.WorkflowType)}
	for {
		page, err := c.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list environments: %w", err)
		}
		for _, e := range page.GetExecutions() {
			all = append(all, listed{environment.NameOf(e.GetExecution().GetWorkflowId()), e.GetTaskQueue()})
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			slices.SortFunc(all, func(a, b listed) int { return strings.Compare(a.name, b.name) })
			return all, nil
		}
	}
}

// AwaitTask waits until a task has begun; false where ctx ends before.
func (c *Client) AwaitTask(ctx context.Context, id string) (t Run, begun bool) {
	for ctx.Err() == nil {
		if t, err := c.Describe(ctx, id); err == nil {
			return t, true
		}
		pause(ctx, 50*time.Millisecond)
	}
	return t, false
}
