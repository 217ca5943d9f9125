package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// reportCommitted returns the report of a task that has committed.
func (t *Task) reportCommitted() compensations.Report {
	past := t.Saga.Past()
	r := compensations.Report{Status: compensations.Committed, Outcomes: maps.Clone(past.Outcomes)}
	r.Steps = append(append(r.Steps, past.Steps...), t.Saga.Skipped()...)
	switch {
	case t.Schedule.isPartial():
		r.Status = compensations.Partly
	case t.variant.Redoes:
		r.Status = compensations.Redone
	}
	return r
}

// completeReport adds everything else that a report says at the end of a task, and starts the late
// sweep if one is due.
func (t *Task) completeReport(ctx workflow.Context, r *compensations.Report, cause *compensations.Cause) {
	r.Task, r.Cause = workflow.GetInfo(ctx).WorkflowExecution.ID, cause
	r.Lasted = workflow.Now(ctx).Sub(t.began)
	r.Notes = append(r.Notes, t.notes...)
	r.Notes = append(r.Notes, t.Inbox.Ignored().Notes()...)
	t.Schedule.addToReport(r, cause == nil)
	r.Notes = append(r.Notes, t.extension.Remarks()...)
	if t.Pivot.committed > 0 {
		r.Notes = append(r.Notes, "not undone, up to the pivot: "+activities.CountOf(t.Pivot.committed, "step"))
	}
	r.Fit(protocol.MaxReport)
	if rechecks := t.Saga.Rechecks(); len(rechecks) > 0 {
		r.Notes = append(r.Notes,
			fmt.Sprintf("workflow %s will look again at %s", t.startLateSweep(ctx, rechecks),
				activities.CountOf(len(rechecks), "undo")))
	}
}

// addToReport adds what the forwards did, and the steps that were never on the ledger.
func (c *schedule) addToReport(r *compensations.Report, committed bool) {
	rows, last := make(map[stepTry]int, len(r.Steps)), make(map[string]int, len(r.Steps))
	for i, s := range r.Steps {
		rows[stepTry{s.Step, max(1, s.Try)}], last[s.Step] = i, i
	}
	addStep := func(v protocol.StepView) {
		i, isReported := last[v.ID]
		if !isReported || v.State == protocol.Done && committed {
			r.Steps = append(r.Steps,
				compensations.StepReport{Step: v.ID, Action: v.Uses, Try: v.Try, State: string(v.State), Took: v.Took(v.Ended)})
			i = len(r.Steps) - 1
			rows[stepTry{v.ID, max(1, v.Try)}] = i
		}
		tellTries(r, v, i, rows)
	}
	for _, v := range c.past {
		addStep(v)
	}
	areFew := c.done <= compensations.MaxReported
	for _, s := range c.Steps {
		if _, isReported := last[s.Step.ID]; isReported || s.isNotable() || areFew {
			addStep(s.View)
		}
	}
	c.sortReport(r)
	if !areFew && committed {
		r.Notes = append(r.Notes,
			fmt.Sprintf("%s done; those with nothing to tell are not listed", activities.CountOf(c.done, "step")))
	}
}

// stepTry is one try of a step.
type stepTry struct {
	step   string
	number int
}

// tellTries adds what there is to say of each try of a step to its row; to another one, with the
// number of the try, where it has none.
func tellTries(r *compensations.Report, v protocol.StepView, other int, rows map[stepTry]int) {
	tries := v.Tries()
	now := &tries[len(tries)-1]
	if i, hasRow := rows[stepTry{v.ID, now.Try}]; hasRow {
		r.Steps[i].Summary = cmp.Or(v.Error, v.Summary)
	} else if v.Error != "" {
		now.Notes = append(slices.Clip(now.Notes), v.Error)
	}
	for _, t := range slices.Backward(tries) {
		i, hasRow := rows[stepTry{v.ID, t.Try}]
		notes := slices.Clone(t.Notes)
		if !hasRow {
			i = other
			for n := range notes {
				notes[n] = t.Text(notes[n])
			}
		}
		r.Steps[i].Notes = append(notes, r.Steps[i].Notes...)
	}
}

// sortReport puts the rows of a report into the order of the file, as far as it is known: rows of
// steps that are not come first. Where a step has several rows, each says which try it is about.
func (c *schedule) sortReport(r *compensations.Report) {
	place := func(s compensations.StepReport) int {
		if i, known := c.places[s.Step]; known {
			return i
		}
		if step := c.ByID[s.Step]; step != nil {
			return step.index
		}
		return -1
	}
	slices.SortStableFunc(r.Steps, func(a, b compensations.StepReport) int { return cmp.Compare(place(a), place(b)) })
	rows := map[string]int{}
	for _, s := range r.Steps {
		rows[s.Step]++
	}
	for i, s := range r.Steps {
		if rows[s.Step] > 1 {
			r.Steps[i].Try = max(1, s.Try)
		}
	}
}
