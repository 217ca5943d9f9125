package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/alteration"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// Undo puts the rows back in one transaction.
func (a *execAction) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	if u, is := activities.NeverBegan(e, d); is {
		return u, nil
	}
	c, err := a.openEntry(ctx, e, server.UndoName)
	if err != nil {
		return activities.Undone{}, err
	}
	defer c.Close()
	if err := c.checkNotLost(e, d.Done); err != nil {
		return activities.Undone{}, err
	}
	if err := c.ensureJournal(); err != nil {
		return c.neverBegan(e, err)
	}
	reach("undo-begun")
	if err := c.fence(e, recordkeeping.Undoing); err != nil {
		return activities.Undone{}, err
	}
	reach("fenced")
	var undone activities.Undone
	err = c.waiting(e.Token, func() error {
		return c.InTransaction(func() (err error) {
			undone, err = c.undoOnce(e, d)
			return err
		})
	})
	if drifted, ok := errors.AsType[drift.Error](err); ok {
		return drifted.Undone(), nil
	}
	return undone, err
}

// lookAgain is when a late sweep looks whether a forward has begun after all.
const lookAgain = time.Hour

// neverBegan is the outcome of an undo that finds no journal and cannot make it: a forward that has
// acted has left one, and one that is under way can make it as little. Somebody may give the role
// the right to later, while a worker is stopped: so a late sweep looks again.
func (c *connection) neverBegan(e activities.Entry, cause error) (activities.Undone, error) {
	if _, isFinal := errors.AsType[*activities.Error](cause); !isFinal {
		return activities.Undone{}, cause // another attempt may be able to
	}
	if err := c.EndForward(e.Token); err != nil {
		return activities.Undone{}, err
	}
	if there, err := c.hasJournal(); there || err != nil {
		return activities.Undone{}, errors.Join(cause, err)
	}
	return activities.Undone{
		Outcome: activities.Nothing, LookAgain: lookAgain,
		Observed: fmt.Sprintf(
			"there is no journal, without which no forward acts, and it cannot be made (%v); a late sweep looks again in %s",
			cause, lookAgain),
	}, nil
}

// openEntry connects to the database of an entry.
func (w *world) openEntry(ctx context.Context, e activities.Entry, purpose string) (*connection, error) {
	p, err := activities.DecodeParams[undoParams](e.Params)
	if err != nil {
		return nil, err
	}
	return w.open(ctx, e, p.Database, purpose)
}

// checkNotLost returns DamagedRecord if a step that is done has no record.
func (c *connection) checkNotLost(e activities.Entry, isDone bool) error {
	if !isDone {
		return nil
	}
	there, err := c.hasJournal()
	if err != nil {
		return err
	}
	if there {
		if err := c.Scan("SELECT EXISTS (SELECT FROM unwind.record WHERE token = $1)", []any{e.Token}, &there); err != nil ||
			there {
			return err // what it says is read behind the fence
		}
	}
	return activities.Errorf(activities.DamagedRecord,
		"database %s has no record of token %s in unwind.record, though the step has acted (was the database restored "+
			"from a backup?): "+
			"nothing was touched; put the record back, or decide what becomes of the step", c.Name, e.Token)
}

// undoOnce is one transaction.
func (c *connection) undoOnce(e activities.Entry, d activities.Decision) (activities.Undone, error) {
	r, err := c.lockRecord(e.Token)
	if err != nil {
		return activities.Undone{}, err
	}
	switch {
	case r == nil:
		return activities.Undone{}, activities.Errorf(activities.DamagedRecord,
			"database %s: the row of token %s in unwind.record is gone since the undo began", c.Name, e.Token)
	case r.Forgotten || r.State == recordkeeping.Released:
		return activities.Undone{}, activities.ReleasedError(e.Token)
	case r.State == recordkeeping.Undone:
		return r.Outcome, nil
	}
	if err := c.checkUnsettled(e.Token); err != nil {
		return activities.Undone{}, err
	}
	outcome := activities.Undone{Outcome: activities.Nothing,
		Observed: "the transaction of the step was never committed, and no longer can be"}
	if r.Tables != nil {
		if outcome, err = c.putBack(r, d); err != nil {
			return activities.Undone{}, err
		}
	} else if d.Done {
		return activities.Undone{},
			activities.Errorf(activities.DamagedRecord,
				"database %s: the row of token %s in unwind.record says that the step has not acted, though it has; nothing "+
					"was touched",
				c.Name, e.Token)
	}
	reach("restored")
	raw, err := json.Marshal(recordkeeping.KeptOutcome{Token: e.Token, Undone: outcome})
	if err != nil {
		return activities.Undone{}, err
	}
	if err := c.Run("UPDATE unwind.record SET state = $2, outcome = $3, ended = $4 WHERE n = $1", r.N,
		recordkeeping.Undone, string(raw),
		recordkeeping.FormatTime(time.Now())); err != nil {
		return activities.Undone{}, err
	}
	if err := c.settleMark(e.Token); err != nil {
		return activities.Undone{}, err
	}
	reach("outcome")
	return outcome, nil
}

