package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
)

// records implements activities.Records over the journals of all databases.
type records struct{ *world }

func (w records) each(ctx context.Context, do func(*connection) error) []error {
	return keyvalue.ForEach(w.Databases, func(name string) error {
		c, err := w.connect(ctx, name)
		if err != nil {
			return err
		}
		defer c.end()
		return do(c)
	})
}

// listedAtOnce is how many records a listing reads in one round trip.
const listedAtOnce = 500

// Records lists the tokens of all journals.
func (w records) Records(ctx context.Context) (all []activities.Record, problems []error, err error) {
	var damaged []error
	problems = w.each(ctx, func(c *connection) error {
		for from := recordPrefix; ; {
			limited, end := c.limited()
			page, err := c.client.Get(limited, from, client.WithRange(client.GetPrefixRangeEnd(recordPrefix)),
				client.WithLimit(listedAtOnce))
			end()
			if err != nil {
				return c.explain(err)
			}
			for _, kv := range page.Kvs {
				from = string(kv.Key) + "\x00"
				token := strings.TrimPrefix(string(kv.Key), recordPrefix)
				if r, whole := readRecord(token, kv.Value); !whole {
					damaged = append(damaged, fmt.Errorf("database %s: token %s: its record is damaged", c.name, token))
				} else if !r.Forgotten {
					all = append(all, r.listed())
				}
			}
			if !page.More {
				return nil
			}
		}
	})
	return all, append(problems, damaged...), nil
}

// listed is the record as retention sees it.
func (r record) listed() activities.Record {
	l := activities.Record{Entry: *r.Entry, Owner: r.Owner, Since: r.Since, Bytes: r.Bytes, Holders: r.Holders}
	r.SetState(&l)
	return l
}

// change stores what change makes of the record of a token, in whichever database that is.
func (w records) change(ctx context.Context, token string, change func(*record) (bool, error)) error {
	return errors.Join(w.each(ctx, func(c *connection) error {
		if there, err := c.expectFound(); err != nil || !there {
			return err
		}
		return c.amend(token, func(r *record) (bool, error) {
			if r.State == "" { // it is in another database, or nowhere
				return false, nil
			}
			return change(r)
		})
	})...)
}

// Commit marks an open token.
func (w records) Commit(ctx context.Context, token string, until time.Time) error {
	return w.change(ctx, token, func(r *record) (bool, error) {
		if r.State != applied || !r.Committed.IsZero() {
			return false, nil
		}
		r.Committed, r.Until = time.Now().UTC(), until.UTC()
		return true, nil
	})
}

// Hold keeps a record from being released.
func (w records) Hold(ctx context.Context, token string, holder activities.Owner) (held bool, err error) {
	held = true
	err = w.change(ctx, token, func(r *record) (bool, error) {
		held = r.State != released
		if r.State != applied || slices.Contains(r.Holders, holder) {
			return false, nil
		}
		r.Holders = append(r.Holders, holder)
		return true, nil
	})
	return held && err == nil, err
}

// EndHold ends a hold.
func (w records) EndHold(ctx context.Context, token string, holder activities.Owner) error {
	return w.change(ctx, token, func(r *record) (bool, error) {
		n := len(r.Holders)
		r.Holders = slices.DeleteFunc(r.Holders, func(o activities.Owner) bool { return o == holder })
		return len(r.Holders) < n, nil
	})
}

// Claim has nothing to do: what a record says of its owner is no part of what an undo needs.
func (w records) Claim(context.Context, activities.Entry) error { return nil }

// Abandon gives up an undo that has begun.
func (w records) Abandon(ctx context.Context, token string) error {
	return w.change(ctx, token, func(r *record) (bool, error) {
		if r.State != undoing {
			return false, nil
		}
		outcome := activities.Abandoned
		r.State, r.Ended, r.Outcome = undone, time.Now().UTC(), &outcome
		return true, nil
	})
}

// Forget leaves the fence of a released token, and nothing else.
func (w records) Forget(ctx context.Context, token string) error {
	return w.change(ctx, token, func(r *record) (bool, error) {
		if r.Released.IsZero() {
			return false, fmt.Errorf("token %s is not released: it is still needed", token)
		}
		if r.Forgotten {
			return false, nil
		}
		*r = record{Token: token, State: r.State, Times: keyvalue.Times{Released: r.Released}, Forgotten: true}
		return true, nil
	})
}
