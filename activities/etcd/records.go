package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// journals implements recordkeeping.Journals.
type journals struct{ *world }

func (w journals) each(ctx context.Context, do func(*connection) error) []error {
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
func (w journals) Records(ctx context.Context) (all []activities.Record, problems []error, err error) {
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

// Change stores what change makes of the record of a token, in whichever database that is.
func (w journals) Change(ctx context.Context, token string, change func(*recordkeeping.Record) (bool, error)) error {
	return errors.Join(w.each(ctx, func(c *connection) error {
		if there, err := c.expectFound(); err != nil || !there {
			return err
		}
		return c.amend(token, func(r *record) (bool, error) {
			if r.State == "" { // it is in another database, or nowhere
				return false, nil
			}
			changed, err := change(&r.Record)
			if r.Forgotten {
				*r = record{Record: r.Record, Token: token}
			}
			return changed, err
		})
	})...)
}
