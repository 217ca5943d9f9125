package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// restoreAction is redis.restore. What the database holds is read and written to a file first; then one
// script makes it hold what the checkpoint has, if it still holds what was read, and notes in the same
// atomic unit which attempt that was.
type restoreAction struct{ *world }

// restoreParams are the parameters of redis.restore and of redis.verify.
type restoreParams struct {
	Database   string `json:"database"   jsonschema:"the name of one of the worker's redis.databases"`
	Checkpoint string `json:"checkpoint" jsonschema:"the checkpoint of it: an output of redis.checkpoint"`
}

var restoreSpec = activities.Spec{
	Name: "redis.restore",
	Summary: "Makes a Redis database hold what a checkpoint has kept of it, exactly: all keys, with the times at which " +
		"they expire, and no others.",
	Params: activities.ParamsSchema[restoreParams](), UndoParams: []string{"database", "checkpoint"},
	Outputs:   map[string]string{"changed": "how many keys came, went or changed"},
	Keys:      []activities.Key{{Prefix: keyPrefix, Param: "database"}},
	HostBound: true, Preflights: true, Risk: activities.High, Strategy: activities.Snapshot,
	Undo: "All keys that the database held before are kept, and put back in one atomic unit, unless somebody has " +
		"changed any since; a key that would have expired since does not come back. " +
		"Clients that wait for a key or listen to changes of keys are not told that they are undone.",
	Redo: "It runs again: the database holds what the checkpoint has, as long as that is kept.",
}

func (a *restoreAction) Spec() activities.Spec { return restoreSpec }

func (a *restoreAction) reach(what string) { point.Reach("redis.restore:" + what) }

// restoreRecord is the document journal.Record.
type restoreRecord struct {
	journal.Owned

	Want activities.Digest `json:"want,omitempty"`
	// After is the digest of the file with what the database is to hold.
	After string `json:"after"`
}

// Files and documents of a token besides those of package journal.
const (
	afterName     = "after"
	beforePrefix  = "before-"  // the file with what an attempt has found
	attemptPrefix = "attempt-" // the document about it
)

func afterFile(t *journal.Token) string { return filepath.Join(t.Dir(), afterName) }

func beforeFile(t *journal.Token, attempt string) string {
	return filepath.Join(t.Dir(), beforePrefix+attempt)
}

// attempted is the document about an attempt, written before it acts.
type attempted struct {
	// Before is the digest of its file.
	Before string            `json:"before"`
	Result activities.Result `json:"result"`
}

// applied is the content of journal.Applied.
type applied struct {
	Attempt string            `json:"attempt"`
	Result  activities.Result `json:"result"`
	// Address is that of the database, as origin has it.
	Address activities.Digest `json:"address"`
}

// Preflight implements activities.Preflighter.
func (a *restoreAction) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[restoreParams](o.With)
	if err != nil {
		return err
	}
	return a.preflightWhole(ctx, o, compareParams{Database: p.Database, Checkpoint: p.Checkpoint})
}

// Touches implements activities.Toucher.
func (a *restoreAction) Touches(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	return a.touch(ctx, o)
}

// Plan says which keys would change.
func (a *restoreAction) Plan(ctx context.Context, e activities.Entry, s activities.Step) (change activities.Change,
	err error) {
	if err := keyvalue.CheckPlaces(kind, s.Checks); err != nil {
		return change, err
	}
	p, err := activities.DecodeParams[restoreParams](s.With)
	if err != nil {
		return change, err
	}
	t, err := a.openToken(e)
	if err == nil {
		err = t.CheckOpen()
	}
	if err != nil {
		return change, err
	}
	c, err := a.openWhole(ctx, e, p.Database)
	if err != nil {
		return change, err
	}
	defer c.end()
	wanted, err := a.readKept(p.Checkpoint, c.origin())
	if err != nil {
		return change, err
	}
	l, err := c.lookAt(wanted)
	if err != nil {
		return change, err
	}
	return c.describeRestore(p.Checkpoint, l), nil
}

