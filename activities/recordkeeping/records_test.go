package recordkeeping_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// one is a journal with the record of one token, which another call changes meanwhile.
type one struct {
	token     string
	record    *recordkeeping.Record
	meanwhile func(*recordkeeping.Record)
	stored    int
}

func (*one) Records(context.Context) ([]activities.Record, []error, error) { return nil, nil, nil }

func (o *one) Change(_ context.Context, token string, change func(*recordkeeping.Record) (bool, error)) error {
	if token != o.token {
		return nil
	}
	for {
		seen := *o.record
		if changed, err := change(&seen); err != nil || !changed {
			return err
		}
		if o.meanwhile != nil {
			o.meanwhile(o.record)
			o.meanwhile = nil
			continue
		}
		o.record, o.stored = &seen, o.stored+1
		return nil
	}
}

func TestWhatRetentionDoesToARecord(t *testing.T) {
	t.Parallel()
	ctx, until, holder := t.Context(), time.Now().Add(time.Hour), activities.Owner{Workflow: "rollback"}
	commit := func(r recordkeeping.Records) error { return r.Commit(ctx, "t", until) }
	hold := func(r recordkeeping.Records) error { _, err := r.Hold(ctx, "t", holder); return err }
	endHold := func(r recordkeeping.Records) error { return r.EndHold(ctx, "t", holder) }
	abandon := func(r recordkeeping.Records) error { return r.Abandon(ctx, "t") }
	forget := func(r recordkeeping.Records) error { return r.Forget(ctx, "t") }
	gone := recordkeeping.Times{Released: until}
	for name, c := range map[string]struct {
		is    recordkeeping.Record
		do    func(recordkeeping.Records) error
		keeps bool // it stays as it is
	}{
		"commit an open one":         {is: recordkeeping.Record{State: recordkeeping.Applied}, do: commit},
		"commit one that is undone":  {is: recordkeeping.Record{State: recordkeeping.Undone}, do: commit, keeps: true},
		"hold an open one":           {is: recordkeeping.Record{State: recordkeeping.Applied}, do: hold},
		"hold one that is undone":    {is: recordkeeping.Record{State: recordkeeping.Undoing}, do: hold, keeps: true},
		"end a hold that nobody has": {is: recordkeeping.Record{State: recordkeeping.Applied}, do: endHold, keeps: true},
		"abandon an undo":            {is: recordkeeping.Record{State: recordkeeping.Undoing}, do: abandon},
		"abandon an undo that has not begun": {is: recordkeeping.Record{State: recordkeeping.Applied}, do: abandon,
			keeps: true},
		"forget one that was released": {is: recordkeeping.Record{State: recordkeeping.Released, Times: gone}, do: forget},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := c.is
			j := &one{token: "t", record: &is}
			r := recordkeeping.Records{Journals: j}
			require.NoError(t, c.do(r))
			if c.keeps {
				require.Equal(t, c.is, *j.record)
				require.Zero(t, j.stored)
				return
			}
			require.NotEqual(t, c.is, *j.record)
			require.NoError(t, c.do(r))
			require.Equal(t, 1, j.stored, "twice is once")
		})
	}
}

func TestARecordThatAnotherCallChangesMeanwhile(t *testing.T) {
	t.Parallel()
	other, holder := activities.Owner{Workflow: "other"}, activities.Owner{Workflow: "rollback"}
	j := &one{token: "t", record: &recordkeeping.Record{State: recordkeeping.Applied},
		meanwhile: func(r *recordkeeping.Record) { r.Holders = append(r.Holders, other) }}
	r := recordkeeping.Records{Journals: j}
	held, err := r.Hold(t.Context(), "t", holder)
	require.NoError(t, err)
	require.True(t, held)
	require.Equal(t, []activities.Owner{other, holder}, j.record.Holders)
	require.NoError(t, r.EndHold(t.Context(), "t", other))
	require.Equal(t, []activities.Owner{holder}, j.record.Holders)

	j.meanwhile = func(r *recordkeeping.Record) { r.State = recordkeeping.Released }
	held, err = r.Hold(t.Context(), "t", other)
	require.NoError(t, err)
	require.False(t, held, "its release has begun")

	held, err = r.Hold(t.Context(), "another", holder)
	require.NoError(t, err)
	require.True(t, held, "its undo tells that there is no record")
	require.ErrorContains(t, r.Forget(t.Context(), "t"), "it is still needed")
	j.record.Released, j.record.Outcome = time.Now(), &activities.Abandoned
	require.NoError(t, r.Forget(t.Context(), "t"))
	require.Equal(t, recordkeeping.Record{State: recordkeeping.Released, Forgotten: true,
		Times: recordkeeping.Times{Released: j.record.Released}}, *j.record)
}