// putBack compares the rows with what the step left, and replaces them by what was there before.
func (c *connection) putBack(r *record, d activities.Decision) (activities.Undone, error) {
	if err := errors.Join(c.checkReplication(), c.checkComplete(r)); err != nil {
		return activities.Undone{}, err
	}
	if declared := alteration.DeclaredIn(r.Alterations); declared != nil {
		return c.takeBackDeclared(r, declared, d)
	}
	// Triggers do not run again: what they changed was captured. Constraints that triggers enforce are
	// looked at afterwards.
	if err := c.Run("SET LOCAL session_replication_role = replica"); err != nil {
		return activities.Undone{}, err
	}
	if err := c.lockShapes(r); err != nil {
		return activities.Undone{}, err
	}
	if problem, err := c.findMisfit(r); err != nil || problem != "" {
		if err == nil {
			err = drift.New(problem)
		}
		return activities.Undone{}, err
	}
	forced, err := c.putRowsBack(r, d)
	if err != nil {
		return activities.Undone{}, err
	}
	var backs []string
	if len(r.Tables) > 0 || r.Alterations == nil {
		backs = append(backs,
			fmt.Sprintf("%s of %s as before", activities.CountOf(r.Rows, "row"), activities.CountOf(len(r.Tables), "table")))
	}
	if r.Alterations != nil {
		reverted, err := c.revertSchema(r)
		if err != nil {
			return activities.Undone{}, err
		}
		backs = append(backs, reverted)
	}
	if err := c.Run("SET LOCAL session_replication_role = origin"); err != nil {
		return activities.Undone{}, err
	}
	observed := strings.Join(backs, "; ")
	if forced {
		observed += ", over what someone else had changed"
	}
	return activities.Undone{Outcome: activities.Restored, Observed: observed}, nil
}

// putRowsBack puts the rows of a step back. It reports whether that was forced, over what others
// have changed since.
func (c *connection) putRowsBack(r *record, d activities.Decision) (forced bool, err error) {
	if d.Force != "" {
		for _, t := range r.Tables { // what was shown stays as it is until it is overwritten
			if err := c.Run(lockRows(t), r.N, t.OID); err != nil {
				return false, err
			}
		}
	} else if done, err := c.putBackAtOnce(r); done || err != nil {
		return false, err
	}
	strayed, err := c.findDrift(r)
	if err != nil {
		return false, err
	}
	forced = strayed != nil && d.Force == strayed.Drift.Digest
	if strayed != nil && !forced {
		return false, *strayed
	}
	return forced, capture.WithoutTriggers(c.Connection, r.Tables, func() error { return c.replaceRows(r, forced) })
}

// takeBackDeclared runs the undo that a step declares. Records of other steps learn the ids of the
// tables that it makes anew.
func (c *connection) takeBackDeclared(r *record, declared *alteration.Declared,
	d activities.Decision) (activities.Undone, error) {
	outcome, err := alteration.TakeBack(c.Connection, r.N, r.Alterations, d)
	if err != nil {
		return activities.Undone{}, err
	}
	remade, err := declared.Remade(c.Connection)
	if err == nil && len(remade) > 0 {
		err = c.renumber(func(t *capture.Table) (uint32, error) { return remade[t.OID], nil })
	}
	return outcome, err
}

// replaceRows replaces the rows that a step left by those that were there before.
func (c *connection) replaceRows(r *record, forced bool) error {
	for _, t := range r.Tables {
		if err := c.removeRows(r.N, t, forced); err != nil {
			return err
		}
	}
	reach("removed")
	var all []capture.Kept
	for _, t := range r.Tables {
		all = append(all, capture.Kept{
			Of: t, From: "unwind.event", Row: "old::" + t.Quoted(), Where: "record = $1 AND relid = $2 AND old IS NOT NULL",
			One: "format('n = %s AND place = %s', n, place)", Params: []any{r.N, t.OID},
		})
	}
	if err := capture.PutBack(c.Connection, all); err != nil {
		return err
	}
	if err := c.checkForeignKeys(r.N, r.Tables, forced); err != nil {
		return err
	}
	for _, t := range r.Tables {
		if err := errors.Join(c.verify(r.N, t), c.passOn(r.N, t)); err != nil {
			return err
		}
	}
	return nil
}

