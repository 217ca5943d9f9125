package retention_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/retention"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// made is a record of so many minutes ago.
func made(token string, minutes int, state activities.RecordState, more ...func(*activities.Record)) activities.Record {
	at := now.Add(-time.Duration(minutes) * time.Minute)
	r := activities.Record{Entry: activities.Entry{Token: token}, State: state, Since: at}
	if state != activities.RecordOpen {
		r.Ended, r.Until = at, now.Add(time.Hour)
	}
	for _, change := range more {
		change(&r)
	}
	return r
}

func of(keys ...string) func(*activities.Record) {
	return func(r *activities.Record) { r.Entry.Keys = keys }
}

func pinned(r *activities.Record) { r.Entry.Pinned = true }

func bytes(n int64) func(*activities.Record) { return func(r *activities.Record) { r.Bytes = n } }

func until(t time.Time) func(*activities.Record) {
	return func(r *activities.Record) { r.Until = t }
}

func ended(t time.Time) func(*activities.Record) {
	return func(r *activities.Record) { r.Ended = t }
}

func tokens(records []activities.Record) []string {
	names := []string{}
	for _, r := range records {
		names = append(names, r.Entry.Token)
	}
	return names
}

func TestChoose(t *testing.T) {
	const (
		open, committed  = activities.RecordOpen, activities.RecordCommitted
		undone, released = activities.RecordUndone, activities.RecordReleased
	)
	for name, c := range map[string]struct {
		policy          retention.Policy
		records         []activities.Record
		release, forget []string
	}{
		"nothing": {},
		"the window has passed, to the instant": {
			records: []activities.Record{
				made("c", 10, committed, until(now.Add(time.Nanosecond))), made("b", 20, committed, until(now)),
				made("a", 30, committed, until(now.Add(-time.Hour))),
			},
			release: []string{"a", "b"},
		},
		"what an undo has kept for a redo goes when its window has passed": {
			records: []activities.Record{made("b", 10, undone, until(now)), made("a", 10, undone),
				made("c", 30, undone, until(time.Time{}))},
			release: []string{"c", "b"},
		},
		"an undo that has begun and has not ended needs its record": {
			policy:  retention.Policy{Bytes: 1},
			records: []activities.Record{made("a", 10, undone, ended(time.Time{}), until(time.Time{}), bytes(10))},
		},
		"what is open is never chosen, and fills no bound": {
			policy: retention.Policy{Versions: 1, Bytes: 10},
			records: []activities.Record{
				made("a", 100_000, open, of("file:/a"), bytes(1000)), made("b", 99_999, open, of("file:/a"), bytes(1000)),
				made("c", 200_000, committed, of("file:/a"), bytes(10)),
			},
		},
		"beyond the count of a file the oldest goes": {
			policy: retention.Policy{Versions: 2},
			records: []activities.Record{
				made("b", 20, committed, of("file:/a")), made("d", 5, undone, of("file:/a")),
				made("a", 30, committed, of("file:/a")),
				made("c", 40, committed, of("file:/other")),
			},
			release: []string{"a"},
		},
		"a step of several files is a version of each, and goes whole": {
			policy: retention.Policy{Versions: 1},
			records: []activities.Record{
				made("new", 10, committed, of("file:/a")), made("both", 20, committed, of("file:/a", "file:/b")),
				made("old", 30, committed, of("file:/b")),
			},
			release: []string{"both"},
		},
		"a file that is named twice is one version": {
			policy: retention.Policy{Versions: 2},
			records: []activities.Record{made("b", 10, committed, of("file:/a", "file:/a")),
				made("a", 20, committed, of("file:/a", "file:/a"))},
		},
		"checkpoints of a container have a count of their own, and other resources none": {
			policy: retention.Policy{Versions: 1, Checkpoints: 2},
			records: []activities.Record{
				made("d", 10, committed, of("container:web")), made("c", 20, committed, of("container:web")),
				made("b", 30, committed, of("container:web")),
				made("a", 40, committed, of("container:db")), made("f", 10, committed, of("stripe:x")), made("e", 20, committed,
					of("stripe:x")),
			},
			release: []string{"b"},
		},
		"what is pinned counts, and stays for its time": {
			policy: retention.Policy{Versions: 2, Bytes: 100},
			records: []activities.Record{
				made("d", 10, committed, of("file:/a"), bytes(40)), made("c", 20, committed, of("file:/a"), bytes(90), pinned),
				made("b", 30, committed, of("file:/a"), bytes(1), pinned), made("a", 40, committed, of("file:/a"), bytes(1)),
				made("x", 50, committed, bytes(1)), made("p", 60, committed, pinned, until(now)),
			},
			release: []string{"p", "x", "a"},
		},
		"beyond the bytes the oldest go": {
			policy: retention.Policy{Bytes: 100},
			records: []activities.Record{
				made("a", 40, committed, bytes(1)), made("b", 30, committed, bytes(40)), made("d", 10, committed, bytes(60)),
				made("c", 20, committed, bytes(41)),
			},
			release: []string{"a", "b", "c"},
		},
		"to the last byte": {
			policy:  retention.Policy{Bytes: 100},
			records: []activities.Record{made("a", 40, committed, bytes(40)), made("b", 30, undone, bytes(60))},
		},
		"what the count has released takes no bytes": {
			policy: retention.Policy{Versions: 1, Bytes: 100},
			records: []activities.Record{
				made("c", 10, committed, of("file:/a"), bytes(60)), made("b", 20, committed, of("file:/a"), bytes(60)),
				made("a", 30, committed, bytes(40)),
			},
			release: []string{"b"},
		},
		"the audit trail stays for its time": {
			policy: retention.Policy{Audit: time.Hour},
			records: []activities.Record{
				made("b", 90, released, ended(now.Add(-time.Hour))), made("a", 100, released, ended(now.Add(-2*time.Hour))),
				made("c", 95, released, ended(now.Add(-time.Hour+1))),
				made("d", 1000, committed), made("e", 1000, open),
			},
			forget: []string{"a", "b"},
		},
		"made at one instant: by their place in the ledger": {
			policy: retention.Policy{Bytes: 1},
			records: []activities.Record{
				made("b", 10, committed, bytes(2), func(r *activities.Record) { r.Entry.Seq = 1 }),
				made("a", 10, committed, bytes(1), func(r *activities.Record) { r.Entry.Seq = 2 }),
			},
			release: []string{"b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // in whatever order a journal lists them
				release, forget := retention.Choose(c.records, c.policy, now)
				require.Equal(t, append([]string{}, c.release...), tokens(release))
				require.Equal(t, append([]string{}, c.forget...), tokens(forget))
				slices.Reverse(c.records)
			}
		})
	}
}

