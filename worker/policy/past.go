package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"

	"github.com/seed-62bf7108/unwind/activities"
)

// Past is a step that a task has done, as the task's history tells it.
type Past struct {
	// Case is what rules judge. Its History is left out: that follows from the steps before.
	Case activities.Case
	// Time is when the step began to act, or if it never did, when it was planned.
	Time time.Time
	// IsPlannedOnly means that it never acted: no worker counts it.
	IsPlannedOnly bool
	// IsPlanned means that the history has the change of the step.
	IsPlanned bool
	ReadOnly  bool
}

// JudgePast returns what the rules would have decided about each step of a task, given in the order
// of their times; nil where no rule matches. What the history does not tell is unknown: a rule that
// needs it asks, and names it.
func (p *Policy) JudgePast(ctx context.Context, steps []Past) ([]*activities.Ruling, error) {
	var all []*activities.Ruling
	for i, s := range steps {
		in, err := inputsOf(s.Case, s.Case.Host, s.Time)
		if err != nil {
			return nil, fmt.Errorf("step %s: %w", s.Case.Step.ID, err)
		}
		before, unknown := historyOf(steps[:i], s.Case.Host)
		in.history = func() (History, error) { return before, nil }
		in.unknown = slices.Concat(unknown, s.unknown())
		all = append(all, p.rule(p.decide(ctx, in)))
	}
	return all, nil
}

// sums are the fields that sum up counts: of a change, and of a history.
var sums = []string{"added", "removed", "changed"}

// historyOf is what a worker on a host would have noted of steps, and what of that is unknown. What
// has been undone since counts as well, for nothing tells whether it had been undone by then.
func historyOf(steps []Past, host string) (h History, unknown []string) {
	h.By = map[string]int64{}
	isKnown, isCounted := host != "", true
	for _, s := range steps {
		if s.ReadOnly || s.IsPlannedOnly || s.Case.Host != "" && s.Case.Host != host {
			continue
		}
		isKnown = isKnown && s.Case.Host != "" // else any worker could have taken it, also this one
		h.Steps++
		h.By[s.Case.Action]++
		isCounted = isCounted && s.IsPlanned && !slices.Contains(s.Case.Change.Cut(), "counts")
		for _, n := range s.Case.Change.Counts {
			h.Added, h.Removed, h.Changed = h.Added+n.Added, h.Removed+n.Removed, h.Changed+n.Changed
		}
	}
	if !isKnown {
		return h, []string{"history"}
	}
	if !isCounted {
		for _, field := range sums {
			unknown = append(unknown, "history."+field)
		}
	}
	return h, unknown
}

// unknown is what the history of a task does not tell of a step itself.
func (s Past) unknown() (all []string) {
	if s.Case.Host == "" { // any worker could have taken it
		all = append(all, "host")
	}
	if !s.IsPlanned {
		return append(all, "change")
	}
	for _, field := range s.Case.Change.Cut() {
		fields := []string{field}
		switch field {
		case "diff":
			fields = []string{"diffBytes"}
		case "counts":
			fields = append(fields, sums...)
		}
		for _, field := range fields {
			all = append(all, "change."+field)
		}
	}
	return all
}

const unknownWhy = "it looks at what the history of the task does not tell: "

// unknownNames says what a condition had to know.
func unknownNames(u *types.Unknown) string {
	var names []string
	for _, id := range u.IDs() {
		trails, _ := u.GetAttributeTrails(id)
		for _, t := range trails {
			names = append(names, t.String())
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
