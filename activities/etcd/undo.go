package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	client "go.etcd.io/etcd/client/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// Undo gives the keys their values and leases back.
func (a *txnAction) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	if u, is := activities.NeverBegan(e, d); is {
		return u, nil
	}
	c, err := a.open(ctx, e)
	if err != nil {
		return activities.Undone{}, err
	}
	defer c.end()
	reach("undo-begun")
	if err := c.fence(e, d.Done); err != nil {
		return activities.Undone{}, err
	}
	reach("fenced")
	for {
		outcome, moved, err := c.undoOnce(e, d)
		if !moved || err != nil {
			return outcome, err
		}
	}
}

// fence makes sure that no forward of a token acts any more.
func (c *connection) fence(e activities.Entry, isDone bool) error {
	return c.amend(e.Token, func(r *record) (bool, error) {
		switch {
		case r.State == "" && isDone:
			return false, c.damaged(e.Token, "has no record of it")
		case r.State == "":
			*r = newRecord(c.ctx, e, recordkeeping.Undoing)
		case r.State == recordkeeping.Applied:
			r.State = recordkeeping.Undoing
		default:
			return false, nil
		}
		r.Begun = time.Now().UTC()
		return true, nil
	})
}

// amend stores what change makes of the record of a token, which is empty if there is none, unless
// it returns false.
func (c *connection) amend(token string, change func(*record) (bool, error), then ...client.Op) error {
	for {
		s, err := c.look(token, nil, nil)
		if err != nil {
			return err
		}
		if s.record == nil {
			s.record = &record{}
		}
		if changed, err := change(s.record); err != nil || !changed {
			return err
		}
		held := client.OpDelete(heldPrefix + token)
		if len(s.record.Holders) > 0 {
			held = client.OpPut(heldPrefix+token, "1")
		}
		done, err := c.store(token, s.seen, *s.record, nil, append([]client.Op{held}, then...)...)
		if err != nil {
			return c.explain(err)
		}
		if done.Succeeded {
			return nil
		}
	}
}

// undoOnce looks, and puts the keys back if they still are as they were seen. If they are not,
// moved is true, and nothing was touched.
func (c *connection) undoOnce(e activities.Entry, d activities.Decision) (outcome activities.Undone, moved bool,
	err error) {
	s, err := c.see(e.Token)
	if err != nil {
		return outcome, false, err
	}
	switch r := s.record; {
	case r == nil:
		return outcome, false, c.damaged(e.Token, "has lost its record since the undo began")
	case r.State == recordkeeping.Undone && r.Outcome != nil:
		return *r.Outcome, false, nil
	case r.State == recordkeeping.Released || r.Forgotten:
		return outcome, false, activities.ReleasedError(e.Token)
	case r.State != recordkeeping.Undoing:
		return outcome, false, c.damaged(e.Token, "does not hold the outcome of its undo")
	case d.Done && !r.Acted:
		return outcome, false, c.damaged(e.Token, "says that it has not")
	}
	if s.record.Outcome == nil {
		drift := c.findDrift(s)
		forced := drift != nil && d.Force == drift.Digest
		if drift != nil && !forced {
			first, _, _ := strings.Cut(drift.Diff, "\n")
			return activities.Undone{Outcome: activities.Drifted, Observed: first, Drift: drift}, false, nil
		}
		expected := s.outcomeOf(forced)
		s.record.Outcome = &expected
		if s.record.Acted {
			if s, moved, err = c.putBack(e.Token, s); moved || err != nil {
				return outcome, moved, err
			}
		}
	}
	return c.settle(e.Token, s)
}

// putBack puts the keys back if they still are as they were seen, and looks at what that has left.
// If they are not, moved is true, and nothing was touched.
func (c *connection) putBack(token string, v view) (after view, moved bool, err error) {
	conditions, then := v.restoration()
	done, err := c.store(token, v.seen, *v.record, conditions, then...)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound): // it has ended since it was looked at
		return v, true, nil
	case err != nil:
		return v, false, c.explain(err)
	case !done.Succeeded:
		return v, true, nil
	}
	reach("restored")
	after = v
	after.snapshot, err = c.lookAt(done.Header.Revision, token, v.names(), nil)
	return after, false, err
}

// settle keeps the outcome of an undo, by what was found when its keys were looked at. It has moved
// if another call was faster.
func (c *connection) settle(token string, v view) (outcome activities.Undone, moved bool, err error) {
	r := *v.record
	outcome = *r.Outcome
	if unlike := v.findUnlike(); unlike != nil {
		outcome = activities.Undone{Outcome: activities.Residue,
			Observed: "put back, and then not as before: " + keyvalue.JoinSome(unlike), Losses: unlike}
	}
	r.State, r.Outcome, r.Ended, r.Bytes = recordkeeping.Undone, &outcome, time.Now().UTC(), 0
	done, err := c.store(token, v.seen, r, nil, client.OpDelete(imagesPrefix+token))
	if err != nil {
		return outcome, false, c.explain(err)
	}
	reach("settled")
	return outcome, !done.Succeeded, nil
}

// view is what a token's record says, and what its keys hold now.
type view struct {
	snapshot

	// the seconds that each lease of an image has left; those that have ended are not in it
	leases map[client.LeaseID]int64
}

