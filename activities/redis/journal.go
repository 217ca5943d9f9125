package redis

import (
	"context"
	"encoding/json"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// ensureJournal returns the id of a database's journal, and makes the journal if there is none.
func (w *world) ensureJournal(ctx context.Context, name string) (string, error) {
	c, err := w.connect(ctx, name)
	if err != nil {
		return "", err
	}
	defer c.end()
	if _, err := c.client.HSetNX(ctx, journalKey, "id", recordkeeping.NewJournalID()).Result(); err != nil {
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
	return []any{e.Token, string(entry), string(owner), recordkeeping.FormatTime(time.Now())}, err
}
