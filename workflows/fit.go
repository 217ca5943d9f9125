package workflows

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// fit returns c as it is carried over, its texts shortened until it fits: a run whose carry is too large fails its workflow
// tasks for ever. What undoing needs and what people have decided stays; room has kept enough space for that. If it does not fit even so, that
// is the error.
func (c *Carry) fit() (json.RawMessage, error) {
	var raw []byte
	var err error
	fits := func() bool {
		raw, err = c.MarshalJSON()
		return err == nil
	}
	if dropped := shortenUntil(fits, c.shorten, &c.Saga.Past); dropped > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("left out, for they are too many to be carried over: %s; the counts hold them", activities.CountOf(dropped, "step")))
		fits()
	}
	return raw, err
}

// Fit shortens the texts about undos in l until it can be handed over. It returns an error if l is too large even so.
func (l *Ledger) Fit() error {
	var err error
	shortenUntil(func() bool {
		_, err = l.MarshalJSON()
		return err == nil
	}, func(n int) {
		c := l.toCarry()
		c.Shorten(n)
		l.Progress, l.Past = c.Progress, c.Past
	}, &l.Past)
	return err
}

// shortenUntil shortens texts, and then drops steps from past, until fits returns true. It returns the number of dropped steps.
func shortenUntil(fits func() bool, shorten func(n int), past *compensations.Past) (dropped int) {
	for _, n := range []int{1000, maxName, 40} {
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
		v.Summary, v.Error, v.Notes, v.Tried = clip(v.Summary, n), clip(v.Error, n), clipAll(v.Notes, n), shortenTried(v.Tried, n)
	}
	if c.Session != nil {
		session := *c.Session
		session.forgetSteps()
		session.Notes = slices.Clone(session.Notes)
		for i := range session.Notes {
			session.Notes[i].Text = clip(session.Notes[i].Text, n)
		}
		if n <= maxName {
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
		r.Undone, r.Cause.Text = slices.Clone(r.Undone), clip(r.Cause.Text, n)
		shortenUndos(r.Undone, n)
	}
	c.Steps = maps.Clone(c.Steps)
	for id, s := range c.Steps {
		s.Error, s.Notes, s.Tried = clip(s.Error, n), clipAll(s.Notes, n), shortenTried(s.Tried, n)
		if s.Gate != nil {
			gate := *s.Gate
			gate.View = *gate.View.short(n)
			s.Gate = &gate
		}
		if s.Park != nil {
			park := *s.Park
			park.View.Reason = clip(park.View.Reason, n)
			s.Park = &park
		}
		c.Steps[id] = s
	}
	if more := len(c.Notes) - maxCarriedNotes; more > 0 {
		c.Notes = append(slices.Clip(c.Notes[:maxCarriedNotes]), "and "+activities.CountOf(more, "more note"))
	}
	c.Notes, c.Ignored.Reasons = clipAll(c.Notes, max(n, maxName)), clipAll(c.Ignored.Reasons, max(n, maxName))
}

// shortenOver returns the answers about steps that are over without what their agent can see elsewhere.
func shortenOver(over map[string]StepAnswer, n int) map[string]StepAnswer {
	over = maps.Clone(over)
	for id, s := range over {
		s.shorten(n)
		if s.Outputs = nil; n <= maxName {
			s = StepAnswer{ID: s.ID, Uses: s.Uses, State: s.State, Try: s.Try, Took: s.Took, Summary: s.Summary, Error: s.Error}
		}
		over[id] = s
	}
	return over
}

func shortenTried(tried []Tried, n int) []Tried {
	tried = slices.Clone(tried)
	for i := range tried {
		tried[i].Notes = clipAll(tried[i].Notes, n)
	}
	return tried
}

func clipAll(texts []string, n int) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = clip(texts[i], n)
	}
	return texts
}
