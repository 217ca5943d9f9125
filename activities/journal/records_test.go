package journal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// worldRecord is a Record document as a world has it.
type worldRecord struct {
	journal.Owned
	Before string `json:"before"`
}

var owner = activities.Owner{Workflow: "task-1", Run: "run-1"}

func entryOf(n int) activities.Entry {
	return activities.Entry{
		Version: activities.EntryVersion, Seq: n, Action: "toy.set", Token: activities.NewToken("run", "step", n),
		Keys:  []string{"toy:a"},
		Place: activities.Place{Journal: "j"},
	}
}

// recorded makes a token with a record.
func recorded(t *testing.T, j *journal.Journal, e activities.Entry) *journal.Token {
	t.Helper()
	token, err := j.Token(e.Token)
	require.NoError(t, err)
	rec := worldRecord{Owned: journal.Own(activities.WithOwner(t.Context(), owner), e), Before: "old"}
	_, err = token.Create(journal.Record, &rec)
	require.NoError(t, err)
	return token
}

func decide(t *testing.T, token *journal.Token, f journal.Fate) {
	t.Helper()
	got, err := token.Decide(f)
	require.NoError(t, err)
	require.Equal(t, f, got)
}

func undone(t *testing.T, token *journal.Token) {
	t.Helper()
	_, err := token.Create(journal.Outcome, &activities.Undone{Outcome: activities.Restored})
	require.NoError(t, err)
}

// list is the journal's only record; nil: it lists none.
func list(t *testing.T, r journal.Records) *activities.Record {
	t.Helper()
	records, problems, err := r.Records(t.Context())
	require.NoError(t, err)
	require.Empty(t, problems)
	if len(records) == 0 {
		return nil
	}
	require.Len(t, records, 1)
	return &records[0]
}

func TestARecordGoesThroughItsStatesAndTellsWhoseItIs(t *testing.T) {
	j, _ := open(t)
	r := journal.Records{Journal: j}
	require.Nil(t, list(t, r))
	e := entryOf(1)
	e.Keep = 3 * time.Hour
	began := time.Now().UTC()
	token := recorded(t, j, e)

	is := func(state activities.RecordState) activities.Record {
		t.Helper()
		got := list(t, r)
		require.NotNil(t, got)
		require.Equal(t, state, got.State)
		require.Equal(t, e, got.Entry)
		require.Equal(t, owner, got.Owner)
		require.WithinRange(t, got.Since, began, time.Now())
		require.Positive(t, got.Bytes)
		return *got
	}
	got := is(activities.RecordOpen)
	require.Zero(t, got.Ended)
	require.Zero(t, got.Until)

	until := time.Now().Add(time.Hour).UTC()
	require.NoError(t, r.Commit(t.Context(), e.Token, until))
	require.NoError(t, r.Commit(t.Context(), e.Token, until.Add(time.Hour)))
	got = is(activities.RecordCommitted)
	require.WithinRange(t, got.Ended, began, time.Now())
	require.True(t, got.Until.Equal(until), "the first to commit says until when")
	kept, found, err := token.Committed()
	require.NoError(t, err)
	require.True(t, found)
	require.True(t, kept.Equal(until))

	decide(t, token, journal.Undoing)
	got = is(activities.RecordUndone)
	require.Zero(t, got.Ended, "the undo has begun, and needs the record")
	require.WithinRange(t, got.Until, began.Add(3*time.Hour), time.Now().Add(3*time.Hour), "it may be given up")
	undone(t, token)
	got = is(activities.RecordUndone)
	require.WithinRange(t, got.Ended, began.Truncate(time.Second), time.Now())
	require.Equal(t, got.Ended.Add(3*time.Hour), got.Until, "from its end on it is kept for as long again, for a redo")

	require.NoError(t, token.Drop(journal.Record))
	is(activities.RecordUndone)
	require.NoError(t, token.MarkReleased())
	got = is(activities.RecordReleased)
	require.WithinRange(t, got.Ended, began, time.Now())
	require.NoError(t, token.MarkReleased())

	require.NoError(t, r.Forget(t.Context(), e.Token))
	require.Nil(t, list(t, r))
}

func TestTheDefaultWindowOfARedo(t *testing.T) {
	j, _ := open(t)
	token := recorded(t, j, entryOf(1))
	decide(t, token, journal.Undoing)
	undone(t, token)
	got := list(t, journal.Records{Journal: j})
	require.Equal(t, got.Ended.Add(activities.DefaultKeep), got.Until)
}

