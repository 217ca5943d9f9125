package workflows_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// issuer is a remote service that makes the ids of what it creates, and that forgets by which
// request it did.
type issuer struct {
	mu      sync.Mutex
	issued  int
	objects map[string]bool
	known   map[string]activities.Result // what the undo of each step was given
}

// newIssuerWorld makes a world whose undos can only delete what the response to the forward has
// named. fails is the step that fails; as its answer never came, nothing is known of what it would
// have made.
func newIssuerWorld(fails string, ids ...string) (*issuer, *world) {
	is := &issuer{objects: map[string]bool{}, known: map[string]activities.Result{}}
	w := &world{steps: chain(ids...)}
	for i := range w.steps {
		w.steps[i].UndoOutputs = []string{"id", "never"}
	}
	w.do = func(_ context.Context, step string, _ int, _ activities.Forward) (activities.Result, error) {
		if step == fails {
			return activities.Result{}, errNo
		}
		return is.create(step), nil
	}
	w.undo = func(step string, _ int, d activities.Decision) (activities.Undone, error) { return is.remove(step, d) }
	return is, w
}

func (is *issuer) create(step string) activities.Result {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.issued++
	id := fmt.Sprintf("obj_%d", is.issued)
	is.objects[id] = true
	return activities.Result{
		Summary: "made one", After: activities.DigestOf([]byte(step)),
		Outputs: map[string]any{"id": id, "page": strings.Repeat("what no undo needs ", 500)},
	}
}

func (is *issuer) remove(step string, d activities.Decision) (activities.Undone, error) {
	is.mu.Lock()
	defer is.mu.Unlock()
	if !d.Done || d.Result == nil {
		return activities.Undone{Outcome: activities.Nothing}, nil
	}
	is.known[step] = *d.Result
	id, _ := d.Result.Outputs["id"].(string)
	if !is.objects[id] {
		return activities.Undone{}, activities.Errorf(activities.ActionDenied, "there is no object %q", id)
	}
	delete(is.objects, id)
	return activities.Undone{Outcome: activities.Compensated, Losses: []string{"its number is used up"}}, nil
}

// requireRemoved demands that what the steps had made is gone, and that each undo was given the
// fingerprint and the id, and no more.
func (is *issuer) requireRemoved(t *testing.T, steps ...string) {
	t.Helper()
	require.Empty(t, is.objects)
	want := map[string]activities.Result{}
	for i, step := range steps {
		want[step] = activities.Result{After: activities.DigestOf([]byte(step)),
			Outputs: map[string]any{"id": fmt.Sprintf("obj_%d", i+1)}}
	}
	require.Equal(t, want, is.known)
}

func TestAnUndoIsGivenTheIDThatTheResponseNamed(t *testing.T) {
	is, w := newIssuerWorld("d", "a", "b", "c", "d")
	report, err := newRun(t, w).report()
	require.Error(t, err)
	require.Equal(t,
		[]string{"a settled compensated", "b settled compensated", "c settled compensated", "d settled nothing-to-undo"},
		outcomes(report))
	is.requireRemoved(t, "a", "b", "c")
}

func TestAnUndoIsGivenTheIDThatAnEarlierRunWasAnswered(t *testing.T) {
	is, w := newIssuerWorld("d", "a", "b", "c", "d")
	l := &chained{T: t, world: w, in: suggestAlways}
	report, err := l.report()
	require.Error(t, err)
	require.Greater(t, l.runs, 4)
	require.Equal(t, compensations.Unwound, report.Status)
	is.requireRemoved(t, "a", "b", "c")
}

func TestARecoveryReadsTheIDsFromTheHistory(t *testing.T) {
	is, w := newIssuerWorld("", "a", "b", "c")
	create, blocked := w.do, blockAt("c", never)
	w.do = func(ctx context.Context, step string, n int, f activities.Forward) (activities.Result, error) {
		if step == "c" {
			return blocked(ctx, step, n, f)
		}
		return create(ctx, step, n, f)
	}
	l := startLive(t, w)
	l.awaitCalls("do c", 1)
	l.terminate(l.run.GetID())
	report := l.awaitReport(l.recover())
	require.Equal(t, []string{"a settled compensated", "b settled compensated", "c settled nothing-to-undo"},
		outcomes(report))
	is.requireRemoved(t, "a", "b")
}

func TestARollbackReadsTheIDsFromTheHistory(t *testing.T) {
	is, w := newIssuerWorld("", "a", "b")
	l := startLive(t, w)
	report := l.awaitReport(l.rollback(""))
	require.Equal(t, compensations.Unwound, report.Status)
	is.requireRemoved(t, "a", "b")
}

func TestAStepWhoseResultMightNotBeCarriedIsRefusedBeforeItActs(t *testing.T) {
	var ids []string
	for i := range 400 {
		ids = append(ids, fmt.Sprint("s", i))
	}
	_, w := newIssuerWorld("", ids...)
	w.do = func(context.Context, string, int, activities.Forward) (activities.Result, error) {
		return activities.Result{Outputs: map[string]any{"id": randomText(activities.MaxKnown * 9 / 10)}}, nil
	}
	w.undo = nil
	r := newRun(t, w)
	// packing is slow under the race detector
	report, err := r.report()
	require.ErrorContains(t, err, "that can be carried: split the task")
	require.Equal(t, compensations.Unwound, report.Status)
}

// randomText returns text that does not compress below three quarters.
func randomText(bytes int) string {
	noise := make([]byte, bytes*3/4)
	_, _ = rand.Read(noise)
	return base64.StdEncoding.EncodeToString(noise)
}