// look is what a database holds, and how that differs from what it is to hold.
type look struct {
	seen    keyspace
	changes differences
	// back is how many keys it is to hold, without those that have expired since they were kept.
	back, expired int
}

// lookAt reads the database.
func (c *connection) lookAt(wanted keyspace) (l look, err error) {
	var now int64
	if l.seen, now, err = c.capture(); err != nil {
		return l, err
	}
	alive := wanted.alive(now)
	l.back, l.expired = len(alive), len(wanted)-len(alive)
	l.changes, err = c.compare(l.seen, alive)
	return l, err
}

func (c *connection) describeRestore(checkpoint string, l look) activities.Change {
	n := l.changes.count()
	change := activities.Change{
		Summary: fmt.Sprintf("put %s back to %s: %s", c.name, checkpoint, keyvalue.DescribeChanges(n)),
		Diff:    activities.HeadDiff(l.changes.describe(), activities.MaxDiff), Strategy: activities.Snapshot,
		Undo: restoreSpec.Undo, Risk: activities.High, Unchanged: len(l.changes) == 0, Keys: []string{keyPrefix + c.name},
		Counts: keyvalue.CountsOf(n), Digest: l.changes.digest(restoreSpec.Name, c.name, checkpoint),
		Facts: []string{"everything that has changed since the checkpoint goes, whoever has changed it",
			"other clients of the server wait while its keys are read and put back"},
	}
	if change.Unchanged {
		change.Summary = fmt.Sprintf("leave %s: it holds what %s has", c.name, checkpoint)
		change.Facts = nil
	}
	change.Facts = append(change.Facts, describeExpired(l.expired)...)
	change.Facts = append(append(change.Facts, c.persistence()...), c.eviction()...)
	return change
}

// tries is how often a database that others change all the time is read anew.
const tries = 20

// insist calls do again where somebody has changed a key, or another call has come first.
func (c *connection) insist(do func() error) error {
	for range tries {
		if err := do(); !errors.Is(err, errMoved) && !errors.Is(err, errOtherState) {
			return err
		}
	}
	return fmt.Errorf("database %s: somebody changes keys all the time, and nothing was touched; stop what writes to it",
		c.name)
}

// Apply puts the checkpoint back, unless an earlier attempt has.
func (a *restoreAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	p, err := activities.DecodeParams[restoreParams](s.With)
	if err != nil {
		return r, err
	}
	c, t, end, err := a.beginWhole(ctx, e, s, p.Database)
	if err != nil {
		return r, err
	}
	defer end()
	if err := c.insist(func() error {
		r, err = (&restoring{a, c, t, e, p, want}).run()
		return err
	}); err != nil {
		return r, err
	}
	return r, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, c.scene(r))
}

// restoring is one attempt.
type restoring struct {
	*restoreAction
	*connection

	token *journal.Token
	entry activities.Entry
	p     restoreParams
	want  activities.Digest
}

func (r *restoring) run() (none activities.Result, err error) {
	state, err := r.readState(r.entry.Token)
	if err != nil {
		return none, err
	}
	attempt, acted := state.applied()
	switch {
	case acted:
		return r.confirm(attempt)
	case state != "":
		return none, activities.Errorf(activities.Fenced, "token %s is %s: this forward came too late", r.entry.Token, state)
	}
	var rec restoreRecord
	found, err := r.token.Read(journal.Record, &rec)
	if err == nil {
		err = r.token.CheckNotLost(false) // the database has lost that it has acted
	}
	if err != nil {
		return none, err
	}
	wanted, err := r.readWanted(&rec, found)
	if err != nil {
		return none, err
	}
	l, err := r.lookAt(wanted)
	if err != nil {
		return none, err
	}
	if !found {
		if err := r.judge(r.describeRestore(r.p.Checkpoint, l)); err != nil {
			return none, errors.Join(err, removeFile(afterFile(r.token)))
		}
		rec.Owned, rec.Want = journal.Own(r.ctx, r.entry), r.want
		if _, err := r.token.Create(journal.Record, &rec); err != nil {
			return none, err
		}
	}
	r.reach("recorded")
	return r.change(l)
}