func TestAReleaseThatWasCutOffIsListedForAnother(t *testing.T) {
	j, _ := open(t)
	token := recorded(t, j, entryOf(1))
	decide(t, token, journal.Releasing)
	for range 2 {
		got := list(t, journal.Records{Journal: j})
		require.Equal(t, activities.RecordCommitted, got.State)
		require.False(t, got.Until.After(time.Now()), "at once")
		require.Equal(t, "toy.set", got.Entry.Action)
		require.NoError(t, token.Drop(journal.Record))
	}
	require.NoError(t, token.MarkReleased())
	require.Equal(t, activities.RecordReleased, list(t, journal.Records{Journal: j}).State)
}

func TestTokensThatNeverHadARecord(t *testing.T) {
	j, undoneFirst := open(t)
	r := journal.Records{Journal: j}
	decide(t, undoneFirst, journal.Undoing)
	require.Nil(t, list(t, r))
	undone(t, undoneFirst)
	got := list(t, r)
	require.Equal(t, activities.RecordReleased, got.State, "it keeps nothing")
	require.NoError(t, r.Forget(t.Context(), got.Entry.Token))
	require.Nil(t, list(t, r))

	planned, err := j.Token(activities.NewToken("run", "planned", 1))
	require.NoError(t, err)
	decide(t, planned, journal.Releasing)
	require.Nil(t, list(t, r))
	require.NoError(t, planned.MarkReleased())
	require.Equal(t, activities.RecordReleased, list(t, r).State)

	unknown := activities.NewToken("run", "unknown", 1)
	require.NoError(t, r.Commit(t.Context(), unknown, time.Now()))
	require.NoError(t, r.Forget(t.Context(), unknown))
	require.NoDirExists(t, filepath.Join(j.Dir(), "tokens", unknown))
	require.Error(t, r.Commit(t.Context(), "../x", time.Now()))
	require.Error(t, r.Forget(t.Context(), "../x"))
}

func TestForgetLeavesTheTombstoneAndRefusesWhatIsNeeded(t *testing.T) {
	j, _ := open(t)
	r := journal.Records{Journal: j}
	for n, c := range []struct {
		fate   journal.Fate
		commit bool
		undone bool
		says   activities.RecordState
	}{
		{says: activities.RecordOpen},
		{commit: true, says: activities.RecordCommitted},
		{fate: journal.Undoing, says: activities.RecordUndone},
		{fate: journal.Undoing, undone: true, says: activities.RecordUndone},
		{fate: journal.Releasing, says: activities.RecordCommitted},
	} {
		e := entryOf(n + 1)
		token := recorded(t, j, e)
		if c.commit {
			require.NoError(t, r.Commit(t.Context(), e.Token, time.Now()))
		}
		if c.fate != "" {
			decide(t, token, c.fate)
		}
		if c.undone {
			undone(t, token)
		}
		before := files(t, token)
		err := r.Forget(t.Context(), e.Token)
		require.Equal(t, activities.Refused, activities.TypeOf(err), "%v", err)
		require.ErrorContains(t, err, string(c.says))
		require.Equal(t, before, files(t, token))
	}

	e := entryOf(100)
	token := recorded(t, j, e)
	require.NoError(t, os.MkdirAll(filepath.Join(token.Dir(), "kept", "deep"), 0o700))
	unlock, err := token.Lock(t.Context())
	require.NoError(t, err)
	defer unlock()
	decide(t, token, journal.Undoing)
	undone(t, token)
	require.NoError(t, token.MarkReleased())
	for range 2 {
		require.NoError(t, r.Forget(t.Context(), e.Token))
		require.Equal(t, []string{"fate"}, files(t, token))
	}
	require.Equal(t, activities.Fenced, activities.TypeOf(token.CheckOpen()), "a late forward still finds the tombstone")
}

func files(t *testing.T, token *journal.Token) []string {
	t.Helper()
	es, err := os.ReadDir(token.Dir())
	require.NoError(t, err)
	var names []string
	for _, e := range es {
		names = append(names, e.Name())
	}
	return names
}

