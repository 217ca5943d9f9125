package actiontest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// The calls of an action in this process. None may hang: a fence that waits for a stopped process would.

func (w *world) plan(f work) (activities.Change, error) {
	return bounded(w, "Plan", func() (activities.Change, error) { return w.action.Plan(w.ctx(), f.Entry, f.Step) })
}

func (w *world) apply(f work, want activities.Digest) (activities.Result, error) {
	return bounded(w, "Apply", func() (activities.Result, error) { return w.action.Apply(w.ctx(), f.Entry, f.Step, want) })
}

func (w *world) undo(f work, d activities.Decision) (activities.Undone, error) {
	return bounded(w, "Undo", func() (activities.Undone, error) { return w.action.Undo(w.ctx(), f.Entry, d) })
}

func (w *world) observe(f work) (activities.Observation, error) {
	return bounded(w, "Observe", func() (activities.Observation, error) { return w.action.Observe(w.ctx(), f.Entry) })
}

func (w *world) release(f work) error {
	_, err := bounded(w, "Release", func() (struct{}, error) { return struct{}{}, w.action.Release(w.ctx(), f.Entry) })
	return err
}

// answer is what a call returned.
type answer[T any] struct {
	value T
	err   error
}

// begin makes a call of its own goroutine; the answer comes through the channel.
func begin[T any](call func() (T, error)) <-chan answer[T] {
	done := make(chan answer[T], 1)
	go func() {
		v, err := call()
		done <- answer[T]{v, err}
	}()
	return done
}

func bounded[T any](w *world, name string, call func() (T, error)) (T, error) {
	w.t.Helper()
	return await(w, name, begin(call))
}

// await waits a little longer than a call's context lives: a call that heeds it has returned by then.
func await[T any](w *world, name string, done <-chan answer[T]) (T, error) {
	w.t.Helper()
	select {
	case a := <-done:
		return a.value, a.err
	case <-time.After(w.Patience + 10*time.Second):
		w.t.Fatalf("%s does not return, though its context has ended: does it wait for a lock that a stopped process holds?", name)
		panic("unreachable")
	}
}

// The same with what they must return.

func (w *world) mustPlan(f work) activities.Change {
	w.t.Helper()
	change, err := w.plan(f)
	if err != nil {
		w.t.Fatalf("Plan: %v", err)
	}
	if change.Digest == "" || change.Summary == "" {
		w.t.Errorf("Plan returned no digest or no summary: %+v", change)
	}
	return change
}

func (w *world) mustApply(f work, want activities.Digest) activities.Result {
	w.t.Helper()
	result, err := w.apply(f, want)
	if err != nil {
		w.t.Fatalf("Apply: %v", err)
	}
	return result
}

// mustUndo undoes and returns what was done, which must be one of the outcomes.
func (w *world) mustUndo(f work, outcomes ...activities.Outcome) activities.Undone {
	w.t.Helper()
	return w.mustDecide(f, activities.Decision{}, outcomes...)
}

func (w *world) mustDecide(f work, d activities.Decision, outcomes ...activities.Outcome) activities.Undone {
	w.t.Helper()
	undone, err := w.undo(f, d)
	if err != nil {
		w.t.Fatalf("Undo: %v", err)
	}
	if !slices.Contains(outcomes, undone.Outcome) {
		w.t.Fatalf("Undo ended %s, want %s: %s", undone.Outcome, join(outcomes), text(undone))
	}
	return undone
}

// mustBeBefore compares the world with that from before the step.
func (w *world) mustBeBefore(when string) {
	w.t.Helper()
	if now := w.manifest(); !w.Same(w.before, now) {
		w.t.Fatalf("%s the world is not as before:\n%s", when, difference(w.before, now))
	}
}

// mustBeAsTold is mustBeBefore where it is open whether the step acted. Where nothing can be taken back, the outcome must
// also tell which of the two it is.
func (w *world) mustBeAsTold(undone activities.Undone, when string) {
	w.t.Helper()
	w.mustBeBefore(when)
	if w.Undone != activities.Final {
		return
	}
	now := w.manifest()
	if acted := now != w.before; acted != (undone.Outcome == activities.Final) {
		w.t.Fatalf("%s the outcome is %s, but the step's effect on the world is:\n%s", when, undone.Outcome, difference(w.before, now))
	}
}

// mustBe compares the world with an earlier manifest.
func (w *world) mustBe(manifest, when string) {
	w.t.Helper()
	if now := w.manifest(); now != manifest {
		w.t.Fatalf("%s the world has changed:\n%s", when, difference(manifest, now))
	}
}

// mustFail demands an error of a type.
func (w *world) mustFail(what string, err error, want activities.ErrorType) {
	w.t.Helper()
	if err == nil {
		w.t.Fatalf("%s succeeded, want %s", what, want)
	}
	if got := activities.TypeOf(err); got != want {
		w.t.Fatalf("%s failed with %s, want %s: %v", what, got, want, err)
	}
}

// mustSee demands what Observe sees; an action may be blind.
func (w *world) mustSee(f work, want activities.State) {
	w.t.Helper()
	seen, err := w.observe(f)
	if err != nil {
		w.t.Fatalf("Observe: %v", err)
	}
	if seen.State != want && seen.State != activities.Unseen {
		w.t.Fatalf("Observe saw %s, want %s: %s", seen.State, want, text(seen))
	}
}

func join(outcomes []activities.Outcome) string {
	names := make([]string, len(outcomes))
	for i, o := range outcomes {
		names[i] = string(o)
	}
	return strings.Join(names, " or ")
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// difference lists the lines of two manifests that are not in both.
func difference(want, got string) string {
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	in := func(lines []string) map[string]int {
		m := map[string]int{}
		for _, l := range lines {
			m[l]++
		}
		return m
	}
	had, has := in(wants), in(gots)
	var out []string
	for _, l := range wants {
		if has[l]--; has[l] < 0 {
			out = append(out, "- "+l)
		}
	}
	for _, l := range gots {
		if had[l]--; had[l] < 0 {
			out = append(out, "+ "+l)
		}
	}
	const most = 60
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("... and %d more lines", len(out)-most))
	}
	if len(out) == 0 {
		return "(the same lines in another order)"
	}
	return strings.Join(out, "\n")
}
