package compensations

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
)

// Shorten shortens the texts in c, for a workflow whose Carry is too large for a payload: every
// text to n bytes, every list of texts to a few, each drift to its digest. Entries and people's
// decisions stay, and the digests of parks that were shown remain valid. Afterwards c shares
// nothing with the saga.
func (c *Carry) Shorten(n int) {
	c.Past.Steps = slices.Clone(c.Past.Steps)
	for i := range c.Past.Steps {
		c.Past.Steps[i].Shorten(n)
	}
	c.Progress = maps.Clone(c.Progress)
	for token, p := range c.Progress {
		if p.Reason != "" && p.Shown == "" {
			p.Shown = p.Digest(activities.Entry{Token: token})
		}
		p.Reason, p.Notes = clip(p.Reason, n), clipAll(p.Notes, n)
		p.Undone.Observed, p.Undone.Losses, p.Undone.Drift = clip(p.Undone.Observed, n), clipAll(p.Undone.Losses, n),
			withoutDiff(p.Undone.Drift)
		p.ForcedDrift = withoutDiff(p.ForcedDrift)
		c.Progress[token] = p
	}
}

// dropSteps keeps at most n steps: the first ones that tell more than a clean outcome.
func dropSteps(steps []StepReport, n int) []StepReport {
	steps = slices.DeleteFunc(slices.Clone(steps), StepReport.isPlain)
	return steps[:min(len(steps), n)]
}

// Shorten shortens the texts of a report to n bytes, its lists to a few and its drift to the
// digest, which is what decides.
func (s *StepReport) Shorten(n int) {
	s.Summary, s.Observed, s.Reason = clip(s.Summary, n), clip(s.Observed, n), clip(s.Reason, n)
	s.Losses, s.Notes, s.Drift = clipAll(s.Losses, n), clipAll(s.Notes, n), withoutDiff(s.Drift)
}

// headOf returns a drift with only the head of its diff.
func headOf(d *activities.Drift) *activities.Drift {
	if d == nil {
		return nil
	}
	return &activities.Drift{Digest: d.Digest, Diff: activities.HeadDiff(d.Diff, maxWhy)}
}

// withoutDiff returns only the digest of a drift, which is what decides.
func withoutDiff(d *activities.Drift) *activities.Drift {
	if d == nil {
		return nil
	}
	return &activities.Drift{Digest: d.Digest}
}

// maxListed is how many items a shortened list keeps.
const maxListed = 3

func clipAll(items []string, n int) []string {
	var short []string
	for i, item := range items {
		if i == maxListed {
			return append(short, fmt.Sprintf("and %d more", len(items)-maxListed))
		}
		short = append(short, clip(item, n))
	}
	return short
}
