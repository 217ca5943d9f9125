package workflows

import (
	"fmt"
	"maps"
	"slices"
)

// fit shortens what c tells people until it can be carried over: a run that cannot hand over what it has fails its workflow
// tasks without end. What undoing needs, and what persons have decided, is left: makeRoom has seen to that.
func (c *Carry) fit(fits func(Carry) bool) {
	for _, n := range []int{1000, maxName, 40} {
		if fits(*c) {
			return
		}
		c.shorten(n)
	}
	told := 0
	for n := len(c.Saga.Past.Steps); n > 0 && !fits(*c); n = n * 3 / 4 {
		told += c.Saga.Past.Leave(n)
	}
	if told > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("left out, for they are too many to be carried over: %d steps; the counts hold them", told))
	}
}

// carries says that c fits into a payload.
func carries(c Carry) bool {
	_, err := c.MarshalJSON()
	return err == nil
}

// maxCarriedNotes bounds the notes of a task whose carry is too large.
const maxCarriedNotes = 100

func (c *Carry) shorten(n int) {
	c.Saga.Shorten(n)
	c.Past = slices.Clone(c.Past)
	for i := range c.Past {
		v := &c.Past[i]
		v.Summary, v.Error, v.Notes = clip(v.Summary, n), clip(v.Error, n), clipAll(v.Notes, n)
	}
	c.Steps = maps.Clone(c.Steps)
	for id, s := range c.Steps {
		s.Error, s.Notes, s.Gate = clip(s.Error, n), clipAll(s.Notes, n), s.Gate.shortened(n)
		c.Steps[id] = s
	}
	if more := len(c.Notes) - maxCarriedNotes; more > 0 {
		c.Notes = append(slices.Clip(c.Notes[:maxCarriedNotes]), fmt.Sprintf("and %d more notes", more))
	}
	c.Notes, c.Ignored = clipAll(c.Notes, max(n, maxName)), clipAll(c.Ignored, max(n, maxName))
}

// shortened tells less of the change. The digests, which decide, stay.
func (g *CarriedGate) shortened(n int) *CarriedGate {
	if g == nil {
		return nil
	}
	short := *g
	c := &short.View.Change
	c.Summary, c.Diff, c.Undo = clip(c.Summary, n), clip(c.Diff, n), clip(c.Undo, n)
	c.Losses, c.Facts, c.Keys = clipAll(c.Losses, n), clipAll(c.Facts, n), clipAll(c.Keys, n)
	return &short
}

func clipAll(texts []string, n int) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = clip(texts[i], n)
	}
	return texts
}