// revertSchema takes the alterations of a step back, and says what the schema is then.
func (c *connection) revertSchema(r *record) (observed string, err error) {
	if err := errors.Join(alteration.Revert(c.Connection, r.N, r.Alterations), capture.Mend(c.Connection)); err != nil {
		return "", err
	}
	const changed = "the schema is as before where the step changed it"
	was := r.Alterations[0].Was
	if was == "" {
		return changed, nil
	}
	is, err := schema.Describe(c.Connection)
	if err == nil && activities.DigestOf([]byte(is)) != was {
		return changed + "; others have changed it elsewhere since", nil
	}
	return "the schema is as before", err
}

// lockShapes keeps others from altering what a step changed and made until the transaction ends.
func (c *connection) lockShapes(r *record) error {
	if err := capture.LockShapes(c.Connection, r.Tables); err != nil {
		return err
	}
	return alteration.LockMade(c.Connection, r.Alterations)
}

// findMisfit returns why nothing of a step can be put back as things are; empty if it can.
func (c *connection) findMisfit(r *record) (problem string, err error) {
	if problem, err = capture.FindAltered(c.Connection, r.Tables); err == nil && problem == "" {
		problem, err = alteration.FindLost(c.Connection, r.Alterations)
	}
	return problem, err
}

// checkComplete returns DamagedRecord unless all events are there that the step committed.
func (c *connection) checkComplete(r *record) error {
	var events int64
	if err := c.Scan("SELECT coalesce(sum(cardinality(coalesce(old, new))), 0) FROM unwind.change WHERE record = $1",
		[]any{r.N}, &events); err != nil {
		return err
	}
	if events != r.Rows {
		return activities.Errorf(activities.DamagedRecord,
			"database %s: the step changed %s, and unwind.change has %d of them; nothing was touched", c.Name,
			activities.CountOf(r.Rows, "row"), events)
	}
	if digest, err := c.digestChanges(r.N); err != nil || digest != r.Seal.Changes {
		if err == nil {
			err = activities.Errorf(activities.DamagedRecord,
				"database %s: the rows of record %d in unwind.change are not those that the step has changed; nothing was touched",
				c.Name, r.N)
		}
		return err
	}
	return nil
}

// found joins each event of a table with the row that has its new key now, and with the one that
// has its old key.
func found(t *capture.Table, columns string) string {
	return fmt.Sprintf(`SELECT %[3]s FROM
		(SELECT old, new, old::%[1]s AS o, new::%[1]s AS n, version FROM unwind.event WHERE record = $1
		AND relid = $2 OFFSET 0) e
		LEFT JOIN LATERAL (SELECT (q.*)::text AS image, to_jsonb(q.*)::text AS shown, q.xmin AS version FROM ONLY %[1]s q
		WHERE e.new IS NOT NULL AND %[2]s) l ON true
		LEFT JOIN LATERAL (SELECT (q.*)::text AS image, to_jsonb(q.*)::text AS shown FROM ONLY %[1]s q WHERE e.new IS NULL
		AND %[4]s
			AND NOT EXISTS (SELECT FROM (SELECT new::%[1]s AS n FROM unwind.event WHERE record = $1 AND relid = $2
			AND new IS NOT NULL OFFSET 0) o WHERE %[5]s = %[6]s)) b ON true`,
		t.Quoted(), t.On("e.n"), columns, t.On("e.o"), t.KeyOf("(o.n)"), t.KeyOf("q"))
}

// keyOfEvent is the key of the row of an event, as text: a row has the same one before and after.
func keyOfEvent(t *capture.Table) string {
	return fmt.Sprintf("CASE WHEN e.new IS NULL THEN %s ELSE %s END", t.KeyOf("(e.o)"), t.KeyOf("(e.n)"))
}

// isDrift is the condition for a row that the step left and that is gone or has another version, or
// for a deleted key that exists again.
const isDrift = `(e.new IS NOT NULL AND l.version IS DISTINCT FROM e.version OR b.image IS NOT NULL)`

func lockRows(t *capture.Table) string {
	return fmt.Sprintf(`SELECT count(*) FROM (SELECT 1 FROM (SELECT old::%[1]s AS o, new::%[1]s AS n FROM unwind.event
		WHERE record = $1 AND relid = $2 OFFSET 0) e
		JOIN ONLY %[1]s q ON %[2]s OR %[3]s FOR UPDATE OF q) s`, t.Quoted(), t.On("e.n"), t.On("e.o"))
}

