package redis

import (
	"context"
	"encoding/json"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
)

// The states of a record, which is never deleted: it is the fence.
const (
	applied  = "applied" // written together with the change
	undoing  = "undoing" // no forward may act any more
	undone   = "undone"
	released = "released" // before it acted, or when its rollback window had closed
)

// ensureJournal returns the id of a database's journal, and makes the journal if there is none.
func (w *world) ensureJournal(ctx context.Context, name string) (string, error) {
	c, err := w.connect(ctx, name)
	if err != nil {
		return "", err
	}
	defer c.end()
	if _, err := c.client.HSetNX(ctx, journalKey, "id", keyvalue.NewJournalID()).Result(); err != nil {
		return "", c.explain(err)
	}
	id, err := c.client.HGet(ctx, journalKey, "id").Result()
	return id, c.explain(err)
}

// owned are the arguments by which a script makes a record: token, entry, owner, time.
func owned(ctx context.Context, e activities.Entry) ([]any, error) {
	entry, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	owner, err := json.Marshal(activities.OwnerOf(ctx))
	return []any{e.Token, string(entry), string(owner), timestamp(time.Now())}, err
}

// timestamp is how the journal writes a time: to the nanosecond.
func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func parseTime(text string) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, text) // empty: zero
	return at
}
