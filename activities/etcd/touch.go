package etcd

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
)

// Touches names the database by its cluster: the config may call one by two names, and namespaces
// of one may hold each other.
func (a *txnAction) Touches(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	p, err := activities.DecodeParams[txnParams](o.With)
	if err != nil || o.Awaits("database") || len(a.Databases) < 2 { // of one, its name alone tells it
		return nil, err
	}
	c, err := a.connect(ctx, p.Database)
	if err != nil {
		return nil, err
	}
	defer c.end()
	limited, end := c.limited()
	defer end()
	r, err := c.client.Get(limited, idKey)
	if err != nil {
		return nil, c.explain(err)
	}
	return []activities.Touch{{Name: fmt.Sprintf("%s%x", keyPrefix, r.Header.ClusterId)}}, nil
}
