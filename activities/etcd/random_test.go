package etcd_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// drawTxn draws the parameters of a step on a dozen keys, some of which no transaction can have.
func drawTxn(r *rand.Rand, lease client.LeaseID) map[string]any {
	key := func() string { return fmt.Sprintf("%c/%d", 'a'+rune(r.IntN(3)), r.IntN(4)) }
	p := map[string]any{"database": "main"}
	var puts, deletes, conditions []any
	for range r.IntN(4) {
		one := map[string]any{"key": key(), "value": fmt.Sprint(r.IntN(3))}
		switch r.IntN(5) {
		case 0:
			one["lease"] = fmt.Sprintf("%x", int64(lease))
		case 1:
			one["keep_lease"] = true
		}
		puts = append(puts, one)
	}
	for range r.IntN(3) {
		switch r.IntN(3) {
		case 0:
			deletes = append(deletes, map[string]any{"prefix": key()[:2]})
		case 1:
			deletes = append(deletes, map[string]any{"from": key(), "to": key()})
		default:
			deletes = append(deletes, map[string]any{"key": key()})
		}
	}
	if r.IntN(3) == 0 {
		conditions = append(conditions, map[string]any{"key": key(), "exists": r.IntN(2) == 0})
	}
	for name, all := range map[string][]any{"put": puts, "delete": deletes, "compare": conditions} {
		if len(all) > 0 {
			p[name] = all
		}
	}
	return p
}

// Random transactions are undone one after the other, and the database holds what it held before
// each.
func TestRandomTransactionsAreUndone(t *testing.T) {
	random := testrun.Rand(t)
	n := 300
	if testrun.Deep() {
		n = 10_000
	}
	d := newDatabase(t, nil)
	lease := d.grant(100_000)
	var steps []*step
	var dumps []string
	var failed, changed int
	undo := func() {
		last := len(steps) - 1
		steps[last].undo(activities.Restored)
		require.Equal(t, dumps[last], d.dump(), "%s", steps[last].with.With)
		steps, dumps = steps[:last], dumps[:last]
	}
	for range n {
		raw, err := json.Marshal(drawTxn(random, lease))
		require.NoError(t, err)
		s, before := d.txn(string(raw)), d.dump()
		change, planned := s.action().Plan(t.Context(), s.entry, s.with)
		require.Equal(t, before, d.dump(), "%s", raw)
		_, err = s.action().Apply(t.Context(), s.entry, s.with, change.Digest)
		if err != nil {
			failed++
			require.Contains(t, []activities.ErrorType{activities.Refused, activities.ActionDenied}, activities.TypeOf(err), err)
			require.EqualError(t, planned, err.Error())
			require.Equal(t, before, d.dump(), "%s: %v", raw, err)
			s.decide(activities.Decision{}, activities.Nothing)
			continue
		}
		require.NoError(t, planned)
		if d.dump() != before {
			changed++
		}
		steps, dumps = append(steps, s), append(dumps, before)
		for len(steps) > 0 && random.IntN(3) == 0 {
			undo()
		}
	}
	for len(steps) > 0 {
		undo()
	}
	require.Empty(t, d.dump())
	t.Logf("%d transactions: %d changed something, %d failed", n, changed, failed)
	require.Greater(t, changed, n/5)
	require.Greater(t, failed, n/10)
}