func TestDamageIsAProblemOfItsTokenOnly(t *testing.T) {
	j, _ := open(t)
	r := journal.Records{Journal: j}
	good := entryOf(1)
	recorded(t, j, good)
	for n, document := range []string{"record", "fate", "committed", "outcome", "released"} {
		e := entryOf(n + 10)
		token := recorded(t, j, e)
		require.NoError(t, r.Commit(t.Context(), e.Token, time.Now()))
		if document == "fate" || document == "outcome" {
			decide(t, token, journal.Undoing)
			undone(t, token)
		}
		if document == "released" {
			require.NoError(t, token.MarkReleased())
		}
		file := filepath.Join(token.Dir(), document)
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, raw[:len(raw)-3], 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(j.Dir(), "tokens", "lost+found"), 0o700))
	records, problems, err := r.Records(t.Context())
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Equal(t, good.Token, records[0].Entry.Token)
	require.Len(t, problems, 6)
	damaged := 0
	for _, problem := range problems {
		if activities.TypeOf(problem) == activities.DamagedRecord {
			damaged++
			require.ErrorContains(t, problem, "token ")
		}
	}
	require.Equal(t, 5, damaged)

	// What is damaged is not marked and not forgotten, but can be released: whose it was is then
	// unknown.
	bad := entryOf(10).Token
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(r.Forget(t.Context(), bad)))
	token, err := j.Token(bad)
	require.NoError(t, err)
	decide(t, token, journal.Releasing)
	require.NoError(t, token.Drop(journal.Record))
	require.NoError(t, token.MarkReleased())
	require.NoError(t, r.Forget(t.Context(), bad))
}

func TestADamagedRecordThatWasClaimedIsListedAndCanBeGivenUp(t *testing.T) {
	j, _ := open(t)
	r := journal.Records{Journal: j}
	ctx := activities.WithOwner(t.Context(), owner)
	e := entryOf(1)
	e.Keep = 3 * time.Hour
	token := recorded(t, j, e)
	require.NoError(t, r.Claim(ctx, e), "it is whole, and tells by itself")
	require.NoFileExists(t, filepath.Join(token.Dir(), "owned"))
	require.NoError(t, os.Truncate(filepath.Join(token.Dir(), "record"), 10))
	decide(t, token, journal.Undoing)
	_, problems, err := r.Records(t.Context())
	require.NoError(t, err)
	require.Len(t, problems, 1)
	_, err = token.DecideReleasing()
	require.Equal(t, activities.Fenced, activities.TypeOf(err), err)

	require.NoError(t, r.Claim(ctx, e))
	is := func() activities.Record {
		record := list(t, r)
		require.NotNil(t, record)
		require.Equal(t, e, record.Entry)
		require.Equal(t, owner, record.Owner)
		require.Equal(t, activities.RecordUndone, record.State)
		return *record
	}
	record := is()
	require.Zero(t, record.Ended)
	require.WithinDuration(t, time.Now().Add(e.Keep), record.Until, time.Minute)
	require.NoError(t, r.Abandon(t.Context(), e.Token))
	require.NotZero(t, is().Ended)
	fate, err := token.DecideReleasing()
	require.NoError(t, err)
	require.Equal(t, journal.Undoing, fate)
	require.NoError(t, token.Drop(journal.Record))
	require.NoError(t, token.MarkReleased())
	require.NoError(t, r.Forget(t.Context(), e.Token))
	require.Nil(t, list(t, r))
}

func TestARecordOfBeforeThereWereOwnersIsListedByItsToken(t *testing.T) {
	j, token := open(t)
	_, err := token.Create(journal.Record, &map[string]string{"before": "old"})
	require.NoError(t, err)
	got := list(t, journal.Records{Journal: j})
	require.Equal(t, activities.RecordOpen, got.State)
	require.Equal(t, activities.Entry{Token: filepath.Base(token.Dir())}, got.Entry)
	require.Zero(t, got.Owner)
}

