package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

func TestOnlyTheUnfinishedUndoOfAnEarlierStepOfAnotherTaskGoesOnFromAnUndo(t *testing.T) {
	steps, err := journal.Open(t.TempDir())
	require.NoError(t, err)
	l, err := Open(t.TempDir(), steps)
	require.NoError(t, err)
	add := func(task, after string) (*journal.Token, link) {
		e := activities.Entry{Step: "it", Token: activities.NewToken(task, after, 1)}
		token, err := steps.Token(e.Token)
		require.NoError(t, err)
		require.NoError(t, token.Make())
		record := link{Owned: journal.Owned{Entry: e, Owner: activities.Owner{Workflow: task}, Made: time.Now()},
			After: after}
		_, err = token.Create(journal.Record, &record)
		require.NoError(t, err)
		return token, record
	}
	first, one := add("one", "")
	own, two := add("two", one.Entry.Token)
	_, last := add("two", two.Entry.Token)
	goesOn := func(mine link) bool {
		is, err := l.IsEarlierUndoing(mine.Owned)
		require.NoError(t, err)
		return is
	}
	begin := func(token *journal.Token) {
		_, err := token.Decide(journal.Undoing)
		require.NoError(t, err)
	}

	require.False(t, goesOn(last), "the first step is not being undone")
	begin(own)
	require.False(t, goesOn(last), "a task undoes its own steps one after the other")
	begin(first)
	require.True(t, goesOn(last))
	require.True(t, goesOn(two))
	require.False(t, goesOn(one), "there is none before the first")
	_, err = first.Create(journal.Outcome, &activities.Undone{Outcome: activities.Restored})
	require.NoError(t, err)
	require.False(t, goesOn(last), "that undo is over")
}
