package redis

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/seed-62bf7108/unwind/activities"
)

// Touches implements activities.Toucher.
func (a *execAction) Touches(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	return a.touch(ctx, o)
}

// touch names the database by its server and number: the config may call one by two names.
func (w *world) touch(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	var p struct {
		Database string `json:"database"`
	}
	if err := json.Unmarshal(o.With, &p); err != nil || o.Awaits("database") || len(w.Databases) < 2 {
		return nil, err // of one, its name alone tells it
	}
	c, err := w.connect(ctx, p.Database)
	if err != nil {
		return nil, err
	}
	defer c.end()
	return []activities.Touch{{Name: keyPrefix + c.info["run_id"] + "/" + strconv.Itoa(c.number)}}, nil
}
