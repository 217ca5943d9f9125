package journal_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

func open(t *testing.T) (*journal.Journal, *journal.Token) {
	t.Helper()
	j, err := journal.Open(t.TempDir())
	require.NoError(t, err)
	token, err := j.Token(activities.NewToken("run", "step", 1))
	require.NoError(t, err)
	return j, token
}

func TestTheIDIsMadeOnceAndAnotherJournalIsTheWrongPlace(t *testing.T) {
	dir := t.TempDir()
	ids := make([]string, 20)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			j, err := journal.Open(dir)
			if err == nil {
				ids[i] = j.ID()
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		require.Len(t, id, 16)
		require.Equal(t, ids[0], id)
	}
	j, err := journal.Open(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, j.Check(j.ID()))
	require.Equal(t, activities.WrongPlace, activities.TypeOf(j.Check(ids[0])))
}

func TestADocumentIsWrittenOnceAndTheFirstWriterWins(t *testing.T) {
	_, token := open(t)
	const writers = 16
	wrote := make([]bool, writers)
	saw := make([]int, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			v := i
			created, err := token.Create(journal.Record, &v)
			if err != nil {
				v = -1
			}
			wrote[i], saw[i] = created, v
		})
	}
	wg.Wait()
	winners := 0
	for i := range writers {
		require.Equal(t, saw[0], saw[i], "every writer sees what the first has written")
		if wrote[i] {
			winners++
			require.Equal(t, i, saw[i])
		}
	}
	require.Equal(t, 1, winners)
	es, err := os.ReadDir(token.Dir())
	require.NoError(t, err)
	require.Len(t, es, 2, "the record and its spare name: no temporary file is left")
}

func TestTheFirstFateIsTheFate(t *testing.T) {
	_, token := open(t)
	require.NoError(t, token.CheckOpen())
	_, err := os.Stat(token.Dir())
	require.ErrorIs(t, err, os.ErrNotExist, "asking makes nothing")

	f, err := token.Decide(journal.Undoing)
	require.NoError(t, err)
	require.Equal(t, journal.Undoing, f)
	f, err = token.Decide(journal.Releasing)
	require.NoError(t, err)
	require.Equal(t, journal.Undoing, f)
	require.Equal(t, activities.Fenced, activities.TypeOf(token.CheckOpen()))
	require.Error(t, token.Drop("fate"))
	require.Error(t, token.Drop(journal.Outcome))
}

func TestDamageIsSeenAndNeverBelieved(t *testing.T) {
	_, token := open(t)
	v := "what was there before"
	_, err := token.Create(journal.Record, &v)
	require.NoError(t, err)
	file := filepath.Join(token.Dir(), journal.Record)
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	for name, damaged := range map[string]string{
		"truncated": string(whole[:len(whole)/2]),
		"empty":     "",
		"changed":   strings.Replace(string(whole), "before", "BEFORE", 1),
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, []byte(damaged), 0o600))
			var read string
			found, err := token.Read(journal.Record, &read)
			require.True(t, found, "damaged is not absent")
			require.Equal(t, activities.DamagedRecord, activities.TypeOf(err))
			_, err = token.Create(journal.Record, &read)
			require.Equal(t, activities.DamagedRecord, activities.TypeOf(err))
		})
	}
}

func TestALockKeepsGoroutinesOfOneProcessApart(t *testing.T) {
	_, token := open(t)
	unlock, err := token.Lock(context.Background())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	_, err = token.Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	// A fence does not wait for it.
	_, err = token.Decide(journal.Undoing)
	require.NoError(t, err)

	unlock()
	unlock, err = token.Lock(context.Background())
	require.NoError(t, err)
	unlock()
}

func TestATokenIsNoPath(t *testing.T) {
	j, _ := open(t)
	for _, bad := range []string{"", "..", "../../etc", strings.Repeat("g", 32), strings.Repeat("a", 31)} {
		_, err := j.Token(bad)
		require.Equal(t, activities.Refused, activities.TypeOf(err), bad)
	}
}

func TestALoserSeesOnlyWhatTheWinnerWrote(t *testing.T) {
	_, token := open(t)
	type doc struct {
		Void bool `json:"void,omitempty"`
		N    int  `json:"n"`
	}
	_, err := token.Create(journal.Record, &doc{N: 1})
	require.NoError(t, err)
	mine := doc{Void: true, N: 2}
	created, err := token.Create(journal.Record, &mine)
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, doc{N: 1}, mine)
}

func TestARecordThatIsDeletedIsReadFromItsSpare(t *testing.T) {
	_, token := open(t)
	v := "the pre-image"
	_, err := token.Create(journal.Record, &v)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(token.Dir(), journal.Record)))
	var got string
	found, err := token.Read(journal.Record, &got)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, v, got)
	require.NoError(t, token.Drop(journal.Record))
	found, err = token.Read(journal.Record, &got)
	require.NoError(t, err)
	require.False(t, found, "what is released is gone under both names")
}

func TestADocumentOfAnotherTokenIsDamaged(t *testing.T) {
	j, one := open(t)
	other, err := j.Token(activities.NewToken("run", "another step", 1))
	require.NoError(t, err)
	for _, token := range []*journal.Token{one, other} {
		_, err := token.Create(journal.Applied, &struct{}{})
		require.NoError(t, err)
	}
	require.NoError(t, os.Rename(filepath.Join(other.Dir(), journal.Applied), filepath.Join(one.Dir(), journal.Applied)))
	_, err = one.Read(journal.Applied, &struct{}{})
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
}

func TestWhatIsLostIsNotTakenForWhatNeverWas(t *testing.T) {
	_, token := open(t)
	require.NoError(t, token.CheckNotLost(false, "later"))
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(token.CheckNotLost(true)))
	_, err := token.Create("later", &struct{}{})
	require.NoError(t, err)
	require.NoError(t, token.CheckNotLost(false))
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(token.CheckNotLost(false, "later")))
}

func TestAnOutcomeWithoutItsFateIsATombstone(t *testing.T) {
	_, token := open(t)
	_, err := token.Decide(journal.Undoing)
	require.NoError(t, err)
	_, err = token.Create(journal.Outcome, &activities.Undone{Outcome: activities.Restored})
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(token.Dir(), "fate")))
	require.Equal(t, activities.Fenced, activities.TypeOf(token.CheckOpen()))
	fate, err := token.Decide(journal.Releasing)
	require.NoError(t, err)
	require.Equal(t, journal.Undoing, fate)
}
