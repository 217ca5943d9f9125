// Package retention decides how long undo records are kept: by age, by count and by bytes. It only chooses; who calls it
// has the actions release, and the journals forget:
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

// Policy bounds what a world keeps of tasks that have ended. What is open counts for nothing here: a live ledger needs
// it, however much it is.
type Policy struct {
	// Versions is how many records of one file are kept. Defaults to 50.
	Versions int `json:"versions,omitempty"`
	// Checkpoints is how many records of one container are kept. Defaults to 1,000.
	Checkpoints int `json:"checkpoints,omitempty"`
	// Bytes is how many bytes all of them together take. Defaults to 500 MB. Pinned records count, here and above, and stay.
	Bytes int64 `json:"bytes,omitempty"`
	// Audit is for how long a released record still tells whose it was and how it ended. Defaults to 7 days.
	Audit time.Duration `json:"audit,omitempty"`
}

// The defaults of a Policy.
const (
	DefaultVersions    = 50
	DefaultCheckpoints = 1000
	DefaultBytes       = 500_000_000
	DefaultAudit       = 7 * 24 * time.Hour
)

// WithDefaults is p with every zero field at its default.
func (p Policy) WithDefaults() Policy {
	p.Versions = cmp.Or(p.Versions, DefaultVersions)
	p.Checkpoints = cmp.Or(p.Checkpoints, DefaultCheckpoints)
	p.Bytes = cmp.Or(p.Bytes, DefaultBytes)
	p.Audit = cmp.Or(p.Audit, DefaultAudit)
	return p
}

// most is how many records of a resource are kept; 0 where they are not counted.
func (p Policy) most(key string) int {
	switch world, _, _ := strings.Cut(key, ":"); world {
	case "file":
		return p.Versions
	case "container":
		return p.Checkpoints
	}
	return 0
}

// Choose says which of one world's records are to be released and which of the released ones are to be forgotten, each
// list the oldest first. A record is released when its time has passed, and before that where newer ones fill the
// policy's bounds and it is not pinned.
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
		case !releasable(r):
		case passed(r.Until):
			release = append(release, r)
		default:
			kept = append(kept, r)
		}
	}
	slices.SortFunc(kept, func(a, b activities.Record) int { return older(b, a) })
	counts, total, full := map[string]int{}, int64(0), false
	for _, r := range kept {
		crowded := p.crowded(r, counts)
		// Beyond the first that does not fit, nothing older is kept in its place: rolling back goes from the newest on.
		full = full || !crowded && total+r.Bytes > p.Bytes
		if (full || crowded) && !r.Entry.Pinned {
			release = append(release, r)
			continue
		}
		total += r.Bytes
		for _, key := range p.counted(r) {
			counts[key]++
		}
	}
	slices.SortFunc(release, older)
	slices.SortFunc(forget, older)
	return release, forget
}

// releasable says that no live ledger can need the record: its task has committed, or its undo has come to an end.
func releasable(r activities.Record) bool {
	return r.State == activities.RecordCommitted || r.State == activities.RecordUndone && !r.Ended.IsZero()
}

// crowded says that there are as many newer records of one of the record's resources as are kept.
func (p Policy) crowded(r activities.Record, counts map[string]int) bool {
	return slices.ContainsFunc(p.counted(r), func(key string) bool { return counts[key] >= p.most(key) })
}

// counted are the resources of a record whose records are counted.
func (p Policy) counted(r activities.Record) []string {
	keys := slices.Compact(slices.Sorted(slices.Values(r.Entry.Keys)))
	return slices.DeleteFunc(keys, func(key string) bool { return p.most(key) == 0 })
}

// older orders records by when they were made.
func older(a, b activities.Record) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Entry.Seq, b.Entry.Seq), strings.Compare(a.Entry.Token, b.Entry.Token))
}
