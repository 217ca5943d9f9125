package redis

import (
	"cmp"
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Undo puts back what the database held before.
func (a *restoreAction) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (u activities.Undone,
	err error) {
	if u, is := activities.NeverBegan(e, d); is {
		return u, nil
	}
	t, err := a.openToken(e)
	if err != nil {
		return u, err
	}
	u, isOver, err := t.BeginUndo()
	if err != nil {
		return u, err
	}
	if isOver {
		return u, removeImages(t)
	}
	a.reach("undo-begun")
	c, err := a.open(ctx, e)
	if err != nil {
		return u, err
	}
	defer c.end()
	err = c.insist(func() error {
		u, err = (&takingBack{a, c, t, e, d}).run()
		return err
	})
	if err != nil {
		var other activities.Undone
		if found, _ := t.Read(journal.Outcome, &other); found { // another call has ended, and removed what this one used
			return other, nil
		}
	}
	if err != nil || u.Outcome == activities.Drifted {
		return u, err
	}
	if _, err := t.Create(journal.Outcome, &u); err != nil {
		return u, err
	}
	a.reach("undone")
	return u, removeImages(t)
}

// removeImages removes what only an undo needs.
func removeImages(t *journal.Token) error {
	return errors.Join(removeNamed(t, beforePrefix, ""), removeFile(afterFile(t)))
}

// takingBack is one attempt of an undo.
type takingBack struct {
	*restoreAction
	*connection

	token    *journal.Token
	entry    activities.Entry
	decision activities.Decision
}

// images are what an attempt that has acted has found, and what it has left.
type images struct{ before, after keyspace }

// readImages reads what an undo needs of the attempt that has acted.
func readImages(t *journal.Token, attempt string) (i images, err error) {
	var rec restoreRecord
	found, err := t.Read(journal.Record, &rec)
	if err != nil {
		return i, err
	}
	if !found {
		return i, t.CheckNotLost(true)
	}
	doc, err := readAttempt(t, attempt)
	if err != nil {
		return i, err
	}
	if i.before, err = readFile(beforeFile(t, attempt), doc.Before); err == nil {
		i.after, err = readFile(afterFile(t), rec.After)
	}
	return i, err
}

// closeForward makes sure that no forward acts any more. Where somebody has deleted all keys since the
// step has acted, that is drift: what an undo needs is in the worker's folder.
func (r *takingBack) closeForward() (wholeState, error) {
	state, err := r.close(r.entry.Token, closed)
	if err == nil || !isOfJournal(err) {
		return state, err
	}
	var done applied
	if found, unread := r.token.Read(journal.Applied, &done); unread != nil || !found || done.Address != r.address {
		return "", cmp.Or(unread, err)
	}
	return r.adopt(r.entry.Token, appliedBy(done.Attempt))
}

func (r *takingBack) run() (u activities.Undone, err error) {
	state, err := r.closeForward()
	if err != nil {
		return u, err
	}
	r.reach("fenced")
	if attempt, acted := state.applied(); acted {
		return r.takeBack(attempt)
	}
	if attempt, undone := state.undone(); undone {
		return r.report(attempt, false)
	}
	if state == released {
		return u, activities.ReleasedError(r.entry.Token)
	}
	if err := r.token.CheckNotLost(r.decision.Done); err != nil {
		return u, err
	}
	return activities.Undone{Outcome: activities.Nothing,
		Observed: "the database was not changed, and no longer can be"}, removeNamed(r.token, attemptPrefix, "")
}

// takeBack makes the database hold what it held before, unless somebody has changed it since.
func (r *takingBack) takeBack(attempt string) (u activities.Undone, err error) {
	i, err := readImages(r.token, attempt)
	if err != nil {
		return u, err
	}
	now, drift, err := r.findWholeDrift(i.after)
	if err != nil {
		return u, err
	}
	if state, err := r.readState(r.entry.Token); err != nil || state != appliedBy(attempt) {
		return u, cmp.Or(err, errOtherState) // it was another undo that has changed the keys
	}
	if drift != nil && drift.Digest != r.decision.Force {
		return activities.Undone{Outcome: activities.Drifted, Observed: "the database " + r.name +
			" is not as the step left it", Drift: drift}, nil
	}
	changes, err := r.compare(now.keys, i.before.alive(now.at))
	if err != nil {
		return u, err
	}
	r.reach("compared")
	if err := r.exchange(r.entry.Token, appliedBy(attempt), takenBack(attempt), now.keys, changes); err != nil {
		return u, err
	}
	r.reach("restored")
	return r.report(attempt, drift != nil)
}

// moment is what a database holds at a time.
type moment struct {
	keys keyspace
	at   int64
}

// findWholeDrift reads the database, and compares it with what a step has left; nil if that is all
// there, but for what has expired since.
func (c *connection) findWholeDrift(left keyspace) (now moment, drift *activities.Drift, err error) {
	if now.keys, now.at, err = c.capture(); err != nil {
		return now, nil, err
	}
	changed, err := c.compare(left.alive(now.at), now.keys)
	if err != nil || len(changed) == 0 {
		return now, nil, err
	}
	diff := "changed since the step: " + activities.CountOf(len(changed), "key") + "\n" + changed.describe()
	return now, &activities.Drift{Diff: activities.HeadDiff(diff, activities.MaxDiff), Digest: changed.digest()}, nil
}

// report is the outcome of an undo that has been made, by what is there now.
func (r *takingBack) report(attempt string, forced bool) (u activities.Undone, err error) {
	i, err := readImages(r.token, attempt)
	if err != nil {
		return u, err
	}
	l, err := r.lookAt(i.before)
	if err != nil {
		return u, err
	}
	u = restoredKeys(l.back, l.expired, forced)
	if len(l.changes) > 0 {
		u.Observed += "; by now, someone has changed " + activities.CountOf(len(l.changes), "key")
	}
	return u, nil
}

// Observe compares the database with what the step left, and with what was there before.
func (a *restoreAction) Observe(ctx context.Context, e activities.Entry) (o activities.Observation, err error) {
	t, err := a.openToken(e)
	if err != nil {
		return o, err
	}
	c, err := a.open(ctx, e)
	if err != nil {
		return o, err
	}
	defer c.end()
	state, err := c.readState(e.Token)
	if err != nil {
		return o, err
	}
	if attempt, acted := state.applied(); acted {
		return c.observeWhole(t, attempt)
	}
	if state == released {
		return activities.Observation{State: activities.Unseen,
			Detail: "what the step changed is no longer known: it was released"}, nil
	}
	if _, undone := state.undone(); !undone {
		if err := t.CheckNotLost(false); err != nil {
			return o, err
		}
	}
	return activities.Observation{State: activities.AsBefore, Detail: "the database is not changed by the step"}, nil
}

func (c *connection) observeWhole(t *journal.Token, attempt string) (o activities.Observation, err error) {
	i, err := readImages(t, attempt)
	if err != nil {
		return o, err
	}
	now, drift, err := c.findWholeDrift(i.after)
	if err != nil {
		return o, err
	}
	if drift == nil {
		return activities.Observation{State: activities.AsLeft, Detail: activities.CountOf(len(now.keys), "key") +
			" as the step left them"}, nil
	}
	changes, err := c.compare(now.keys, i.before.alive(now.at))
	if err == nil && len(changes) == 0 {
		return activities.Observation{State: activities.AsBefore, Detail: "all keys are as before the step"}, nil
	}
	return activities.Observation{State: activities.Elsewise, Detail: drift.Diff, Drift: drift}, err
}

// Release drops what the database held before. No late forward acts: the journal in the database says
// so, unless that is gone, and with it what a forward needs.
func (a *restoreAction) Release(ctx context.Context, e activities.Entry) error {
	t, err := a.openToken(e)
	if err != nil {
		return err
	}
	c, err := a.open(ctx, e)
	if err != nil {
		return err
	}
	defer c.end()
	if _, err := t.DecideReleasing(); err != nil {
		return err
	}
	if _, err := c.close(e.Token, released); err != nil && !isOfJournal(err) {
		return err
	}
	if err := errors.Join(removeImages(t), removeNamed(t, attemptPrefix, "")); err != nil {
		return err
	}
	for _, name := range []string{journal.Record, journal.Applied} {
		if err := t.Drop(name); err != nil {
			return err
		}
	}
	return t.MarkReleased()
}

// isOfJournal reports whether an error says that the journal of an entry is not in its database.
func isOfJournal(err error) bool {
	kind := activities.TypeOf(err)
	return kind == activities.DamagedRecord || kind == activities.WrongPlace
}
