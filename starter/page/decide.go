package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// statusOf is the status that an answer has because of an error.
func statusOf(err error) int {
	if _, isUsage := errors.AsType[usage.Error](err); isUsage {
		return http.StatusNotFound
	}
	return http.StatusBadGateway
}

func taskPath(id string) string { return "/tasks/" + url.PathEscape(id) }

// decision is what a person has decided on a page about one thing that waits.
type decision struct {
	task, step, digest string
	do, who, why       string
	with               string // as it was typed
	// as is whose passkey has signed it, when, and what; all empty if none has.
	as, signature string
	at            time.Time
}

func readDecision(r *http.Request, p bearer.Person) decision {
	d := decision{task: r.PathValue("task"), step: r.PathValue("step"), digest: r.PostFormValue("digest"),
		do: r.PostFormValue("do"), who: p.Name, why: strings.TrimSpace(r.PostFormValue("why")), as: r.PostFormValue("as")}
	if isEdit := d.do == string(protocol.DoEdit); isEdit || d.do == string(compensations.Retry) {
		d.with = r.PostFormValue("with")
	}
	return d
}

// check refuses what can be decided about nothing.
func (d decision) check() error {
	switch {
	case d.digest == "":
		return usage.Errorf("the form does not say what was shown; load the page again")
	case len(d.why) > maxWhy:
		return usage.Errorf("why: %s, more than %d", activities.CountOf(len(d.why), "byte"), maxWhy)
	case d.do == activities.Reject && d.why == "":
		return usage.Errorf("say why you reject it: the agent is told, and the report keeps it")
	}
	return nil
}

// ofGate is the decision about a gate.
func (d decision) ofGate() protocol.Decision {
	return protocol.Decision{Step: d.step, Digest: activities.Digest(d.digest), Who: d.who, Why: d.why, At: d.at,
		Signature: d.signature}
}

// ofPark is the decision about a park, or with other parameters for a step at a gate.
func (d decision) ofPark(now protocol.StepNow) (r protocol.Resolution, err error) {
	r.Resolution = compensations.Resolution{Step: d.step, Digest: activities.Digest(d.digest), Do: compensations.Do(d.do),
		Who: d.who, Why: d.why, At: d.at, Signature: d.signature}
	if d.with == "" {
		return r, nil
	}
	with, err := tasks.ReadParams([]byte(d.with))
	switch {
	case err != nil:
		return r, usage.Errorf("the parameters %w", err)
	case now.Park == nil || !sameJSON(with, now.Park.With):
		r.With = with
	}
	return r, nil
}

// maxWhy is how long a reason may be.
const maxWhy = 500

// decide decides what waits at one step.
func (s *Server) decide(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	d := readDecision(r, p)
	var told string
	var err error
	if r.PostFormValue("assertion") != "" {
		err = s.addSignature(r, p, &d)
	}
	if err == nil {
		told, err = s.send(r.Context(), d)
	}
	if unseen, isSent := errors.AsType[tasks.Unseen](err); isSent {
		told, err = unseen.Error(), nil
	}
	if err == nil {
		to := taskPath(d.task)
		if d.do == string(protocol.DoEdit) { // it asks again there
			to += "/steps/" + url.PathEscape(d.step)
		}
		tell(w, r, to, told)
		return
	}
	v, status := s.stepView(r, p, d.task, d.step) // as it is now: somebody else may have decided
	v.Problem = err.Error()
	if body, is := v.Body.(stepPage); is && d.with != "" && body.With != "" { // what was typed stays
		body.With, body.Typed, body.Wrong = d.with, d.why, v.Problem
		v.Problem, v.Body, v.Stream = "", body, ""
	}
	if status == http.StatusOK {
		status = http.StatusConflict
		s.render(w, r, status, "step", v)
		return
	}
	s.render(w, r, status, "problem", v)
}

// send sends a decision, and says what it has come to.
func (s *Server) send(ctx context.Context, d decision) (string, error) {
	if err := d.check(); err != nil {
		return "", err
	}
	t, err := s.Client.Describe(ctx, d.task)
	if err == nil {
		err = s.Client.CheckTakesDecisions(ctx, t)
	}
	if err != nil {
		return "", err
	}
	defer s.inbox.forget(d.task)
	about := d.ofGate()
	switch d.do {
	case activities.Approve:
		answer, err := s.Client.Approve(ctx, t, about)
		switch {
		case err != nil:
			return "", err
		case answer.Cause != nil:
			return "", fmt.Errorf("step %s was approved, but the task goes no further: %s", d.step, answer.Cause.Text)
		case answer.Waits != "":
			return fmt.Sprintf("approved: step %s waits for others, %s", d.step, answer.Waits), nil
		}
		s.inbox.settle(about.Digest)
		return fmt.Sprintf("approved: step %s goes on", d.step), nil
	case activities.Reject:
		answer, err := s.Client.Reject(ctx, t, about)
		if err != nil {
			return "", err
		}
		s.inbox.settle(about.Digest)
		if answer.Cause == nil {
			return fmt.Sprintf("rejected: step %s is %s, the task goes on", d.step, answer.State), nil
		}
		return "rejected: the task unwinds", nil
	}
	return s.resolve(ctx, t, d)
}

