package workflows

import (
	"errors"
	"maps"
	"slices"

	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// request is an update of a session that was accepted.
type request struct {
	id     string
	digest activities.Digest
	steps  []string                       // the ids of the steps that it has added
	over   map[string]protocol.StepAnswer // those of them that ended in an earlier run
	// rollback is what it undoes; nil if it undoes nothing, or earlier runs have undone it.
	rollback  *rollback
	undone    []compensations.StepReport // by an earlier run
	savepoint string
	context   *protocol.Context
	ends      bool  // it ends the session
	checking  bool  // it is being carried out: nothing of it is under way yet
	refusal   error // why it was refused
	told      bool  // an update has answered with its end
}

// answers remembers the requests of a session, so that each one is carried out once, whatever run of the chain meets it.
type answers struct {
	requests map[string]*request // of this run, and those of earlier runs that are not over
	order    []string            // their ids
	kept     []protocol.Answer   // to requests of earlier runs, the oldest first
}

func (a *answers) add(q *request) {
	if a.requests == nil {
		a.requests = map[string]*request{}
	}
	a.requests[q.id] = q
	a.order = append(a.order, q.id)
}

// drop forgets a request that was refused after all: nothing of it was done.
func (a *answers) drop(q *request) {
	if q == nil || a.requests[q.id] != q {
		return
	}
	delete(a.requests, q.id)
	a.order = slices.DeleteFunc(a.order, func(id string) bool { return id == q.id })
}

// find returns the answer to a request of an earlier run that is still kept.
func (a *answers) find(id string) (protocol.Answer, bool) {
	i := slices.IndexFunc(a.kept, func(k protocol.Answer) bool { return k.Request == id })
	if i < 0 {
		return protocol.Answer{}, false
	}
	return a.kept[i], true
}

// noteTakenBack notes, in what is kept of earlier runs, which steps were rolled back since.
func (a *answers) noteTakenBack(steps []protocol.TakenStep, why string) {
	isTaken := map[string]bool{}
	for _, s := range steps {
		isTaken[s.ID] = true
	}
	note := func(s *protocol.StepAnswer) {
		if isTaken[s.ID] {
			*s = protocol.StepAnswer{ID: s.ID, Uses: s.Uses, State: protocol.RolledBack, Try: s.Try, Summary: s.Summary, Error: s.Error, Notes: []string{why}, Took: s.Took}
		}
	}
	for i := range a.kept {
		a.kept[i].Steps = slices.Clone(a.kept[i].Steps)
		for j := range a.kept[i].Steps {
			note(&a.kept[i].Steps[j])
		}
	}
	for _, id := range a.order {
		over := a.requests[id].over
		for _, step := range slices.Sorted(maps.Keys(over)) {
			s := over[step]
			note(&s)
			over[step] = s
		}
	}
}

// refresh updates how the steps of a kept answer stand, where they were done again since.
func (t *agentTask) refresh(a protocol.Answer) protocol.Answer {
	a.Steps = slices.Clone(a.Steps)
	for i, s := range a.Steps {
		if t.schedule.byID[s.ID] != nil {
			a.Steps[i] = t.stepAnswer(nil, s.ID)
		}
	}
	return a
}

// answerNow handles QueryAnswer.
func (t *agentTask) answerNow(request string) (protocol.Answer, error) {
	if err := t.validateAwait(nil, protocol.AwaitRequest{Request: request}); err != nil {
		return protocol.Answer{}, err
	}
	if q := t.session.answers.requests[request]; q != nil {
		return t.answer(q), nil
	}
	return t.recall(request), nil
}

// Bounds on the answers and the outputs that are carried over. They are for requests that are repeated, and for steps that refer to
// outputs; the agent has had them already.
const (
	maxKeptAnswers = 64 << 10
	maxKeptOutputs = 64 << 10
)

// isOver reports whether a request needs nothing more.
func (t *agentTask) isRequestOver(q *request) bool {
	switch {
	case q.checking, q.refusal != nil:
		return !q.checking
	case q.ends:
		return t.report != nil
	case t.phase == protocol.Unwinding || t.phase == protocol.Closed:
		return true
	case q.rollback != nil && !q.rollback.over:
		return false
	}
	return !slices.ContainsFunc(q.steps, func(id string) bool {
		s := t.schedule.byID[id]
		return s != nil && !s.isOver()
	})
}

// needsPerson reports whether nothing goes on before a person decides something.
func (t *agentTask) needsPerson() bool {
	if t.saga.Unwinding() {
		_, parked := t.saga.Pending()
		return parked > 0
	}
	if t.executor.stuck != "" {
		return true
	}
	return t.executor.isQuiet() && len(t.schedule.ready) == 0 && !t.rollbacks.hasDue() && len(t.gates.views())+len(t.parks.views()) > 0
}

// waitsAlone reports whether all that is under way of a request waits for a person, whatever others do.
func (t *agentTask) waitsAlone(q *request) bool {
	waits := false
	for _, id := range q.steps {
		switch s := t.schedule.byID[id]; {
		case s == nil || s.isOver():
		case s.view.State == protocol.AtGate && s.gateView() != nil, s.view.State == protocol.StepParked && s.parkView() != nil:
			waits = true
		case s.view.State != protocol.NotStarted, slices.Contains(t.schedule.ready, s):
			return false
		}
	}
	return waits
}

// isLeaving reports whether the run only waits for its updates before it continues as new.
func (t *agentTask) isLeaving() bool { return t.executor.draining || t.leaving }

// answer is what a request has come to so far.
func (t *agentTask) answer(q *request) protocol.Answer {
	a := protocol.Answer{Request: q.id, Digest: q.digest, Phase: t.phase, Pending: !t.isRequestOver(q), Savepoint: q.savepoint, Context: q.context}
	a.Cause = t.ending.cause // fit makes a copy
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
		a.Undone = q.rollback.undone
	}
	if q.ends {
		a.Report = t.report
	}
	if q.checking {
		a.Fit()
		return a
	}
	if a.Pending {
		a.Stuck, a.NeedsPerson = t.executor.stuck, t.needsPerson() || t.waitsAlone(q)
	}
	if a.Pending && t.saga.Unwinding() {
		_, a.Waiting = t.saga.Recent(0)
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
func (t *agentTask) undecidedBeside(q *request) (ids []string) {
	for _, g := range t.gates.views() {
		ids = append(ids, g.Step)
	}
	for _, p := range t.parks.views() {
		ids = append(ids, p.Step)
	}
	return slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(q.steps, id) })
}

func (t *agentTask) stepAnswer(q *request, id string) protocol.StepAnswer {
	s := t.schedule.byID[id]
	if s == nil {
		return q.over[id]
	}
	a := protocol.StepAnswer{
		ID: id, Uses: s.step.Uses, State: s.view.State, Try: s.view.Try, Summary: s.view.Summary, Error: s.view.Error, Notes: s.view.AllNotes(), Undone: s.undone,
		Outputs: t.runner.outputs[id], Gate: s.gateView(), Park: s.parkView(),
	}
	if !s.view.Ended.IsZero() {
		a.Took = s.view.Took(s.view.Ended)
	}
	return a
}
