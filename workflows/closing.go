package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
)

// close ends the task with its report: as the result where it committed, else in the details of a failure or of a
// cancellation.
func (t *agentTask) close(ctx workflow.Context, r compensations.Report, cause *compensations.Cause) (compensations.Report, error) {
	r.Task, r.Cause = workflow.GetInfo(ctx).WorkflowExecution.ID, cause
	r.Took = workflow.Now(ctx).Sub(t.began)
	r.Notes = append(r.Notes, t.notes...)
	for _, why := range t.ignored {
		r.Notes = append(r.Notes, "ignored signal: "+why)
	}
	if t.more > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("and %d more ignored signals", t.more))
	}
	t.tellForward(&r)
	r.Fit(maxReport)
	t.phase, t.cause, t.report = Closed, cause, &r
	t.publishClosed(ctx, r.Status)
	t.writeDetails(ctx)
	if cause == nil {
		return r, nil
	}
	if cause.Kind == compensations.Canceled {
		return r, temporal.NewCanceledError(r)
	}
	errorType := map[compensations.CauseKind]string{
		compensations.Failure: TaskFailed, compensations.Rejected: TaskRejected,
		compensations.Deadline: TaskDeadline, compensations.WasReset: TaskReset,
	}[cause.Kind]
	message := string(r.Status) + ": "
	if cause.Step != "" {
		message += "step " + cause.Step + ": "
	}
	return r, temporal.NewApplicationErrorWithOptions(message+cause.Text, errorType, temporal.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{r},
	})
}

// tellForward adds to the report what the forwards did, and the steps that never came to the ledger.
func (t *agentTask) tellForward(r *compensations.Report) {
	reported := make(map[string]int, len(r.Steps))
	for i, s := range r.Steps {
		reported[s.Step] = i
	}
	few := len(t.steps) <= compensations.MaxReported
	for _, s := range t.steps {
		i, there := reported[s.step.ID]
		if !there && (!few || len(t.steps) == 0) {
			continue
		}
		if !there {
			r.Steps = append(r.Steps, compensations.StepReport{Step: s.step.ID, Action: s.step.Uses, State: string(s.view.State), Took: s.view.Ended.Sub(s.view.Began)})
			i = len(r.Steps) - 1
		}
		r.Steps[i].Summary = s.view.Summary
		if s.view.Error != "" {
			r.Steps[i].Summary = s.view.Error
		}
		r.Steps[i].Notes = append(append([]string(nil), s.view.Notes...), r.Steps[i].Notes...)
	}
}
