package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// restore is postgres.restore. Its forward and its undo are each one exchange of two databases.
type restore struct{ *Checkpoints }

type restoreParams struct {
	Database   string `json:"database"   jsonschema:"the name of one of the worker's postgres.databases"`
	Checkpoint string `json:"checkpoint" jsonschema:"the checkpoint that says what it is to hold: an output of postgres.checkpoint"`
}

var restoreSpec = activities.Spec{
	Name: "postgres.restore",
	Summary: "Makes a PostgreSQL database hold what a checkpoint has kept of it, exactly: rows, schema, settings and " +
		"the positions of sequences.",
	Params: activities.ParamsSchema[restoreParams](), UndoParams: []string{"database", "checkpoint"},
	Outputs: map[string]string{"changed": "how many objects, tables and positions of sequences were put back",
		"digest": "what the database contains, as a digest"},
	Keys: []activities.Key{{Prefix: "postgres:", Param: "database"}}, HostBound: true, Preflights: true,
	Risk: activities.High, Strategy: activities.Snapshot,
	Undo: "The database that was there before is kept beside the restored one, and gets its name back; sessions are " +
		"ended. What was in the restored one is kept until the record is released.",
	Redo: "It runs again: the database holds what the checkpoint has, as long as that is kept.",
}

// Spec implements activities.Action.
func (*restore) Spec() activities.Spec { return restoreSpec }

func reachRestore(what string) { point.Reach("postgres.restore:" + what) }

// restoreRecord is the document journal.Record.
type restoreRecord struct {
	journal.Owned

	Want activities.Digest `json:"want,omitempty"`
	OID  uint32            `json:"oid"` // of the database as it was before
	// Seen is what it contained when a step that was approved was judged, and Wanted what it is to
	// contain.
	Seen   activities.Digest `json:"seen,omitempty"`
	Wanted manifest          `json:"wanted"`
	// Unchanged means that these were found to be the same, and that nothing is done.
	Unchanged bool `json:"unchanged,omitempty"`
}

// restored is the document journal.Applied.
type restored struct {
	// Before is what the database that was replaced contains.
	Before manifest          `json:"before"`
	Result activities.Result `json:"result"`
}

// restorable is a database and a checkpoint that it can be restored from.
type restorable struct {
	image        image
	now, wanted  manifest
	size         int64
	unchanged    bool
	change       activities.Change
	database, at string
}

// look reads the checkpoint, and refuses what could not be restored.
func (a *restore) look(c *server.Connection, p restoreParams, application string) (r restorable, err error) {
	r.database, r.at = p.Database, p.Checkpoint
	if r.size, err = a.checkPossible(c); err != nil {
		return r, err
	}
	if r.image, err = a.find(c, p.Checkpoint, application); err != nil {
		return r, err
	}
	r.wanted, err = r.image.read()
	r.change = activities.Change{Strategy: activities.Snapshot, Risk: restoreSpec.Risk}
	return r, err
}

// compare compares the database with the checkpoint.
func (r *restorable) compare(c *server.Connection, application string) error {
	name, _, err := whoAmI(c)
	if err != nil {
		return err
	}
	if r.now, err = readDatabase(c, name, application); err != nil {
		return err
	}
	r.unchanged = r.now.exact() == r.wanted.exact()
	sessions, err := countSessions(c)
	r.describe(sessions)
	return err
}

func (r *restorable) describe(sessions int) {
	r.change = activities.Change{
		Summary: fmt.Sprintf("put the database %s back to %s, from which it differs in %s", r.database, r.at,
			activities.CountOf(len(r.now.differs(r.wanted)), "place")),
		Diff: r.now.diff(r.wanted), Strategy: activities.Snapshot, Undo: restoreSpec.Undo, Risk: restoreSpec.Risk,
		Keys: []string{"postgres:" + r.database}, Unchanged: r.unchanged,
		Digest: activities.DigestOf([]byte("restore"), []byte(r.database), []byte(r.at), []byte(r.now.digest()),
			[]byte(r.wanted.exact()), fmt.Append(nil, r.unchanged)),
		Facts: []string{
			"everything that has changed since the checkpoint goes, whoever has changed it",
			describeSessions(sessions),
			r.image.describe() + ", beside the present one, compared with the checkpoint, and gets its name",
			fmt.Sprintf("what is there now, %s, is kept on its server until the record is released",
				activities.CountOf(r.size, "byte")),
		},
	}
	if r.unchanged {
		r.change.Summary = fmt.Sprintf("leave the database %s: it is as %s has it", r.database, r.at)
		r.change.Facts = nil
	}
}