func TestBytesCountWhatATokenTakesElsewhere(t *testing.T) {
	j, _ := open(t)
	e := entryOf(1)
	token := recorded(t, j, e)
	alone := list(t, journal.Records{Journal: j}).Bytes
	require.NoError(t, os.Mkdir(filepath.Join(token.Dir(), "blobs"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(token.Dir(), "blobs", "x"), make([]byte, 1000), 0o600))
	got := list(t, journal.Records{Journal: j, Bytes: func(of activities.Entry) int64 {
		require.Equal(t, e, of)
		return 5
	}})
	require.Equal(t, alone+1005, got.Bytes)
}

// Whatever comes first, the fate counts, and nothing is in two states.
func TestCommitBesideAnUndoOrARelease(t *testing.T) {
	for _, fate := range []journal.Fate{journal.Undoing, journal.Releasing} {
		t.Run(string(fate), func(t *testing.T) {
			j, _ := open(t)
			r := journal.Records{Journal: j}
			const rounds = 50
			var wg sync.WaitGroup
			errs := make(chan error, 3*rounds)
			for n := range rounds {
				e := entryOf(n + 1)
				token := recorded(t, j, e)
				wg.Go(func() { errs <- r.Commit(context.Background(), e.Token, time.Now().Add(time.Hour)) })
				wg.Go(func() {
					got, err := token.Decide(fate)
					if err == nil && got != fate {
						err = fmt.Errorf("a commit has decided %s", got)
					}
					errs <- err
				})
				wg.Go(func() { // somebody lists meanwhile
					_, problems, err := r.Records(context.Background())
					if err == nil && len(problems) > 0 {
						err = problems[0]
					}
					errs <- err
				})
			}
			wg.Wait()
			close(errs)
			for err := range errs {
				require.NoError(t, err)
			}
			records, problems, err := r.Records(t.Context())
			require.NoError(t, err)
			require.Empty(t, problems)
			require.Len(t, records, rounds)
			for _, got := range records {
				if fate == journal.Undoing {
					require.Equal(t, activities.RecordUndone, got.State)
					require.Zero(t, got.Ended)
					continue
				}
				require.Equal(t, activities.RecordCommitted, got.State)
				require.False(t, got.Until.After(time.Now()), "it is being released, whatever the commit says")
			}
		})
	}
}

// Listing, releasing and forgetting at once: a token is listed whole, with its owner, or not at
// all.
func TestListingBesideReleaseAndForget(t *testing.T) {
	j, _ := open(t)
	r := journal.Records{Journal: j}
	const tokens = 20
	for n := range tokens {
		recorded(t, j, entryOf(n+1))
	}
	done := make(chan error, 1)
	go func() {
		for n := range tokens {
			token, err := j.Token(entryOf(n + 1).Token)
			if err == nil {
				_, err = token.Decide(journal.Releasing)
			}
			for _, do := range []func() error{
				func() error { return token.Drop(journal.Record) }, token.MarkReleased,
				func() error { return r.Forget(context.Background(), entryOf(n+1).Token) },
			} {
				if err == nil {
					err = do()
				}
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for ended := false; !ended; {
		select {
		case err := <-done:
			require.NoError(t, err)
			ended = true
		default:
		}
		records, problems, err := r.Records(t.Context())
		require.NoError(t, err)
		require.Empty(t, problems)
		for _, got := range records {
			if got.State != activities.RecordReleased {
				require.Equal(t, "toy.set", got.Entry.Action, "%+v", got)
			}
		}
	}
	require.Nil(t, list(t, r))
}

func TestOwnedStandsBesideTheWorldsOwnFields(t *testing.T) {
	j, _ := open(t)
	token := recorded(t, j, entryOf(1))
	var rec worldRecord
	found, err := token.Read(journal.Record, &rec)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "old", rec.Before)
	raw, err := json.Marshal(rec)
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, json.Unmarshal(raw, &all))
	require.ElementsMatch(t, []string{"entry", "owner", "made", "before"}, keys(all))
}

func keys(m map[string]any) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}

// A tombstone is looked into once: then its folder's time of change tells whether it is still one.
func TestATombstoneIsLookedIntoAgainWhenItHasChanged(t *testing.T) {
	j, token := open(t)
	r := journal.Records{Journal: j}
	long := time.Now().Add(-time.Hour)
	decide(t, token, journal.Undoing)
	require.NoError(t, os.Chtimes(token.Dir(), long, long))
	require.Nil(t, list(t, r))
	undone(t, token)
	require.NoError(t, os.Chtimes(token.Dir(), long, long))
	require.Nil(t, list(t, r), "it has not been looked into")
	require.NotNil(t, list(t, journal.Records{Journal: reopen(t, j)}), "another process has not seen it before")
	now := time.Now()
	require.NoError(t, os.Chtimes(token.Dir(), now, now))
	require.Equal(t, activities.RecordReleased, list(t, r).State)

	// What has just changed may change again within the same tick of the clock.
	j, token = open(t)
	r = journal.Records{Journal: j}
	decide(t, token, journal.Undoing)
	require.NoError(t, os.Chtimes(token.Dir(), now, now))
	require.Nil(t, list(t, r))
	undone(t, token)
	require.NoError(t, os.Chtimes(token.Dir(), now, now))
	require.NotNil(t, list(t, r))
}

// reopen opens a journal as another process does.
func reopen(t *testing.T, j *journal.Journal) *journal.Journal {
	t.Helper()
	again, err := journal.Open(j.Dir())
	require.NoError(t, err)
	return again
}
