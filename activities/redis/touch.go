package redis

import (
	"context"
	"strconv"

	"github.com/seed-62bf7108/unwind/activities"
)

// Touches names the database by its server and number: the config may call one by two names.
func (a *execAction) Touches(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	p, err := readParams(o.With)
	if err != nil || o.Awaits("database") || len(a.Databases) < 2 { // of one, its name alone tells it
		return nil, err
	}
	c, err := a.connect(ctx, p.Database)
	if err != nil {
		return nil, err
	}
	defer c.end()
	return []activities.Touch{{Name: keyPrefix + c.info["run_id"] + "/" + strconv.Itoa(c.number)}}, nil
}