// resolve decides about a park.
func (s *Server) resolve(ctx context.Context, t tasks.Run, d decision) (string, error) {
	var now protocol.StepNow
	var err error
	if d.with != "" {
		if now, err = s.Client.QueryStep(ctx, t, d.step); err != nil {
			return "", err
		}
	}
	r, err := d.ofPark(now)
	if err != nil {
		return "", err
	}
	_, err = s.Client.Resolve(ctx, t, r)
	if err == nil {
		s.inbox.settle(r.Digest)
	}
	if r.Do == protocol.DoEdit {
		return fmt.Sprintf("edited: step %s is planned anew; approve what it shows then", d.step), err
	}
	return fmt.Sprintf("resolved: %s of step %s", d.do, d.step), err
}

func sameJSON(a, b json.RawMessage) bool {
	var first, second bytes.Buffer
	return json.Compact(&first, a) == nil && json.Compact(&second, b) == nil && bytes.Equal(first.Bytes(), second.Bytes())
}

// decideMany decides about several gates that are alike, one after the other: each decision bears
// the digest of what was shown.
func (s *Server) decideMany(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	do, why := r.PostFormValue("do"), strings.TrimSpace(r.PostFormValue("why"))
	about := r.PostForm["about"]
	if len(about) == 0 || len(about) > inBatch || do != "approve" && do != "reject" {
		s.fail(w, r, p, http.StatusUnprocessableEntity, "tick what you decide about, and approve or reject it")
		return
	}
	var refused []string
	unseen := 0
	for _, one := range about {
		parts := strings.SplitN(one, " ", 3)
		if len(parts) != 3 {
			s.fail(w, r, p, http.StatusUnprocessableEntity, fmt.Sprintf("%q names nothing that waits", one))
			return
		}
		d := decision{digest: parts[0], task: parts[1], step: parts[2], do: do, who: p.Name, why: why}
		_, err := s.send(r.Context(), d)
		if _, isSent := errors.AsType[tasks.Unseen](err); isSent {
			unseen++
		} else if err != nil {
			refused = append(refused, fmt.Sprintf("%s of %s: %v", d.step, d.task, err))
		}
	}
	done := map[string]string{"approve": "approved", "reject": "rejected"}[do]
	text := fmt.Sprintf("%s: %d of %d", done, len(about)-len(refused)-unseen, len(about))
	if unseen > 0 {
		text += fmt.Sprintf("; sent, with no worker yet that acts on it: %d", unseen)
	}
	if len(refused) > 0 {
		text += "; not decided: " + strings.Join(refused, "; ")
	}
	tell(w, r, "/", text)
}

// operate does something about a task as a whole.
func (s *Server) operate(w http.ResponseWriter, r *http.Request, p bearer.Person) {
	id, why := r.PathValue("task"), strings.TrimSpace(r.PostFormValue("why"))
	told, to, err := s.act(r.Context(), r.PostFormValue("do"), id, p.Name, why)
	if err == nil {
		tell(w, r, taskPath(to), told)
		return
	}
	v, status := s.taskView(r, p, id)
	v.Problem = err.Error()
	if status == http.StatusOK {
		s.render(w, r, http.StatusConflict, "task", v)
		return
	}
	s.render(w, r, status, "problem", v)
}

// act does it, and says what was begun, and where that can be seen.
func (s *Server) act(ctx context.Context, do, id, who, why string) (told, to string, err error) {
	var by, of recovery.Run
	switch do {
	case "cancel":
		t, err := s.Client.Describe(ctx, id)
		if err == nil {
			err = s.Client.Cancel(ctx, t)
		}
		return "the task is being cancelled; it unwinds", id, err
	case "rollback":
		by, of, err = s.Client.RollBack(ctx, id, recovery.Part{}, who, why)
		told = "rolls back"
	case "redo":
		by, of, err = s.Client.Redo(ctx, id, who)
		told = "reverses"
	case "recover":
		by, of, err = s.Client.Recover(ctx, id, false, who)
		told = "unwinds"
	default:
		err = usage.Errorf("%q is nothing that can be done about a task", do)
	}
	return fmt.Sprintf("%s %s %s", by.WorkflowID, told, of.WorkflowID), by.WorkflowID, err
}
