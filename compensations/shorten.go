package compensations

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// Shorten cuts what c tells people, for a workflow whose Carry is too large for a payload: every text to n bytes, every list
// of texts to a few, the diffs of drift to nothing but their digests. The entries and what persons have decided stay, and the
// digests of parks that were shown still fit. c shares nothing with the saga afterwards.
func (c *Carried) Shorten(n int) {
	c.Past.Steps = slices.Clone(c.Past.Steps)
	for i := range c.Past.Steps {
		c.Past.Steps[i].shorten(n)
	}
	c.Left = maps.Clone(c.Left)
	for token, l := range c.Left {
		if l.Reason != "" && l.Shown == "" {
			l.Shown = l.Digest(activities.Entry{Token: token})
		}
		l.Reason, l.Notes = clip(l.Reason, n), clipAll(l.Notes, n)
		l.Undone.Observed, l.Undone.Losses, l.Undone.Drift = clip(l.Undone.Observed, n), clipAll(l.Undone.Losses, n), bare(l.Undone.Drift)
		c.Left[token] = l
	}
}

// Leave takes the last steps off the list of what is told until at most n are left, those with nothing to tell first. They
// stay counted. It returns how many it has taken off.
func (p *Past) Leave(n int) (left int) {
	before := len(p.Steps)
	if before <= n {
		return 0
	}
	p.Steps = leave(p.Steps, n)
	return before - len(p.Steps)
}

func leave(steps []StepReport, n int) []StepReport {
	steps = slices.DeleteFunc(slices.Clone(steps), StepReport.Clean)
	return steps[:min(len(steps), n)]
}

func (s *StepReport) shorten(n int) {
	s.Summary, s.Observed, s.Reason = clip(s.Summary, n), clip(s.Observed, n), clip(s.Reason, n)
	s.Losses, s.Notes, s.Drift = clipAll(s.Losses, n), clipAll(s.Notes, n), bare(s.Drift)
}

// bare is a drift without what was shown of it. Its digest is what decides.
func bare(d *activities.Drift) *activities.Drift {
	if d == nil {
		return nil
	}
	return &activities.Drift{Digest: d.Digest}
}

// maxListed is how many items of a list stay where it is shortened.
const maxListed = 3

func clipAll(items []string, n int) []string {
	var kept []string
	for i, item := range items {
		if i == maxListed {
			return append(kept, fmt.Sprintf("and %d more", len(items)-maxListed))
		}
		kept = append(kept, clip(item, n))
	}
	return kept
}
