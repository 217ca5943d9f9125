package sessions

import (
	"errors"
	"slices"

	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// refresh updates how the steps of a kept answer stand, where they were done again since.
func (t *session) refresh(a protocol.Answer) protocol.Answer {
	a.Steps = slices.Clone(a.Steps)
	for i, s := range a.Steps {
		if t.Schedule.ByID[s.ID] != nil {
			a.Steps[i] = t.stepAnswer(nil, s.ID)
		}
	}
	return a
}

// Bounds on the answers and the outputs that are carried over. They are for requests that are
// repeated, and for steps that refer to outputs; the agent has had them already.
const (
	maxKeptAnswers = 64 << 10
	maxKeptOutputs = 64 << 10
)

// isOver reports whether a request needs nothing more.
func (t *session) isRequestOver(q *request) bool {
	switch {
	case q.checking, q.refusal != nil:
		return !q.checking
	case q.ends:
		return t.Report != nil
	case t.Phase == protocol.Unwinding || t.Phase == protocol.Closed:
		return true
	case q.rollback != nil && !q.rollback.Over:
		return false
	}
	return !slices.ContainsFunc(q.steps, func(id string) bool {
		s := t.Schedule.ByID[id]
		return s != nil && !s.IsOver()
	})
}

// needsPerson reports whether nothing goes on before a person decides something.
func (t *session) needsPerson() bool {
	if t.Saga.Unwinding() {
		_, parked := t.Saga.Pending()
		return parked > 0
	}
	if t.Stuck() != "" {
		return true
	}
	return t.IsQuiet() && len(t.Schedule.Ready) == 0 && !t.Rollbacks.HasDue() &&
		len(t.Gates.Views())+len(t.Parks.Views()) > 0
}

// waitsAlone reports whether all that is under way of a request waits for a person, whatever others
// do.
func (t *session) waitsAlone(q *request) bool {
	waits := false
	for _, id := range q.steps {
		switch s := t.Schedule.ByID[id]; {
		case s == nil || s.IsOver():
		case s.View.State == protocol.AtGate && s.GateView() != nil, s.View.State == protocol.StepParked &&
			s.ParkView() != nil:
			waits = true
		case s.View.State != protocol.NotStarted, slices.Contains(t.Schedule.Ready, s):
			return false
		}
	}
	return waits
}

// answer is what a request has come to so far.
func (t *session) answer(q *request) protocol.Answer {
	a := protocol.Answer{Request: q.id, Digest: q.digest, Phase: t.Phase, Pending: !t.isRequestOver(q),
		Savepoint: q.savepoint, Context: q.context}
	if q.savepoint != "" && len(q.steps) > 0 && !t.isMade(q.steps[0]) {
		a.Savepoint = ""
	}
	a.Cause = t.Ending.Cause // fit makes a copy
	if q.refusal != nil {
		a.Refused = refusedFor(q.refusal)
		a.Fit()
		return a
	}
	for _, id := range q.steps {
		a.Steps = append(a.Steps, t.stepAnswer(q, id))
	}
	a.Undone = q.undone
	if q.rollback != nil {
		a.Undone = q.rollback.Undone
	}
	if q.ends {
		a.Report = t.Report
	}
	if q.checking {
		a.Fit()
		return a
	}
	if a.Pending {
		a.Stuck, a.NeedsPerson = t.Stuck(), t.needsPerson() || t.waitsAlone(q)
	}
	if a.Pending && t.Saga.Unwinding() {
		_, a.Waiting = t.Saga.Recent(0)
	} else if a.Pending && t.needsPerson() {
		a.WaitsFor = t.undecidedBeside(q)
	}
	a.Fit()
	return a
}

func refusedFor(err error) *protocol.Refused {
	if app, isTyped := errors.AsType[*temporal.ApplicationError](err); isTyped {
		return &protocol.Refused{Type: app.Type(), Text: app.Message()}
	}
	return &protocol.Refused{Type: protocol.BadRequest, Text: payload.Clip(compensations.Reason(err), payload.MaxCause)}
}

// undecidedBeside returns the steps that wait for a decision, without those of a request.
func (t *session) undecidedBeside(q *request) (ids []string) {
	for _, g := range t.Gates.Views() {
		ids = append(ids, g.Step)
	}
	for _, p := range t.Parks.Views() {
		ids = append(ids, p.Step)
	}
	return slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(q.steps, id) })
}

func (t *session) stepAnswer(q *request, id string) protocol.StepAnswer {
	s := t.Schedule.ByID[id]
	if s == nil {
		return q.over[id]
	}
	a := protocol.StepAnswer{
		ID: id, Uses: s.Step.Uses, State: s.View.State, Try: s.View.Try, Summary: s.View.Summary, Error: s.View.Error,
		Notes: s.View.AllNotes(), Undone: s.Undone,
		Outputs: t.Outputs[id], Gate: s.GateView(), Park: s.ParkView(),
	}
	if !s.View.Ended.IsZero() {
		a.Took = s.View.Took(s.View.Ended)
	}
	return a
}
