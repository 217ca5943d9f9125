// Package retention decides how long undo records are kept: by age, by count and by bytes. It only
// chooses; its caller has the actions release, and the journals forget:
//
//	records, problems, err := world.Records.Records(ctx)
//	release, forget := retention.Choose(records, retention.Policy{}, time.Now())
//	for _, r := range release { err = action(r.Entry.Action).Release(ctx, r.Entry) }
//	for _, r := range forget { err = world.Records.Forget(ctx, r.Entry.Token) }
package retention

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// Policy bounds what a world keeps of tasks that have ended. Open records are not counted: a live
// ledger needs them all.
type Policy struct {
	// Versions is how many records of one file are kept. Defaults to 50.
	Versions int `json:"versions,omitempty"`
	// Checkpoints is how many records of one container are kept. Defaults to 1,000.
	Checkpoints int `json:"checkpoints,omitempty"`
	// Bytes bounds the size of all of them together. Defaults to 500 MB. Pinned records count, here
	// and above, but stay.
	Bytes int64 `json:"bytes,omitempty"`
	// Audit is how long a released record keeps its owner and outcome. Defaults to 7 days.
	Audit time.Duration `json:"audit,omitempty"`
}

// The defaults of a Policy.
const (
	DefaultVersions    = 50
	DefaultCheckpoints = 1000
	DefaultBytes       = 500_000_000
	DefaultAudit       = 7 * 24 * time.Hour
)

// WithDefaults replaces zero fields by their defaults.
func (p Policy) WithDefaults() Policy {
	p.Versions = cmp.Or(p.Versions, DefaultVersions)
	p.Checkpoints = cmp.Or(p.Checkpoints, DefaultCheckpoints)
	p.Bytes = cmp.Or(p.Bytes, DefaultBytes)
	p.Audit = cmp.Or(p.Audit, DefaultAudit)
	return p
}

// maxRecords is how many records of a resource are kept; 0 means no limit.
func (p Policy) maxRecords(key string) int {
	switch world, _, _ := strings.Cut(key, ":"); world {
	case "file":
		return p.Versions
	case "container":
		return p.Checkpoints
	}
	return 0
}

// Choose returns which of one world's records are to be released, and which released ones are to be
// forgotten, each list oldest first. A record is released when its time is over, and earlier if
// newer ones exhaust the policy's bounds and it is not pinned.
func Choose(records []activities.Record, p Policy, now time.Time) (release, forget []activities.Record) {
	p = p.WithDefaults()
	passed := func(t time.Time) bool { return !now.Before(t) }
	var kept []activities.Record
	for _, r := range records {
		switch {
		case r.State == activities.RecordReleased:
			if passed(r.Ended.Add(p.Audit)) {
				forget = append(forget, r)
			}
		case !isReleasable(r):
		case passed(r.Until):
			release = append(release, r)
		default:
			kept = append(kept, r)
		}
	}
	slices.SortFunc(kept, func(a, b activities.Record) int { return compareAge(b, a) })
	counts, total, full := map[string]int{}, int64(0), false
	for _, r := range kept {
		crowded := p.isCrowded(r, counts)
		// Once one does not fit, nothing older is kept either: rollbacks go from the newest back.
		full = full || !crowded && total+r.Bytes > p.Bytes
		if (full || crowded) && !r.Entry.Pinned {
			release = append(release, r)
			continue
		}
		total += r.Bytes
		for _, key := range p.countedKeys(r) {
			counts[key]++
		}
	}
	slices.SortFunc(release, compareAge)
	slices.SortFunc(forget, compareAge)
	return release, forget
}

// isReleasable reports whether no live ledger can need the record: its task has committed, or its
// undo has ended.
func isReleasable(r activities.Record) bool {
	return r.State == activities.RecordCommitted || r.State == activities.RecordUndone && !r.Ended.IsZero()
}

// isCrowded reports whether the newer records of one of the record's resources reach the limit.
func (p Policy) isCrowded(r activities.Record, counts map[string]int) bool {
	return slices.ContainsFunc(p.countedKeys(r), func(key string) bool { return counts[key] >= p.maxRecords(key) })
}

// countedKeys are the resources of a record that have a limit.
func (p Policy) countedKeys(r activities.Record) []string {
	keys := slices.Compact(slices.Sorted(slices.Values(r.Entry.Keys)))
	return slices.DeleteFunc(keys, func(key string) bool { return p.maxRecords(key) == 0 })
}

// compareAge orders records by the time they were made.
func compareAge(a, b activities.Record) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Entry.Seq, b.Entry.Seq),
		strings.Compare(a.Entry.Token, b.Entry.Token))
}
