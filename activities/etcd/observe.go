package etcd

import (
	"context"
	"errors"
	"time"

	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// Observe compares the keys with what the step left.
func (a *txnAction) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	c, err := a.open(ctx, e)
	if err != nil {
		return activities.Observation{}, err
	}
	defer c.end()
	v, err := c.see(e.Token)
	if err != nil {
		return activities.Observation{}, err
	}
	switch r := v.record; {
	case r == nil, r.State == recordkeeping.Undoing && !r.Acted:
		return activities.Observation{State: activities.AsBefore, Detail: "the transaction of the step was never committed"},
			nil
	case r.State == recordkeeping.Undone && r.Outcome != nil && r.Outcome.Outcome.Clean(),
		r.State == recordkeeping.Undoing && r.Outcome != nil && v.findUnlike() == nil:
		return activities.Observation{State: activities.AsBefore, Detail: r.Outcome.Observed}, nil
	case r.State == recordkeeping.Undone, r.State == recordkeeping.Released:
		return activities.Observation{State: activities.Unseen,
			Detail: "what the step changed is no longer known: it was released"}, nil
	}
	if drift := c.findDrift(v); drift != nil {
		return activities.Observation{State: activities.Elsewise, Detail: drift.Diff, Drift: drift}, nil
	}
	return activities.Observation{State: activities.AsLeft,
		Detail: activities.CountOf(len(v.images), "key") + " as the step left it"}, nil
}

// Release drops what the keys held before. The record stays: no later forward or undo acts.
func (a *txnAction) Release(ctx context.Context, e activities.Entry) error {
	c, err := a.open(ctx, e)
	if err != nil {
		return err
	}
	defer c.end()
	return c.amend(e.Token, func(r *record) (bool, error) {
		switch {
		case r.State == recordkeeping.Undoing:
			return false, activities.Errorf(activities.Fenced, "token %s is being undone: its record is still needed", e.Token)
		case r.State == recordkeeping.Applied && len(r.Holders) > 0:
			return false, activities.Errorf(activities.Fenced, "token %s is held by %s: its record is still needed", e.Token,
				r.Holders[0].Workflow)
		case r.State == recordkeeping.Applied:
			if err := c.checkUnheld(e.Token); err != nil {
				return false, err
			}
			r.State = recordkeeping.Released
		case !r.Released.IsZero():
			return false, nil
		case r.State == "":
			*r = newRecord(ctx, e, recordkeeping.Released)
		}
		r.Released, r.Bytes = time.Now().UTC(), 0
		return true, nil
	}, client.OpDelete(imagesPrefix+e.Token))
}

// checkUnheld is DamagedRecord for a token of which only the record says that nobody needs it.
func (c *connection) checkUnheld(token string) error {
	limited, end := c.limited()
	defer end()
	r, err := c.client.Get(limited, heldPrefix+token, client.WithCountOnly())
	if err != nil || r.Count == 0 {
		return c.explain(err)
	}
	return c.damaged(token, "does not say who needs the record")
}

// Preflight connects, and reads the parameters: that finds a server that cannot be used, and keys
// that are refused.
func (a *txnAction) Preflight(ctx context.Context, o activities.Outlook) error {
	problems := []error{activities.CheckPrograms(ctx, o.Checks), keyvalue.CheckPlaces(kind, o.Checks)}
	p, err := activities.DecodeParams[txnParams](o.With)
	if err != nil || o.Awaits("database") {
		return errors.Join(append(problems, err)...)
	}
	c, err := a.connect(ctx, p.Database)
	if err != nil {
		return errors.Join(append(problems, err)...)
	}
	defer c.end()
	problems = append(problems, c.checkVersion())
	limited, end := c.limited()
	defer end()
	if _, err := c.client.Get(limited, idKey); err != nil {
		return errors.Join(append(problems, c.explain(err))...)
	}
	if !o.AwaitsAny() {
		problems = append(problems, (&forward{connection: c}).preflight(o))
	}
	return errors.Join(problems...)
}

// preflight refuses parameters, and keys that the worker's config does not allow. Values that an
// earlier step may change are not judged.
func (f *forward) preflight(o activities.Outlook) error {
	p, spans, err := readParams(o.With)
	if err != nil {
		return err
	}
	f.params, f.spans = p, spans
	_, err = f.changes(snapshot{})
	return err
}
