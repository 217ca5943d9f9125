package checkpoint

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
)

// Apply restores the checkpoint beside the database, and exchanges the two.
func (a *restore) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	p, err := activities.DecodeParams[restoreParams](s.With)
	if err != nil {
		return activities.Result{}, err
	}
	token, err := a.token(e)
	if err != nil {
		return activities.Result{}, err
	}
	unlock, err := token.Lock(ctx)
	if err != nil {
		return activities.Result{}, err
	}
	defer unlock()
	done, err := a.act(ctx, e, token, p, want)
	if err != nil {
		return activities.Result{}, err
	}
	reachRestore("applied")
	c, err := a.Rows.Open(ctx, e, p.Database, server.ForwardName)
	if err != nil {
		return activities.Result{}, err
	}
	defer c.Close()
	for _, when := range []activities.When{activities.Staged, activities.Live} {
		if err := activities.RunChecks(ctx, s.Checks, when, activities.Live,
			statement.Scene{Connection: c, Result: done.Result}); err != nil {
			return done.Result, err
		}
	}
	return done.Result, token.CheckOpen()
}

// act does what Apply does but for the checks.
func (a *restore) act(ctx context.Context, e activities.Entry, token *journal.Token, p restoreParams,
	want activities.Digest) (done restored, err error) {
	c, err := a.Rows.Open(ctx, e, p.Database, server.ForwardName)
	if err != nil {
		return done, err
	}
	defer c.Close()
	m, err := a.connectMaintenance(ctx, p.Database, server.ForwardName+" "+e.Token)
	if err != nil {
		return done, err
	}
	defer m.Close()
	if err := token.CheckOpen(); err != nil {
		return done, err
	}
	f := restoring{Checkpoints: a.Checkpoints, c: c, m: m, token: token, id: e.Token, p: p}
	var rec restoreRecord
	found, err := token.Read(journal.Record, &rec)
	if err == nil && !found {
		rec, err = f.begin(e, want)
	}
	if err != nil {
		return done, err
	}
	reachRestore("recorded")
	if found, err := token.Read(journal.Applied, &done); found || err != nil {
		return done, err
	}
	if done, err = f.putBack(rec); err != nil {
		return done, err
	}
	_, err = token.Create(journal.Applied, &done)
	return done, err
}

// restoring is a forward of postgres.restore. Its connections were opened before it found that the
// token is open: an undo ends them, and what the forward was about to do with them fails.
type restoring struct {
	*Checkpoints

	c, m  *server.Connection // to the database, and to that for maintenance
	token *journal.Token
	id    string // of the token
	p     restoreParams
}

func (f *restoring) application() string { return server.ForwardName + " " + f.id }

// begin makes the record of a restore that may be made.
func (f *restoring) begin(e activities.Entry, want activities.Digest) (rec restoreRecord, err error) {
	if err := f.token.CheckNotLost(false); err != nil {
		return rec, err
	}
	a := restore{f.Checkpoints}
	r, err := a.look(f.c, f.p, f.application())
	if err != nil {
		return rec, err
	}
	err = activities.Judge(f.c.Ctx, r.change)
	if err != nil || want != "" { // else nobody asks what has changed, and to read it takes long
		if err = r.compare(f.c, f.application()); err == nil {
			err = activities.Judge(f.c.Ctx, r.change)
		}
	}
	if err != nil {
		return rec, err
	}
	if want != "" && want != r.change.Digest {
		return rec, f.stale()
	}
	_, oid, err := whoAmI(f.c)
	if err != nil {
		return rec, err
	}
	rec = restoreRecord{Owned: journal.Own(f.c.Ctx, e), Want: want, OID: oid, Wanted: r.wanted, Unchanged: r.unchanged}
	if r.now != nil {
		rec.Seen = r.now.digest()
	}
	_, err = f.token.Create(journal.Record, &rec)
	return rec, err
}

func (f *restoring) stale() error {
	return activities.Errorf(activities.StaleApproval,
		"the checkpoint, or what the database %s contains, is not what was approved; nothing was touched", f.p.Database)
}

// putBack makes the database hold what the checkpoint has.
func (f *restoring) putBack(rec restoreRecord) (done restored, err error) {
	if rec.Unchanged {
		return f.result(rec, rec.Wanted), nil
	}
	kept := keptPrefix + f.id
	there, err := findDatabase(f.m, kept)
	if err == nil && there == 0 { // else an earlier attempt has come that far
		err = f.replace(rec, kept)
	}
	if err != nil {
		return done, err
	}
	reachRestore("exchanged")
	before, err := readDatabase(f.m, kept, f.application())
	if err != nil {
		return done, err
	}
	return f.result(rec, before), dropFresh(f.m, f.id)
}

func (f *restoring) result(rec restoreRecord, before manifest) restored {
	changed := len(before.differs(rec.Wanted))
	return restored{Before: before, Result: activities.Result{
		Summary: fmt.Sprintf("the database %s is as %s has it, with %s; before, it differed in %s", f.p.Database,
			f.p.Checkpoint, activities.CountOf(rec.Wanted.rows(), "row"), activities.CountOf(changed, "place")),
		Outputs: map[string]any{"changed": changed, "digest": string(rec.Wanted.digest())}, After: rec.Wanted.digest(),
	}}
}

// replace makes the database anew, and gives it the name of the present one.
func (f *restoring) replace(rec restoreRecord, kept string) error {
	if err := dropFresh(f.m, f.id); err != nil { // of attempts that have ended
		return err
	}
	from, err := f.find(f.c, f.p.Checkpoint, f.application())
	if err != nil {
		return err
	}
	wanted, err := from.read()
	if err != nil {
		return err
	}
	if wanted.exact() != rec.Wanted.exact() {
		return activities.Errorf(activities.DamagedRecord,
			"checkpoint: %s is not what it was when the step began; nothing was touched", f.p.Checkpoint)
	}
	fresh, err := from.makeFresh(f.m, f.id)
	defer func() { _ = dropDatabase(f.m, fresh) }() // nothing, once it has another name
	if err != nil {
		return f.explainMaking(err)
	}
	reachRestore("made")
	is, err := readDatabase(f.m, fresh, f.application())
	if err != nil {
		return err
	}
	if is.exact() != wanted.exact() {
		return activities.Errorf(activities.DamagedRecord,
			"database %s: made from %s, it would not be what that has; nothing was touched:\n%s", f.p.Database,
			f.p.Checkpoint, wanted.diff(is))
	}
	name, oid, err := whoAmI(f.c)
	if err != nil {
		return err
	}
	return exchange{
		Checkpoints: f.Checkpoints, own: f.c, m: f.m, application: f.application(),
		name: name, oid: oid, fresh: fresh, aside: kept, pass: reachRestore, impatient: true,
		check: func() error { return f.checkBefore(rec, name) },
	}.run()
}

// checkBefore refuses an exchange that came too late, or that was approved for what the database no
// longer is.
func (f *restoring) checkBefore(rec restoreRecord, name string) error {
	if err := f.token.CheckOpen(); err != nil || rec.Want == "" {
		return err
	}
	now, err := readDatabase(f.c, name, f.application())
	if err == nil && now.digest() != rec.Seen {
		err = f.stale()
	}
	return err
}

func (f *restoring) explainMaking(err error) error {
	if server.IsCode(err, "53100") {
		return activities.Errorf(activities.Refused,
			"database %s: its server has no room for a second copy, nothing was touched; make room there, and retry: %v",
			f.p.Database, err)
	}
	return fmt.Errorf("database %s: it cannot be made from %s, nothing was touched: %w", f.p.Database, f.p.Checkpoint, err)
}
