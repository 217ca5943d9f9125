package page

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// taskPage is the page of a task.
type taskPage struct {
	Run      tasks.Run
	Standing tasks.Standing
	Phase    string
	Rungs    []rung
	// Asks are what waits for a person.
	Asks []item
	// Does are what can be done about the task as a whole.
	Does   []act
	Report *compensations.Report
	UI     string
}

// rung is a step as the picture of the ledger shows it: on the way down what it did, on the way up
// what became of its undo.
type rung struct {
	ID, Action, Host string
	Try              int
	State            string
	Text             string
	Took             time.Duration
	Undo             string
	Seen             string
	Losses, Notes    []string
	Drift            string
}

// act is something that can be done about a task.
type act struct {
	Do, Label, Means string
	Danger           bool
}

func (s *Server) showTask(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	v, status := s.taskView(r, p, r.PathValue("task"))
	s.render(w, r, status, pageOf(status, "task"), v)
}

// pageOf is the page of a status.
func pageOf(status int, name string) string {
	if status != http.StatusOK {
		return "problem"
	}
	return name
}

func (s *Server) taskView(r *http.Request, p bearer.Person, id string) (view, int) {
	t, err := s.Client.Describe(r.Context(), id)
	if err != nil {
		return view{Title: "No such task", Person: p, Problem: err.Error()}, statusOf(err)
	}
	body, err := s.readTask(r.Context(), t)
	if err != nil {
		return view{Title: t.ID, Person: p, Problem: err.Error()}, statusOf(err)
	}
	v := view{Title: t.ID, Person: p, Body: body}
	if !t.Closed() || strings.HasPrefix(body.Standing.Now, "being ") {
		v.Stream = streamOf(r)
	}
	return v, http.StatusOK
}

func (s *Server) readTask(ctx context.Context, t tasks.Run) (taskPage, error) {
	standing, err := s.Client.Standing(ctx, t)
	if err != nil {
		return taskPage{}, err
	}
	now := standing.State
	body := taskPage{Run: t, Standing: standing, Phase: render.Phase(now), Rungs: rungsOf(now), Asks: itemsOf(now),
		UI: s.Client.RunLink(t.ID, t.RunID)}
	if t.Closed() {
		body.Report, body.Asks = now.Report, nil
	}
	body.Does = doesOf(t, standing)
	return body, nil
}

// doesOf are what can be done about a task as a whole.
func doesOf(t tasks.Run, s tasks.Standing) (all []act) {
	if t.CanCancel() {
		all = append(all, act{"cancel", "Cancel", "it stops, and everything that it did is undone", true})
	}
	switch s.NextVerb {
	case "rollback":
		all = append(all,
			act{"rollback", "Roll back", "everything that it did is undone, as long as its records are kept", true})
	case "redo":
		all = append(all, act{"redo", "Redo", "what was rolled back is done again", false})
	case "recover":
		all = append(all, act{"recover", "Recover", "it ended without unwinding: everything that it did is undone", true})
	}
	return all
}

// rungsOf lists the steps of a task with their undos.
func rungsOf(s protocol.State) (all []rung) {
	at := map[string]int{}
	for _, v := range s.Steps {
		text := v.Summary
		switch {
		case v.Error != "":
			text = render.Reason(v.Error)
		case v.Waiting != "":
			text = v.Waiting
		case len(v.Progress) > 0:
			text = v.Progress[len(v.Progress)-1]
		}
		r := rung{ID: v.ID, Action: v.Uses, Host: v.Host, Try: v.Try, State: string(v.State), Text: text, Notes: v.AllNotes()}
		if !v.Began.IsZero() {
			r.Took = v.Took(time.Now())
		}
		at[v.ID], all = len(all), append(all, r)
	}
	if s.Report == nil {
		return all
	}
	for _, u := range s.Report.Steps {
		i, isThere := at[u.Step]
		if !isThere {
			i = len(all)
			at[u.Step], all = i, append(all, rung{ID: u.Step, Action: u.Action, Try: u.Try})
		}
		all[i].addUndo(u)
	}
	return all
}

// addUndo adds what the report says of a step.
func (r *rung) addUndo(u compensations.StepReport) {
	r.Text, r.Took = cmp.Or(r.Text, u.Summary), cmp.Or(r.Took, u.Took)
	r.Losses = u.Losses
	if len(r.Notes) == 0 {
		r.Notes = u.Notes
	}
	if u.Drift != nil {
		r.Drift = u.Drift.Diff
	}
	switch state := compensations.UndoState(u.State); state {
	case compensations.Settled:
		r.Undo, r.Seen = string(u.Outcome), u.Observed
	case compensations.Registered:
	case compensations.Pending, compensations.Running, compensations.Parked, compensations.Waiting, compensations.Accepted,
		compensations.Skipped:
		r.Undo, r.Seen = u.State, cmp.Or(u.Reason, u.Observed)
	default: // that of the step itself
		r.State = cmp.Or(r.State, u.State)
		if u.Outcome != "" {
			r.Undo, r.Seen = string(u.Outcome), u.Observed
		}
	}
}
