package container

import (
	"context"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/target"
)

// Commit makes committed steps durable: what they did outlasts a restart of their containers. Their
// checkpoints stay.
func (x *execAction) Commit(ctx context.Context, c activities.Commitment) (done activities.Committed, err error) {
	if err := x.store.CheckPlace(ctx, c.Place); err != nil {
		return done, err
	}
	type in struct {
		container string
		by        checkpoint.Choice
	}
	var order []in
	tokens := map[in][]string{}
	for _, token := range c.Tokens {
		t, err := x.store.Journal.Token(token)
		if err != nil {
			return done, err
		}
		rec, found, err := readRecord(t)
		if target.IsDamaged(err) { // its undo says so
			continue
		}
		if err != nil {
			return done, err
		}
		if !found || rec.ReadOnly {
			continue
		}
		if err := x.leases.Stays(t); err != nil {
			return done, err
		}
		at := in{rec.Container.ID, rec.Backend}
		if tokens[at] == nil {
			order = append(order, at)
		}
		tokens[at] = append(tokens[at], token)
	}
	for _, at := range order {
		note, err := x.backends.Of(at.by).Commit(ctx, at.container, tokens[at])
		if err != nil {
			return done, err
		}
		if note != "" {
			done.Notes = append(done.Notes, note)
		}
	}
	return done, nil
}

var _ activities.Committer = (*execAction)(nil)