// readWanted reads what the database is to hold: the checkpoint, which is the step's own from then
// on, whatever becomes of the one that has taken it.
func (r *restoring) readWanted(rec *restoreRecord, found bool) (keyspace, error) {
	file := afterFile(r.token)
	if !found {
		kept, k, err := r.findKept(r.p.Checkpoint, r.origin())
		if err != nil {
			return nil, err
		}
		if _, err := readFile(kept, k.Digest); err != nil {
			return nil, err
		}
		if err := errors.Join(removeFile(file), os.Link(kept, file)); err != nil {
			return nil, err
		}
		rec.After = k.Digest
	}
	wanted, err := readFile(file, rec.After)
	if err != nil {
		return nil, err
	}
	return wanted, r.checkReadable(wanted)
}

func (r *restoring) judge(change activities.Change) error {
	if err := activities.Judge(r.ctx, change); err != nil {
		return err
	}
	if r.want != "" && r.want != change.Digest {
		return activities.Errorf(activities.StaleApproval,
			"the change is not the one that was approved: now it is %s (%s), approved was %s", change.Summary,
			change.Digest.Short(), r.want.Short())
	}
	return nil
}

// change keeps what the database holds, and makes it hold what it is to hold.
func (r *restoring) change(l look) (none activities.Result, err error) {
	attempt, n := newAttempt(), l.changes.count()
	file := beforeFile(r.token, attempt)
	doc := attempted{Result: activities.Result{
		Summary: fmt.Sprintf("%s holds what %s has: %s", r.name, r.p.Checkpoint, keyvalue.DescribeChanges(n)),
		Outputs: map[string]any{"changed": n[0] + n[1] + n[2]},
		After:   l.changes.digest(restoreSpec.Name, r.name, r.p.Checkpoint),
		Notes:   append(append(describeExpired(l.expired), r.persistence()...), r.eviction()...),
	}}
	if doc.Before, _, err = writeFile(file, l.seen); err != nil {
		return none, err
	}
	if _, err := r.token.Create(attemptPrefix+attempt, &doc); err != nil { // with the folder, in which the file is
		return none, err
	}
	r.reach("captured")
	err = r.token.CheckOpen()
	if err == nil {
		err = r.exchange(r.entry.Token, "", appliedBy(attempt), l.seen, l.changes)
	}
	if errors.Is(err, errMoved) || errors.Is(err, errOtherState) { // this attempt has not acted, and never will
		return none, errors.Join(err, removeFile(file), r.token.Drop(attemptPrefix+attempt))
	}
	if err != nil {
		return none, err
	}
	r.reach("exchanged")
	return r.confirm(attempt)
}

// confirm records which attempt has acted.
func (r *restoring) confirm(attempt string) (none activities.Result, err error) {
	var done applied
	if found, err := r.token.Read(journal.Applied, &done); err != nil || found {
		return done.Result, err
	}
	doc, err := readAttempt(r.token, attempt)
	if err != nil {
		return none, err
	}
	if err := errors.Join(removeNamed(r.token, beforePrefix, beforePrefix+attempt),
		removeNamed(r.token, attemptPrefix, attemptPrefix+attempt)); err != nil {
		return none, err
	}
	done = applied{Attempt: attempt, Result: doc.Result, Address: r.address}
	_, err = r.token.Create(journal.Applied, &done)
	r.reach("applied")
	return done.Result, err
}

// readAttempt reads the document about an attempt that has acted.
func readAttempt(t *journal.Token, attempt string) (doc attempted, err error) {
	found, err := t.Read(attemptPrefix+attempt, &doc)
	if err == nil && !found {
		err = activities.Errorf(activities.DamagedRecord,
			"what the journal had of an attempt that has acted is gone from %s: nothing was touched; put it back, or decide "+
				"what becomes of the step", t.Dir())
	}
	return doc, err
}
