package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
)

// close ends the task with its report: as the result where it committed or has repaired another, else in the details of a failure or of a
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
	if again := t.saga.LookAgain(); len(again) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d undos are looked at again later: workflow %s", len(again), t.lookAgain(ctx, again)))
	}
	t.phase, t.cause, t.report = Closed, cause, &r
	t.publishClosed(ctx, r.Status)
	t.writeDetails(ctx)
	if cause == nil || t.repairs {
		return r, nil
	}
	return r, r.Err(map[compensations.CauseKind]string{
		compensations.Failure: TaskFailed, compensations.Rejected: TaskRejected,
		compensations.Deadline: TaskDeadline, compensations.WasReset: TaskReset,
	}[cause.Kind])
}

// tellForward adds to the report what the forwards did, and the steps that never came to the ledger.
func (t *agentTask) tellForward(r *compensations.Report) {
	reported := make(map[string]int, len(r.Steps))
	for i, s := range r.Steps {
		reported[s.Step] = i // the last one: an earlier row tells of an earlier generation
	}
	few := t.done <= compensations.MaxReported
	tell := func(v StepView) {
		i, there := reported[v.ID]
		if !there || v.State == Done && t.cause == nil {
			r.Steps = append(r.Steps, compensations.StepReport{Step: v.ID, Action: v.Uses, State: string(v.State), Took: v.Ended.Sub(v.Began)})
			i = len(r.Steps) - 1
		}
		r.Steps[i].Summary = v.Summary
		if v.Error != "" {
			r.Steps[i].Summary = v.Error
		}
		r.Steps[i].Notes = append(append([]string(nil), v.Notes...), r.Steps[i].Notes...)
	}
	for _, v := range t.past {
		tell(v)
	}
	for _, s := range t.steps {
		_, there := reported[s.step.ID]
		if _, tells := s.toTell(); there || tells || few {
			tell(s.view)
		}
	}
	if !few && t.cause == nil {
		r.Notes = append(r.Notes, fmt.Sprintf("%d steps are done; those with nothing to tell are not listed", t.done))
	}
	if t.kept > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d steps up to the pivot stay done", t.kept))
	}
}
