package protocol

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/packed"
	"github.com/seed-62bf7108/unwind/workflows/payload"
)

// Fit returns c as it is carried over, its texts shortened until it fits: a run whose carry is too
// large fails its workflow tasks for ever. What undoing needs and what people have decided stays;
// room has kept enough space for that. If it does not fit even so, that is the error.
func (c *Carry) Fit() (json.RawMessage, error) {
	var raw []byte
	var err error
	fits := func() bool {
		raw, err = c.MarshalJSON()
		return err == nil
	}
	if dropped := shortenUntil(fits, c.shorten, &c.Saga.Past); dropped > 0 {
		c.Notes = append(c.Notes,
			fmt.Sprintf("left out, for they are too many to be carried over: %s; the counts hold them",
				activities.CountOf(dropped, "step")))
		fits()
	}
	return raw, err
}

// Fit shortens the texts about undos in l until it can be handed over. It returns an error if l is
// too large even so.
func (l *Ledger) Fit() error {
	var err error
	shortenUntil(func() bool {
		_, err = l.MarshalJSON()
		return err == nil
	}, func(n int) {
		c := l.ToCarry()
		c.Shorten(n)
		l.Progress, l.Past = c.Progress, c.Past
	}, &l.Past)
	return err
}

// shortenUntil shortens texts, and then drops steps from past, until fits returns true. It returns
// the number of dropped steps.
func shortenUntil(fits func() bool, shorten func(n int), past *compensations.Past) (dropped int) {
	for _, n := range []int{1000, payload.MaxName, 40} {
		if fits() {
			return 0
		}
		shorten(n)
	}
	for n := len(past.Steps); !fits() && n > 0; n = n * 3 / 4 {
		dropped += past.DropSteps(n)
	}
	return dropped
}

// maxCarriedNotes bounds the notes of a task whose carry is too large.
const maxCarriedNotes = 100

func (c *Carry) shorten(n int) {
	c.Saga.Shorten(n)
	c.Past = slices.Clone(c.Past)
	for i := range c.Past {
		v := &c.Past[i]
		v.Summary, v.Error, v.Notes, v.Tried = payload.Clip(v.Summary, n), payload.Clip(v.Error, n), payload.ClipAll(v.Notes,
			n), shortenTried(v.Tried, n)
	}
	if c.Session != nil {
		session := *c.Session
		session.ForgetSteps()
		session.Notes = slices.Clone(session.Notes)
		for i := range session.Notes {
			session.Notes[i].Text = payload.Clip(session.Notes[i].Text, n)
		}
		if n <= payload.MaxName {
			session.Answers = nil
		}
		session.Requests = slices.Clone(session.Requests)
		for i := range session.Requests {
			session.Requests[i].Over = shortenOver(session.Requests[i].Over, n)
		}
		c.Session = &session
	}
	c.Rollbacks = slices.Clone(c.Rollbacks)
	for i := range c.Rollbacks {
		r := &c.Rollbacks[i]
		r.Undone, r.Cause.Text = slices.Clone(r.Undone), payload.Clip(r.Cause.Text, n)
		shortenUndos(r.Undone, n)
	}
	c.Steps = maps.Clone(c.Steps)
	for id, s := range c.Steps {
		s.Error, s.Notes, s.Tried = payload.Clip(s.Error, n), payload.ClipAll(s.Notes, n), shortenTried(s.Tried, n)
		if s.Gate != nil {
			gate := *s.Gate
			gate.View = *gate.View.short(n)
			s.Gate = &gate
		}
		if s.Park != nil {
			park := *s.Park
			park.View.Reason = payload.Clip(park.View.Reason, n)
			s.Park = &park
		}
		c.Steps[id] = s
	}
	if more := len(c.Notes) - maxCarriedNotes; more > 0 {
		c.Notes = append(slices.Clip(c.Notes[:maxCarriedNotes]), "and "+activities.CountOf(more, "more note"))
	}
	c.Notes, c.Ignored.Reasons = payload.ClipAll(c.Notes, max(n, payload.MaxName)), payload.ClipAll(c.Ignored.Reasons,
		max(n, payload.MaxName))
}

// shortenOver returns the answers about steps that are over without what their agent can see
// elsewhere.
func shortenOver(over map[string]StepAnswer, n int) map[string]StepAnswer {
	over = maps.Clone(over)
	for id, s := range over {
		s.shorten(n)
		if s.Outputs = nil; n <= payload.MaxName {
			s = StepAnswer{ID: s.ID, Uses: s.Uses, State: s.State, Try: s.Try, Took: s.Took, Summary: s.Summary, Error: s.Error}
		}
		over[id] = s
	}
	return over
}

// CutOver shortens what the requests carry of steps that are over.
func (c *SessionCarry) CutOver() {
	each := func(change func(*StepAnswer)) func() {
		return func() {
			for _, r := range c.Requests {
				for id, s := range r.Over {
					change(&s)
					r.Over[id] = s
				}
			}
		}
	}
	payload.Shorten(&c.Requests, maxKeptOver,
		payload.Cut{Make: each(func(s *StepAnswer) { s.Outputs = CutOutputs(s.Outputs) })},
		payload.Cut{Make: each(func(s *StepAnswer) { s.shorten(payload.MaxName) })},
		payload.Cut{Make: each(func(s *StepAnswer) {
			if s.Outputs != nil {
				s.Outputs, s.Notes = nil, append(slices.Clip(s.Notes), "its outputs are left out here: see the step alone")
			}
		})})
}

// maxKeptOver bounds what the requests that are not over carry of their steps that are.
const maxKeptOver = 128 << 10

// Short is an answer without its large parts.
func (a Answer) Short() Answer {
	if payload.SizeOf(a) <= maxKeptAnswer {
		return a
	}
	a.Steps = slices.Clone(a.Steps)
	for i := range a.Steps {
		s := &a.Steps[i]
		s.Outputs, s.Gate, s.Park, s.Undone = nil, nil, nil, nil
		s.Summary, s.Error, s.Notes = payload.Clip(s.Summary, payload.MaxName), payload.Clip(s.Error, payload.MaxName), nil
	}
	a.Waiting = nil
	a.Undone = payload.KeepLast(a.Undone, maxKeptAnswer, func(s compensations.StepReport) int { return payload.SizeOf(s) })
	return a
}

const maxKeptAnswer = 8 << 10

// ForgetSteps drops what only a redo needs.
func (c *SessionCarry) ForgetSteps() {
	c.Released = c.Released || len(c.TakenBack) > 0
	c.TakenBack, c.Written = nil, nil
}

// The findings of an unwinding are carried over beside the ledger: texts, which are shortened until
// they fit, and a row with two digests for each entry that is parked or skipped. Room is reserved
// for maxProgress such rows.
const reservedTexts = 100_000

const progressBytes = 100

const maxProgress = 2_000

// MaxLedger returns how large a ledger with that many entries may be, compressed.
func MaxLedger(entries int) int {
	return packed.Max - reservedTexts - progressBytes*min(entries, maxProgress)
}
