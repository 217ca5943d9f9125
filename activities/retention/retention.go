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
	// Bytes is how many bytes all of them together take. Defaults to 500 MB.
	Bytes int64 `json:"bytes,omitempty"`
	// Audit is for how long a released record still tells whose it was and how it ended. Defaults to 7 days.
	Audit time.Duration `json:"audit,omitempty"`
}

// The defaults of a Policy.
const (
	DefaultVersions = 50
	DefaultBytes    = 500_000_000
	DefaultAudit    = 7 * 24 * time.Hour
)

// WithDefaults is p with every zero field at its default.
func (p Policy) WithDefaults() Policy {
	p.Versions = cmp.Or(p.Versions, DefaultVersions)
	p.Bytes = cmp.Or(p.Bytes, DefaultBytes)
	p.Audit = cmp.Or(p.Audit, DefaultAudit)
	return p
}

// fileKey begins the resource keys whose versions are counted.
const fileKey = "file:"

// Choose says which of one world's records are to be released and which of the released ones are to be forgotten, each
// list the oldest first. A record is released when its time has passed, and before that where newer ones fill the
// policy's bounds.
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
	versions, total, full := map[string]int{}, int64(0), false
	for _, r := range kept {
		if full || crowded(r, versions, p.Versions) {
			release = append(release, r)
			continue
		}
		// Beyond the first that does not fit, nothing older is kept in its place: rolling back goes from the newest on.
		if full = total+r.Bytes > p.Bytes; full {
			release = append(release, r)
			continue
		}
		total += r.Bytes
		for _, key := range fileKeys(r) {
			versions[key]++
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

// crowded says that one of the record's files has as many newer versions as are kept.
func crowded(r activities.Record, versions map[string]int, most int) bool {
	return slices.ContainsFunc(fileKeys(r), func(key string) bool { return versions[key] >= most })
}

// fileKeys are the files that a record is a version of.
func fileKeys(r activities.Record) []string {
	var keys []string
	for _, key := range r.Entry.Keys {
		if strings.HasPrefix(key, fileKey) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// older orders records by when they were made.
func older(a, b activities.Record) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Entry.Seq, b.Entry.Seq), strings.Compare(a.Entry.Token, b.Entry.Token))
}