// see reads the record of a token, and then its keys.
func (c *connection) see(token string) (view, error) {
	s, err := c.look(token, nil, nil)
	if err == nil {
		err = s.problem
	}
	if err != nil || s.record == nil || len(s.images) == 0 {
		return view{snapshot: s}, err
	}
	if s, err = c.look(token, s.names(), nil); err == nil {
		err = s.problem
	}
	if err != nil {
		return view{}, err
	}
	v := view{snapshot: s, leases: map[client.LeaseID]int64{}}
	asked := map[client.LeaseID]bool{client.NoLease: true}
	for _, each := range s.images {
		for _, id := range each.leases() {
			if asked[id] {
				continue
			}
			asked[id] = true
			ctx, end := c.limited()
			left, err := c.client.TimeToLive(ctx, id)
			end()
			if err != nil {
				return view{}, c.explain(err)
			}
			if left.TTL >= 0 {
				v.leases[id] = left.TTL
			}
		}
	}
	return v, nil
}

// names are the keys of the images.
func (s snapshot) names() (all []string) {
	for _, each := range s.images {
		all = append(all, string(each.Key))
	}
	return all
}

func (i image) leases() (all []client.LeaseID) {
	if i.Before != nil {
		all = append(all, i.Before.Lease)
	}
	if i.Left != nil {
		all = append(all, i.Left.Lease)
	}
	return all
}

func (v view) isOver(id client.LeaseID) bool {
	_, lives := v.leases[id]
	return id != client.NoLease && !lives
}

func (v view) now(i image) *mvccpb.KeyValue { return v.keys[string(i.Key)] }

// isLeft reports whether a key is as the step left it: at its revision, or with the same value and
// lease, as the undo of a later step puts them back. What has gone with its lease is nobody's
// change.
func (v view) isLeft(i image) bool {
	now := v.now(i)
	if now == nil {
		return i.Left == nil || v.isOver(i.Left.Lease)
	}
	return i.Left != nil &&
		(now.ModRevision == v.acted || client.LeaseID(now.Lease) == i.Left.Lease &&
			activities.DigestOf(now.Value) == i.Left.Digest)
}

// isGone reports whether a key would be gone without the step too.
func (v view) isGone(i image) bool { return i.Before != nil && v.isOver(i.Before.Lease) }

// findUnlike names the keys that are not as they were before the step; nil if there are none.
func (v view) findUnlike() (names []string) {
	for _, i := range v.images {
		now := v.now(i)
		is := i.Before == nil || v.isGone(i)
		if now != nil {
			is = i.Before != nil && bytes.Equal(now.Value, i.Before.Value) && client.LeaseID(now.Lease) == i.Before.Lease
		}
		if !is {
			names = append(names, strconv.Quote(string(i.Key)))
		}
	}
	return names
}

// restoration is the transaction that puts all keys back if they are as they were seen.
func (v view) restoration() (conditions []client.Cmp, then []client.Op) {
	for _, i := range v.images {
		key, now := string(i.Key), v.now(i)
		conditions = append(conditions, unchanged(key, now))
		switch {
		case i.Before != nil && !v.isGone(i):
			then = append(then, client.OpPut(key, string(i.Before.Value), client.WithLease(i.Before.Lease)))
		case now != nil:
			then = append(then, client.OpDelete(key))
		}
	}
	return conditions, then
}

// outcomeOf is the outcome of an undo that succeeds.
func (v view) outcomeOf(forced bool) activities.Undone {
	if !v.record.Acted {
		return activities.Undone{Outcome: activities.Nothing,
			Observed: "the transaction of the step was never committed, and no longer can be"}
	}
	gone := 0
	var again []string
	for _, i := range v.images {
		if v.isGone(i) {
			gone++
		} else if i.Before != nil && i.Before.Lease != client.NoLease {
			text := fmt.Sprintf("%x with %d s left", int64(i.Before.Lease), v.leases[i.Before.Lease])
			if !slices.Contains(again, text) {
				again = append(again, text)
			}
		}
	}
	observed := activities.CountOf(len(v.images)-gone, "key") + " as before"
	if forced {
		observed += ", over what someone else had changed"
	}
	if len(again) > 0 {
		observed += "; back on lease " + keyvalue.JoinSome(again)
	}
	if gone > 0 {
		observed += "; " + activities.CountOf(gone, "key") + " not brought back, because the lease has ended since"
	}
	return activities.Undone{Outcome: activities.Restored, Observed: observed}
}

// findDrift compares every key with what the step left; nil if nothing differs.
func (c *connection) findDrift(v view) *activities.Drift {
	var parts [][]byte
	var b strings.Builder
	total := 0
	for _, i := range v.images {
		if v.isLeft(i) {
			continue
		}
		key, now := string(i.Key), v.now(i)
		parts = append(parts, i.Key, []byte(strconv.FormatInt(modOf(now), 10)))
		if total++; total > shownKeys {
			continue
		}
		left := "the step left a value"
		if i.Left == nil {
			left = "the step deleted it"
		}
		switch {
		case now == nil:
			fmt.Fprintf(&b, "%q: %s; now: not there, someone deleted it\n", key, left)
		case v.record.Private:
			fmt.Fprintf(&b, "%q: %s; now: ***, changed at revision %d\n", key, left, now.ModRevision)
		default:
			fmt.Fprintf(&b, "%q: %s; now: %s, changed at revision %d\n", key, left,
				c.showLeased(key, now.Value, client.LeaseID(now.Lease)), now.ModRevision)
		}
	}
	if total == 0 {
		return nil
	}
	return &activities.Drift{Diff: "changed since the step: " + activities.CountOf(total, "key") + "\n" + b.String(),
		Digest: activities.DigestOf(parts...)}
}
