package host

import (
	"context"
	"maps"
	"slices"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// orphans lists the records of this host that no history knows, or looks at one of them and undoes
// it.
func (b builtin) orphans(ctx context.Context, r protocol.OrphansRequest) (found protocol.OrphansResult, err error) {
	defer activities.Beat(ctx)()
	busy, err := b.server.Busy(ctx)
	if err != nil {
		return found, err
	}
	look := &round{builtin: b, busy: busy, owners: map[activities.Owner]ownerState{}}
	journals := b.registry.Records()
	found.Orphans = []protocol.RecordName{}
	for _, world := range slices.Sorted(maps.Keys(journals)) {
		records, _, err := journals[world].Records(ctx)
		if err != nil {
			return found, err
		}
		for _, record := range records {
			if r.Token != "" && record.Entry.Token != r.Token {
				continue
			}
			isOrphan, err := look.isOrphan(ctx, record)
			switch {
			case err != nil:
				return found, err
			case r.Token != "" && !isOrphan:
				return found, nonRetryable(b.explainOwned(record))
			case r.Token != "":
				found.Orphan, err = b.handleOrphan(ctx, world, record, r)
				return found, err
			case !isOrphan:
			case len(found.Orphans) == retainOrphans:
				found.More++
			default:
				found.Orphans = append(found.Orphans, nameOf(world, record))
			}
		}
	}
	if r.Token != "" {
		return found,
			nonRetryable(activities.Errorf(activities.Refused, "no journal of host %s has a record of token %q", b.config.Host,
				r.Token))
	}
	return found, nil
}

// isOrphan reports whether a record is open, or its undo has begun, and nothing on the server can
// have it undone.
func (r *round) isOrphan(ctx context.Context, record activities.Record) (bool, error) {
	if record.State == activities.RecordReleased || !record.Ended.IsZero() {
		return false, nil
	}
	owner, err := r.ownerOf(ctx, record)
	return err == nil && owner.gone && !r.busy[record.Owner.Workflow], err
}

// explainOwned says why a record is not to be undone as an orphan.
func (b builtin) explainOwned(record activities.Record) error {
	if record.State == activities.RecordReleased || !record.Ended.IsZero() {
		return activities.Errorf(activities.Refused, "token %s is %s: it is not open, and nothing waits to be undone",
			record.Entry.Token, record.State)
	}
	return activities.Errorf(activities.Refused,
		"token %s is no orphan: the server knows its task %s, which alone may undo it; cancel, recover or roll back "+
			"that task",
		record.Entry.Token, record.Owner.Workflow)
}

// handleOrphan observes what a record is about and undoes it, if that is asked for, as the undo of
// a task would.
func (b builtin) handleOrphan(ctx context.Context, world string, record activities.Record,
	r protocol.OrphansRequest) (*protocol.Orphan, error) {
	o := &protocol.Orphan{RecordName: nameOf(world, record), Action: record.Entry.Action, Keys: record.Entry.Keys}
	var err error
	if o.Seen, err = b.registry.Observe(ctx, b.host(), record.Entry); err != nil || !r.Undo {
		return o, err
	}
	undone, err := b.registry.Undo(ctx, b.host(), record.Entry,
		activities.Decision{Force: r.Force, Orphan: true, Who: r.Who, Why: r.Why})
	if err != nil {
		return o, err
	}
	o.Undone = &undone
	return o, nil
}