// Plan compares the database with the checkpoint.
func (a *restore) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := activities.DecodeParams[restoreParams](s.With)
	if err != nil {
		return activities.Change{}, err
	}
	token, err := a.token(e)
	if err == nil {
		err = token.CheckOpen()
	}
	if err != nil {
		return activities.Change{}, err
	}
	c, err := a.Rows.Open(ctx, e, p.Database, server.PlanName)
	if err != nil {
		return activities.Change{}, err
	}
	defer c.Close()
	application := server.PlanName + " " + e.Token
	r, err := a.look(c, p, application)
	if err == nil {
		err = r.compare(c, application)
	}
	reachRestore("planned")
	return r.change, err
}

// Observe compares the database with what the checkpoint has, and with what was there before.
func (a *restore) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	token, err := a.token(e)
	if err != nil {
		return activities.Observation{}, err
	}
	c, err := a.openWhole(ctx, e, server.LookName)
	if err != nil {
		return activities.Observation{}, err
	}
	defer c.Close()
	application := server.LookName + " " + e.Token
	m, err := a.connectMaintenance(ctx, c.Name, application)
	if err != nil {
		return activities.Observation{}, err
	}
	defer m.Close()
	t, err := readTraces(m, token, e.Token)
	if err != nil {
		return activities.Observation{}, err
	}
	name, _, err := whoAmI(c)
	if err != nil {
		return activities.Observation{}, err
	}
	switch {
	case t.undone != 0 && t.applied:
		now, err := readDatabase(c, name, application)
		if err != nil {
			return activities.Observation{}, err
		}
		if now.digest() != t.done.Before.digest() {
			return activities.Observation{State: activities.Elsewise,
				Detail: "the database that was there before is back, and has changed since"}, nil
		}
		return activities.Observation{State: activities.AsBefore,
			Detail: "the database is the one that was there before"}, nil
	case t.isLost():
		return activities.Observation{State: activities.Unseen, Detail: "what was restored is no longer known"}, nil
	case t.undone != 0, t.kept == 0 && !t.rec.Unchanged:
		return activities.Observation{State: activities.AsBefore, Detail: "nothing is restored"}, nil
	}
	err = t.check(c, m, name, application)
	if strayed, ok := errors.AsType[drift.Error](err); ok {
		return activities.Observation{State: activities.Elsewise, Detail: strayed.Undone().Observed, Drift: &strayed.Drift},
			nil
	}
	return activities.Observation{State: activities.AsLeft, Detail: "the database is as the checkpoint has it"}, err
}

// Release drops the database that was replaced.
func (a *restore) Release(ctx context.Context, e activities.Entry) error {
	token, err := a.token(e)
	if err != nil {
		return err
	}
	c, err := a.openWhole(ctx, e, server.LookName)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := token.DecideReleasing(); err != nil {
		return err
	}
	m, err := a.connectMaintenance(ctx, c.Name, server.LookName+" "+e.Token)
	if err != nil {
		return err
	}
	defer m.Close()
	return errors.Join(m.EndForwardForGood(e.Token), dropFresh(m, e.Token), dropDatabase(m, keptPrefix+e.Token),
		dropDatabase(m, undonePrefix+e.Token), release(token))
}

// release drops the documents of a token.
func release(token *journal.Token) error {
	for _, name := range []string{journal.Record, journal.Applied, takenDoc, contentsDoc} {
		if err := token.Drop(name); err != nil {
			return err
		}
	}
	return token.MarkReleased()
}

// Preflight finds a server that cannot be used, programs that are missing or too old, and rights
// that are missing.
func (a *restore) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[restoreParams](o.With)
	problems := []error{err, activities.CheckPrograms(ctx, o.Checks)}
	if err == nil && !o.Awaits("checkpoint") && !isName(p.Checkpoint) {
		problems = append(problems, refuseName(p.Checkpoint))
	}
	if err != nil || o.Awaits("database") {
		return errors.Join(problems...)
	}
	return errors.Join(append(problems, a.preflight(ctx, p.Database))...)
}

// Touches names the database in the same way, whatever a step calls it.
func (a *restore) Touches(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	p, err := activities.DecodeParams[restoreParams](o.With)
	if err != nil || o.Awaits("database") {
		return nil, err
	}
	return a.Databases.Touch(ctx, p.Database)
}
