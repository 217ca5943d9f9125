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
// tasks for ever. What undoing needs and what people have decided stays; room has kept enough space for that.
func (c *Carry) fit() json.RawMessage {
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
	if err != nil {
		panic(fmt.Sprintf("the task cannot be carried over: %v", err)) // the workflow task fails, and nothing is lost
	}
	return raw
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
		c.Session = &session
	}
	c.Steps = maps.Clone(c.Steps)
	for id, s := range c.Steps {
		s.Error, s.Notes, s.Tried = clip(s.Error, n), clipAll(s.Notes, n), shortenTried(s.Tried, n)
		if s.Gate != nil {
			gate := *s.Gate
			gate.View = *gate.View.short(n)
			s.Gate = &gate
		}
		c.Steps[id] = s
	}
	if more := len(c.Notes) - maxCarriedNotes; more > 0 {
		c.Notes = append(slices.Clip(c.Notes[:maxCarriedNotes]), "and "+activities.CountOf(more, "more note"))
	}
	c.Notes, c.Ignored.Reasons = clipAll(c.Notes, max(n, maxName)), clipAll(c.Ignored.Reasons, max(n, maxName))
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
