package crash

import (
	"context"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/examples/found"
)

// part is one or more steps of a task in one world, with the piece of the world that they work on,
// and an independent check of the result.
type part interface {
	// name distinguishes the part from the others of its task.
	name(n int)
	// actions are those of its steps; firstStep is the id of the first.
	actions() []string
	firstStep() string
	// host is where its steps run; bound is false where any host may.
	host() (n int, bound bool)
	// setUp creates the piece of the world, and records its state.
	setUp(ctx context.Context, r *run, task string) error
	// steps are those of the task file.
	steps() []map[string]any
	// judgePart compares the piece of the world with how the task ended.
	judgePart(ctx context.Context, r *run, e taskEnd) (verdict, error)
	// clear removes the piece if keeping it is expensive.
	clear(ctx context.Context, r *run) error
}

// taskEnd is how a task ended.
type taskEnd struct {
	// Report is the last one; Earlier are those before it, of a task that was rolled back, and redone.
	Report  compensations.Report
	Earlier []compensations.Report
	// Chains are the first runs of the task, and of the acts of its sequel.
	Chains []string
}

func (e taskEnd) committed() bool {
	return e.Report.Status == compensations.Committed || e.Report.Status == compensations.Redone
}

// token is that of a step in its last forward; tokens are those of all.
func (e taskEnd) token(step string) string {
	all := e.tokens(step)
	return all[len(all)-1]
}

func (e taskEnd) tokens(step string) (all []string) {
	for i, chain := range e.Chains {
		if i != 1 { // a rollback goes nowhere forward
			all = append(all, activities.NewToken(chain, step, 1))
		}
	}
	return all
}

// reports are all of them, in order.
func (e taskEnd) reports() []compensations.Report { return append(slices.Clone(e.Earlier), e.Report) }

// looksAgain reports whether a report promises a late sweep.
func (e taskEnd) looksAgain() bool {
	return slices.ContainsFunc(e.reports(), func(r compensations.Report) bool {
		return slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "will look again at") })
	})
}

// losses are the losses that the reports name.
func (e taskEnd) losses() (all []string) {
	for _, r := range e.reports() {
		for _, s := range r.Steps {
			all = append(all, s.Losses...)
		}
	}
	return all
}

// notes are what the reports say of how a step went.
func (e taskEnd) notes(id string) (all []string) {
	for _, r := range e.reports() {
		for _, s := range r.Steps {
			if s.Step == id {
				all = append(all, s.Notes...)
			}
		}
	}
	return all
}

// verdict is what is wrong with the world after a task, a sentence each.
type verdict struct {
	Lost, Doubled, Orphaned, Blocked []string
}

func (v *verdict) merge(w verdict) {
	v.Lost = append(v.Lost, w.Lost...)
	v.Doubled = append(v.Doubled, w.Doubled...)
	v.Orphaned = append(v.Orphaned, w.Orphaned...)
	v.Blocked = append(v.Blocked, w.Blocked...)
}

func (v verdict) clean() bool {
	return len(v.Lost)+len(v.Doubled)+len(v.Orphaned)+len(v.Blocked) == 0
}

// differences are the unexpected differences between two observations of a world. If the task has
// committed, want should be there; otherwise nothing but what the report names.
func differences(world string, before, now found.Snapshot, want []found.Want, e taskEnd, losses ...string) []string {
	if !e.committed() {
		want = nil
	}
	sight := found.Observed{world: before}
	return sight.Compare(found.Observed{world: now}, map[string][]found.Want{world: want},
		append(e.losses(), losses...))[0].Wrong
}
