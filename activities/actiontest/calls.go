package actiontest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// The calls of an action in this process. None may hang, as a fence would that waits for a stopped
// process.

func (w *world) plan(f forward) (activities.Change, error) {
	return callBounded(w, "Plan", func() (activities.Change, error) { return w.action.Plan(w.ctx(), f.Entry, f.Step) })
}

func (w *world) apply(f forward, want activities.Digest) (activities.Result, error) {
	return callBounded(w, "Apply",
		func() (activities.Result, error) { return w.action.Apply(w.ctx(), f.Entry, f.Step, want) })
}

func (w *world) undo(f forward, d activities.Decision) (activities.Undone, error) {
	return callBounded(w, "Undo", func() (activities.Undone, error) { return w.action.Undo(w.ctx(), f.Entry, d) })
}

func (w *world) observe(f forward) (activities.Observation, error) {
	return callBounded(w, "Observe", func() (activities.Observation, error) { return w.action.Observe(w.ctx(), f.Entry) })
}

func (w *world) release(f forward) error {
	_, err := callBounded(w, "Release", func() (struct{}, error) { return struct{}{}, w.action.Release(w.ctx(), f.Entry) })
	return err
}

// answer is the result of a call.
type answer[T any] struct {
	value T
	err   error
}

// startCall makes a call in a goroutine; the answer arrives through the channel.
func startCall[T any](call func() (T, error)) <-chan answer[T] {
	done := make(chan answer[T], 1)
	go func() {
		v, err := call()
		done <- answer[T]{v, err}
	}()
	return done
}

func callBounded[T any](w *world, name string, call func() (T, error)) (T, error) {
	w.t.Helper()
	return awaitAnswer(w, name, startCall(call))
}

// awaitAnswer waits a little longer than the call's context lives: a call that respects it has
// returned by then.
func awaitAnswer[T any](w *world, name string, done <-chan answer[T]) (T, error) {
	w.t.Helper()
	select {
	case a := <-done:
		return a.value, a.err
	case <-time.After(w.Patience + 10*time.Second):
		w.t.Fatalf("%s does not return, though its context has ended: does it wait for a lock that a stopped process holds?",
			name)
		panic("unreachable")
	}
}

// The same calls, with required results.

func (w *world) mustPlan(f forward) activities.Change {
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

func (w *world) mustApply(f forward, want activities.Digest) activities.Result {
	w.t.Helper()
	result, err := w.apply(f, want)
	if err != nil {
		w.t.Fatalf("Apply: %v", err)
	}
	return result
}

// mustUndo undoes the step and returns the result, whose outcome must be one of outcomes.
func (w *world) mustUndo(f forward, outcomes ...activities.Outcome) activities.Undone {
	w.t.Helper()
	return w.mustDecide(f, activities.Decision{}, outcomes...)
}

func (w *world) mustDecide(f forward, d activities.Decision, outcomes ...activities.Outcome) activities.Undone {
	w.t.Helper()
	undone, err := w.undo(f, d)
	if err != nil {
		w.t.Fatalf("Undo: %v", err)
	}
	if !slices.Contains(outcomes, undone.Outcome) {
		w.t.Fatalf("Undo ended %s, want %s: %s", undone.Outcome, joinOutcomes(outcomes), asJSON(undone))
	}
	return undone
}

// mustBeBefore requires that the world is as before the step.
func (w *world) mustBeBefore(when string) {
	w.t.Helper()
	if now := w.manifest(); !w.Same(w.before, now) {
		w.t.Fatalf("%s the world is not as before:\n%s", when, difference(w.before, now))
	}
}

// mustMatchOutcome is mustBeBefore for a step that may or may not have acted. If it cannot be
// undone, the outcome must also say whether it acted.
func (w *world) mustMatchOutcome(undone activities.Undone, when string) {
	w.t.Helper()
	w.mustBeBefore(when)
	if w.Undone != activities.Final {
		return
	}
	now := w.manifest()
	if acted := now != w.before; acted != (undone.Outcome == activities.Final) {
		w.t.Fatalf("%s the outcome is %s, but the step's effect on the world is:\n%s", when, undone.Outcome,
			difference(w.before, now))
	}
}

// mustBe requires that the world equals an earlier manifest.
func (w *world) mustBe(manifest, when string) {
	w.t.Helper()
	if now := w.manifest(); now != manifest {
		w.t.Fatalf("%s the world has changed:\n%s", when, difference(manifest, now))
	}
}

// mustFail requires an error of a type.
func (w *world) mustFail(what string, err error, want activities.ErrorType) {
	w.t.Helper()
	if err == nil {
		w.t.Fatalf("%s succeeded, want %s", what, want)
	}
	if got := activities.TypeOf(err); got != want {
		w.t.Fatalf("%s failed with %s, want %s: %v", what, got, want, err)
	}
}

// mustSee requires a result of Observe, or Unseen.
func (w *world) mustSee(f forward, want activities.State) {
	w.t.Helper()
	seen, err := w.observe(f)
	if err != nil {
		w.t.Fatalf("Observe: %v", err)
	}
	if seen.State != want && seen.State != activities.Unseen {
		w.t.Fatalf("Observe saw %s, want %s: %s", seen.State, want, asJSON(seen))
	}
}

func joinOutcomes(outcomes []activities.Outcome) string {
	names := make([]string, len(outcomes))
	for i, o := range outcomes {
		names[i] = string(o)
	}
	return strings.Join(names, " or ")
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// difference lists the lines that are in only one of two manifests.
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
		out = append(out[:most], "... and "+activities.CountOf(len(out)-most, "more line"))
	}
	if len(out) == 0 {
		return "(the same lines in another order)"
	}
	return strings.Join(out, "\n")
}
