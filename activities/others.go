package activities

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxOthers is how many steps of others are named with a drift.
const maxOthers = 5

// nameOthers puts before a drift which other steps have acted on the same since, as far as the
// world's records tell: the newest first.
func (b boundAction) nameOthers(ctx context.Context, e Entry, d *Drift) {
	if b.records == nil || d == nil {
		return
	}
	all, _, err := b.records.Records(ctx)
	if err != nil {
		return // the drift is told without
	}
	since := e.Since
	if i := slices.IndexFunc(all, func(r Record) bool { return r.Entry.Token == e.Token }); i >= 0 {
		since = all[i].Since
	}
	all = slices.DeleteFunc(all, func(r Record) bool {
		return r.Entry.Token == e.Token || r.State == RecordUndone || !r.Since.After(since) || !TouchSame(r.Entry, e)
	})
	if len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b Record) int { return b.Since.Compare(a.Since) })
	var named strings.Builder
	named.WriteString("! others that have acted on the same since, by the records of this world:\n")
	for i, r := range all {
		if i == maxOthers {
			fmt.Fprintf(&named, "!   and %s\n", CountOf(len(all)-i, "more step"))
			break
		}
		fmt.Fprintf(&named, "!   task %s, step %s (%s), %s\n", r.Owner.Workflow, r.Entry.Step, r.Entry.Action,
			r.Since.UTC().Format(time.RFC3339))
	}
	d.Diff = named.String() + d.Diff
}

// TouchSame reports whether two steps change a resource in common, or one of them a folder in which
// the other's is.
func TouchSame(a, b Entry) bool {
	for _, x := range slices.Concat(a.Keys, a.Changes) {
		for _, y := range slices.Concat(b.Keys, b.Changes) {
			if strings.HasPrefix(x+"/", y+"/") || strings.HasPrefix(y+"/", x+"/") {
				return true
			}
		}
	}
	return false
}