// Whatever the records are: what a ledger needs stays, the bounds hold, and nothing goes without
// need.
func TestChooseAmongManyRecords(t *testing.T) {
	states := []activities.RecordState{activities.RecordOpen, activities.RecordCommitted, activities.RecordUndone,
		activities.RecordReleased}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		policy := retention.Policy{Versions: 1 + random.IntN(4), Checkpoints: 1 + random.IntN(4),
			Bytes: int64(1 + random.IntN(200)), Audit: time.Hour}
		var records []activities.Record
		for i := range random.IntN(40) {
			r := made(fmt.Sprint(i), random.IntN(180), states[random.IntN(4)], bytes(int64(random.IntN(30))),
				until(now.Add(time.Duration(random.IntN(4)-1)*time.Hour)))
			for range random.IntN(3) {
				r.Entry.Keys = append(r.Entry.Keys, fmt.Sprint([]string{"file:", "container:"}[random.IntN(2)], random.IntN(4)))
			}
			if random.IntN(5) == 0 {
				r.Ended = time.Time{}
			}
			r.Entry.Pinned = random.IntN(5) == 0
			records = append(records, r)
		}
		release, forget := retention.Choose(records, policy, now)
		out := map[string]bool{}
		for _, r := range release {
			require.True(t, r.State == activities.RecordCommitted || r.State == activities.RecordUndone && !r.Ended.IsZero(),
				"seed %d: %+v", seed, r)
			out[r.Entry.Token] = true
		}
		for _, r := range forget {
			require.Equal(t, activities.RecordReleased, r.State)
			require.False(t, now.Before(r.Ended.Add(time.Hour)))
		}
		total, versions, dropped := int64(0), map[string]int{}, int64(0) // of what is not pinned
		for _, r := range records {
			kept := r.State == activities.RecordCommitted || r.State == activities.RecordUndone && !r.Ended.IsZero()
			switch {
			case !kept:
			case out[r.Entry.Token]:
				if now.Before(r.Until) {
					require.False(t, r.Entry.Pinned, "seed %d: %+v", seed, r)
					dropped++
				}
			default:
				require.True(t, now.Before(r.Until), "seed %d: its time has passed: %+v", seed, r)
				if r.Entry.Pinned {
					continue
				}
				total += r.Bytes
				for _, key := range slices.Compact(slices.Sorted(slices.Values(r.Entry.Keys))) {
					versions[key]++
				}
			}
		}
		require.LessOrEqual(t, total, policy.Bytes, "seed %d", seed)
		for key, n := range versions {
			most := policy.Versions
			if strings.HasPrefix(key, "container:") {
				most = policy.Checkpoints
			}
			require.LessOrEqual(t, n, most, "seed %d: %s", seed, key)
		}
		if dropped > 0 { // and with room for all, all stay
			release, _ = retention.Choose(records,
				retention.Policy{Versions: 100, Checkpoints: 100, Bytes: 10_000, Audit: time.Hour}, now)
			for _, r := range release {
				require.False(t, now.Before(r.Until), "seed %d: %+v", seed, r)
			}
		}
	}
}

func TestDefaults(t *testing.T) {
	week := made("week", 7*24*60, activities.RecordReleased)
	records := []activities.Record{week, made("younger", 7*24*60-1, activities.RecordReleased)}
	for i := range 51 {
		records = append(records, made(string(rune('A'+i)), 100-i, activities.RecordCommitted, of("file:/a"), bytes(1)))
	}
	records = append(records,
		made("small", 200, activities.RecordCommitted, bytes(1)),
		made("big", 1, activities.RecordCommitted, bytes(500_000_000-51)))
	release, forget := retention.Choose(records, retention.Policy{}, now)
	require.Equal(t, []string{"A"}, tokens(release), "the 51st version of a file; and 500 MB are full to the last byte")
	require.Equal(t, []string{"week"}, tokens(forget))
	records[len(records)-1].Bytes++
	release, _ = retention.Choose(records, retention.Policy{}, now)
	require.Equal(t, []string{"small", "A"}, tokens(release))
}
