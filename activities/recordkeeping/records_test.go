package recordkeeping

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// one is a journal with the record of one token, which another call changes meanwhile.
type one struct {
	token     string
	record    *Record
	meanwhile func(*Record)
	stored    int
}

func (*one) Records(context.Context) ([]activities.Record, []error, error) { return nil, nil, nil }

func (o *one) Change(_ context.Context, token string, change func(*Record) (bool, error)) error {
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
	commit := func(r Records) error { return r.Commit(ctx, "t", until) }
	hold := func(r Records) error { _, err := r.Hold(ctx, "t", holder); return err }
	endHold := func(r Records) error { return r.EndHold(ctx, "t", holder) }
	abandon := func(r Records) error { return r.Abandon(ctx, "t") }
	forget := func(r Records) error { return r.Forget(ctx, "t") }
	gone := Times{Released: until}
	for name, c := range map[string]struct {
		is    Record
		do    func(Records) error
		keeps bool // it stays as it is
	}{
		"commit an open one":         {is: Record{State: Applied}, do: commit},
		"commit one that is undone":  {is: Record{State: Undone}, do: commit, keeps: true},
		"hold an open one":           {is: Record{State: Applied}, do: hold},
		"hold one that is undone":    {is: Record{State: Undoing}, do: hold, keeps: true},
		"end a hold that nobody has": {is: Record{State: Applied}, do: endHold, keeps: true},
		"abandon an undo":            {is: Record{State: Undoing}, do: abandon},
		"abandon an undo that has not begun": {is: Record{State: Applied}, do: abandon,
			keeps: true},
		"forget one that was released": {is: Record{State: Released, Times: gone}, do: forget},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := c.is
			j := &one{token: "t", record: &is}
			r := Records{Journals: j}
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
	j := &one{token: "t", record: &Record{State: Applied},
		meanwhile: func(r *Record) { r.Holders = append(r.Holders, other) }}
	r := Records{Journals: j}
	held, err := r.Hold(t.Context(), "t", holder)
	require.NoError(t, err)
	require.True(t, held)
	require.Equal(t, []activities.Owner{other, holder}, j.record.Holders)
	require.NoError(t, r.EndHold(t.Context(), "t", other))
	require.Equal(t, []activities.Owner{holder}, j.record.Holders)

	j.meanwhile = func(r *Record) { r.State = Released }
	held, err = r.Hold(t.Context(), "t", other)
	require.NoError(t, err)
	require.False(t, held, "its release has begun")

	held, err = r.Hold(t.Context(), "another", holder)
	require.NoError(t, err)
	require.True(t, held, "its undo tells that there is no record")
	require.ErrorContains(t, r.Forget(t.Context(), "t"), "it is still needed")
	j.record.Released, j.record.Outcome = time.Now(), &activities.Abandoned
	require.NoError(t, r.Forget(t.Context(), "t"))
	require.Equal(t, Record{State: Released, Forgotten: true,
		Times: Times{Released: j.record.Released}}, *j.record)
}