// findDrift compares every row with what the step left; nil if nothing differs.
func (c *connection) findDrift(r *record) (*drift.Error, error) {
	if d := alteration.DeclaredIn(r.Alterations); d != nil {
		return alteration.FindStrayed(c.Connection, d)
	}
	var parts [][]byte
	var shown []string
	total := 0
	for _, t := range r.Tables {
		type row struct {
			Left, Now, Shown, Key *string
		}
		rows, err := server.Collect(c.Connection, pgx.RowToStructByPos[row],
			found(t, `to_jsonb(e.n)::text, coalesce(l.image, b.image), coalesce(l.shown, b.shown), `+keyOfEvent(t))+
				" WHERE "+isDrift+" ORDER BY "+keyOfEvent(t)+` COLLATE "C"`, r.N, t.OID)
		if err != nil {
			return nil, err
		}
		for i, each := range rows {
			state := "gone"
			if each.Now != nil {
				state = "now " + *each.Now
			}
			parts = append(parts, []byte(t.FullName()), []byte(*each.Key), []byte(state))
			if i < capture.ShownRows {
				shown = append(shown,
					fmt.Sprintf("%s, as the step left it and as it is now:\n%s", t.FullName(),
						capture.ShowRow(c.Connection, t, capture.Images{Old: each.Left, New: each.Shown})))
			}
		}
		total += len(rows)
	}
	if total == 0 {
		return nil, nil //nolint:nilnil // documented
	}
	d := drift.New(fmt.Sprintf("since the step, %s changed, or inserted again under a key that it removed\n%s",
		activities.CountOf(total, "row"), strings.Join(shown, "")), parts...)
	return &d, nil
}

// errMoved is a change by somebody else between looking and replacing: the next attempt shows it.
var errMoved = errors.New("a row was changed while the undo ran; it is looked at again")

// removeRows deletes the rows that the step left: only in the version that it left, unless their
// drift is forced.
func (c *connection) removeRows(n int64, t *capture.Table, forced bool) error {
	condition := fmt.Sprintf("%s AND q.xmin = e.version", t.On("e.n"))
	if forced {
		condition = fmt.Sprintf("(%s OR %s)", t.On("e.n"), t.On("e.o"))
	}
	sql := fmt.Sprintf(`DELETE FROM ONLY %[1]s q USING
		(SELECT old::%[1]s AS o, new::%[1]s AS n, version FROM unwind.event WHERE record = $1 AND relid = $2 %[2]s OFFSET 0) e
		WHERE %[3]s`, t.Quoted(), map[bool]string{false: "AND new IS NOT NULL"}[forced], condition)
	tag, err := c.Exec(c.Ctx, sql, n, t.OID)
	if err != nil {
		return c.Explain(err)
	}
	if !forced && tag.RowsAffected() != t.Came+t.Changed {
		return errMoved
	}
	return nil
}

// verify compares the rows with what they were.
func (c *connection) verify(n int64, t *capture.Table) error {
	var same int64
	if err := c.Canonically(func() error {
		return c.Scan(
			fmt.Sprintf(`SELECT count(*) FROM (SELECT old, old::%[1]s AS o FROM unwind.event WHERE record = $1 AND relid = $2
				AND old IS NOT NULL OFFSET 0) e
			JOIN ONLY %[1]s q ON %[2]s WHERE (q.*)::text = e.old`, t.Quoted(), t.On("e.o")), []any{n, t.OID}, &same)
	}); err != nil {
		return err
	}
	if want := t.Went + t.Changed; same != want {
		return drift.New(
			fmt.Sprintf(
				"%d of %s of %s would not be as before (a generated column, or a type, is computed in another way now); "+
					"nothing was touched", want-same, activities.CountOf(want, "row"), t.FullName()))
	}
	return nil
}

// passOn stores the version that a row has now in the records of other steps, if the row is again
// as such a step left it. Those that began later may have acted earlier.
func (c *connection) passOn(n int64, t *capture.Table) error {
	return capture.PassVersions(c.Connection, fmt.Sprintf(`SELECT e.image, q.xmin FROM
		(SELECT old AS image, old::%[1]s AS o FROM unwind.event WHERE record = $1 AND relid = $2
		AND old IS NOT NULL OFFSET 0) e JOIN ONLY %[1]s q ON %[2]s`, t.Quoted(), t.On("e.o")),
		"r.state IN ('applied', 'undoing') AND r.n <> $1 AND c.relid = $2", n, t.OID)
}
