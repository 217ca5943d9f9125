package crash

import (
	"context"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/examples/found"
)

// part is one or more steps of a task in one world, with the piece of the world that they work on, and a look of its own
// at what became of it.
type part interface {
	// name tells the part from the others of its task.
	name(n int)
	// actions are those of its steps; first is the id of the first.
	actions() []string
	first() string
	// host is where its steps run; bound is false where any host may.
	host() (n int, bound bool)
	// set makes the piece of the world, and looks at it.
	set(ctx context.Context, r *run, task string) error
	// steps are those of the task file.
	steps() []map[string]any
	// judge looks at what has become of it.
	judge(ctx context.Context, r *run, e ended) (verdict, error)
	// clear takes the piece away where it costs something to keep.
	clear(ctx context.Context, r *run) error
}

// ended is how a task has ended.
type ended struct {
	Task       string
	FirstRunID string
	Report     compensations.Report
}

func (e ended) committed() bool { return e.Report.Status == compensations.Committed }

// token is that of a step.
func (e ended) token(step string) string { return activities.NewToken(e.FirstRunID, step, 1) }

// losses are what the report names.
func (e ended) losses() (all []string) {
	for _, s := range e.Report.Steps {
		all = append(all, s.Losses...)
	}
	return all
}

// step is what the report says of a step.
func (e ended) step(id string) compensations.StepReport {
	i := slices.IndexFunc(e.Report.Steps, func(s compensations.StepReport) bool { return s.Step == id })
	if i < 0 {
		return compensations.StepReport{}
	}
	return e.Report.Steps[i]
}

// verdict is what is wrong with the world after a task, a sentence each.
type verdict struct {
	Lost, Doubled, Orphaned, Blocked []string
}

func (v *verdict) add(w verdict) {
	v.Lost = append(v.Lost, w.Lost...)
	v.Doubled = append(v.Doubled, w.Doubled...)
	v.Orphaned = append(v.Orphaned, w.Orphaned...)
	v.Blocked = append(v.Blocked, w.Blocked...)
}

func (v verdict) clean() bool {
	return len(v.Lost)+len(v.Doubled)+len(v.Orphaned)+len(v.Blocked) == 0
}

// differences are those between two looks at a world that should not be. Where the task has committed, want should be
// there; else nothing but what the report names.
func differences(world string, before, now found.Snapshot, want []found.Want, e ended, losses ...string) []string {
	if !e.committed() {
		want = nil
	}
	sight := found.Sight{world: before}
	return sight.Compare(found.Sight{world: now}, map[string][]found.Want{world: want}, append(e.losses(), losses...))[0].Wrong
}
