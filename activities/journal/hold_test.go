package journal_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

var (
	ann = activities.Owner{Workflow: "rollback-a", Run: "run-a"}
	bob = activities.Owner{Workflow: "rollback-b", Run: "run-b"}
)

// holding demands what Hold returns.
func holding(t *testing.T, r journal.Records, e activities.Entry, holder activities.Owner, want bool) {
	t.Helper()
	held, err := r.Hold(t.Context(), e.Token, holder)
	require.NoError(t, err)
	require.Equal(t, want, held)
}

func TestARecordIsNotReleasedWhileSomebodyHoldsIt(t *testing.T) {
	j, _ := open(t)
	r := journal.Records{Journal: j}
	e := entryOf(1)
	token := recorded(t, j, e)
	for range 2 {
		holding(t, r, e, ann, true)
		holding(t, r, e, bob, true)
	}
	require.Equal(t, []activities.Owner{ann, bob}, list(t, r).Holders)
	for _, ended := range []activities.Owner{ann, bob} {
		_, err := token.DecideReleasing()
		require.Equal(t, activities.Fenced, activities.TypeOf(err), err)
		require.ErrorContains(t, err, "rollback-b")
		for range 2 {
			require.NoError(t, r.EndHold(t.Context(), e.Token, ended))
		}
	}
	require.Empty(t, list(t, r).Holders)
	fate, err := token.DecideReleasing()
	require.NoError(t, err)
	require.Equal(t, journal.Releasing, fate)
	holding(t, r, e, ann, false)
	require.NoError(t, r.EndHold(t.Context(), e.Token, ann))
	require.NoError(t, token.Drop(journal.Record))
	require.NoError(t, token.MarkReleased())
	require.NoError(t, r.Forget(t.Context(), e.Token))
	holding(t, r, e, ann, false)
	require.Equal(t, []string{"fate"}, files(t, token))
}

// Each document that says who needs a record is deleted or cut, one at a time: the record is not
// released.
func TestHarmToAHold(t *testing.T) {
	for _, name := range []string{"hold-1", "hold-2", "hold-1-spare", "hold-2-spare"} {
		for harm, do := range map[string]func(path string) error{"deleted": os.Remove,
			"cut": func(path string) error { return os.Truncate(path, 9) }} {
			j, _ := open(t)
			r := journal.Records{Journal: j}
			e := entryOf(1)
			token := recorded(t, j, e)
			holding(t, r, e, ann, true)
			holding(t, r, e, bob, true)
			require.NoError(t, do(filepath.Join(token.Dir(), name)))
			_, err := token.DecideReleasing()
			require.Contains(t, []activities.ErrorType{activities.Fenced, activities.DamagedRecord}, activities.TypeOf(err),
				"%s %s: %v", name, harm, err)
			fate, err := token.Fate()
			require.NoError(t, err)
			require.Equal(t, journal.Undecided, fate)
		}
	}
}

func TestWhatHasNothingToReleaseIsNoReasonToRefuse(t *testing.T) {
	j, _ := open(t)
	r := journal.Records{Journal: j}
	unknown, undoing := entryOf(1), entryOf(2)
	holding(t, r, unknown, ann, true)
	require.NoDirExists(t, filepath.Join(j.Dir(), "tokens", unknown.Token))
	require.NoError(t, r.EndHold(t.Context(), unknown.Token, ann))
	decide(t, recorded(t, j, undoing), journal.Undoing)
	holding(t, r, undoing, ann, true)
	require.Empty(t, list(t, r).Holders)
	_, err := r.Hold(t.Context(), "../x", ann)
	require.Error(t, err)
	require.Error(t, r.EndHold(t.Context(), "../x", ann))
}

// A release that died before it decided the token's fate is done again.
func TestAReleaseThatWasCutOffBeforeItsFateIsListedForAnother(t *testing.T) {
	j, _ := open(t)
	r := journal.Records{Journal: j}
	e := entryOf(1)
	token := recorded(t, j, e)
	_, err := token.DecideReleasing()
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(token.Dir(), "fate")))
	holding(t, r, e, ann, false)
	got := list(t, r)
	require.Equal(t, activities.RecordCommitted, got.State)
	require.False(t, got.Until.IsZero())
	decide(t, token, journal.Undoing) // an undo that comes now finds everything
}

// Whichever comes first decides, and no record that is held is released.
func TestAHoldBesideARelease(t *testing.T) {
	won := map[bool]int{}
	for n := range 100 {
		j, _ := open(t)
		r := journal.Records{Journal: j}
		e := entryOf(n + 1)
		token := recorded(t, j, e)
		var wg sync.WaitGroup
		var held [2]bool
		var errs [2]error
		var fate journal.Fate
		var released error
		for i, holder := range []activities.Owner{ann, bob} {
			wg.Go(func() { held[i], errs[i] = r.Hold(t.Context(), e.Token, holder) })
		}
		wg.Go(func() { fate, released = token.DecideReleasing() })
		wg.Wait()
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		if released == nil {
			require.Equal(t, journal.Releasing, fate)
			require.Equal(t, [2]bool{}, held, "it was released, so nobody holds it")
		} else {
			require.Equal(t, activities.Fenced, activities.TypeOf(released), released)
			require.Equal(t, [2]bool{true, true}, held)
			require.ElementsMatch(t, []activities.Owner{ann, bob}, list(t, r).Holders)
		}
		won[released == nil]++
	}
	t.Logf("released %d, held %d", won[true], won[false])
}
