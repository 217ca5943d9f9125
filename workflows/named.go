package workflows

import (
	"slices"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/payload"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// named is what a step touches.
type named struct{ keys, changes, reads []string }

func namesOf(s task.Step) named { return named{s.Keys, s.Changes, s.Reads} }

func namesIn(e activities.Entry) named { return named{e.Keys, e.Changes, e.Reads} }

func (n named) size() int { return payload.SizeOf(n.changes) + payload.SizeOf(n.reads) }

func (n named) changed() [2][]string { return [2][]string{n.keys, n.changes} }

// meets reports whether two steps touch the same resource, or one that is part of the other, which not both only read. A step without
// keys may touch any.
func (n named) meets(other named) bool {
	if n.keys == nil || other.keys == nil {
		return true
	}
	for _, mine := range n.changed() {
		for _, theirs := range [][]string{other.keys, other.changes, other.reads} {
			if overlap(mine, theirs) {
				return true
			}
		}
	}
	return overlap(n.reads, other.keys) || overlap(n.reads, other.changes)
}

// overlap reports whether two lists of names have one in common, or one that is part of another.
func overlap(a, b []string) bool {
	isIn := func(part, whole string) bool {
		return part == whole || strings.HasPrefix(part, strings.TrimSuffix(whole, "/")+"/")
	}
	for _, k := range a {
		if slices.ContainsFunc(b, func(o string) bool { return isIn(k, o) || isIn(o, k) }) {
			return true
		}
	}
	return false
}

// compileAdded compiles steps that are added to a task that runs, and has their hosts name what they touch. The compiler names it of its own
// host, so that asking costs nothing there. What is to be asked stands in its answer: histories from before that replay as they are.
func (t *agentTask) compileAdded(ctx workflow.Context, summary string, a task.Addition) (task.Compiled, error) {
	compiled, err := compileLocally(ctx, protocol.CompileStepsActivity, summary, a)
	if err != nil {
		return compiled, err
	}
	touched := compiled.Touched
	if len(compiled.Unnamed) > 0 {
		elsewhere := compiled
		elsewhere.Steps = slices.DeleteFunc(slices.Clone(compiled.Steps), func(s task.Step) bool { return !slices.Contains(compiled.Unnamed, s.ID) })
		seen, err := preflight(ctx, elsewhere)
		if err != nil {
			return compiled, err
		}
		touched = append(touched, seen.Touched...)
	}
	compiled.FollowTouched(touched)
	compiled.Touched, compiled.Unnamed = nil, nil
	return compiled, nil
}

// nameLate has a step's host name what the step touches, if that has depended on what earlier steps return. Where the host does not
// answer, the step stays one that may touch anything, and so comes after all before it and before all after it.
func (r *stepRunner) nameLate(ctx workflow.Context, s *stepRun, step activities.Step) error {
	if !s.step.NamedLate || s.seq > 0 { // with an entry it has its names
		return nil
	}
	b := preflightBatch{place: s.step.Place, request: protocol.PreflightRequest{
		Late: true, Steps: []protocol.PreflightStep{{Uses: s.step.Uses, Step: activities.Outlook{Step: step}}},
	}}
	size := int64(min(payload.SizeOf(b.request), maxScheduled))
	if err := r.calls.acquire(ctx, size); err != nil {
		return err
	}
	r.schedule.setState(s, protocol.Running)
	b.ask(ctx)
	r.calls.release(size)
	switch {
	case ctx.Err() != nil:
		return temporal.NewCanceledError()
	case r.calls.isHolding():
		return errHeld
	case b.err == nil && len(b.seen.Touched) == 1:
		s.step.TakeNames(b.seen.Touched[0])
	default:
		s.step.TakeNames(activities.Touched{})
	}
	return nil
}
