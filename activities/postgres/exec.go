package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/postgres/alteration"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/postgres/statement"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
	"github.com/seed-62bf7108/unwind/internal/sweep"
)

const (
	rehearsalLock = "5s"  // how long a rehearsal waits for a lock
	rehearsalTime = "60s" // how long one of its statements may take
	rehearsalIdle = "5s"  // when the server ends one whose worker was stopped
)

// execAction is postgres.exec.
type execAction struct{ *world }

func (a *execAction) Spec() activities.Spec { return execSpec }

func reach(what string) { point.Reach("postgres.exec:" + what) }

// Plan rehearses: it runs the statements and rolls them back.
func (a *execAction) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	p, run, err := readExec(s)
	if err != nil {
		return activities.Change{}, err
	}
	c, err := a.open(ctx, e, p.Database, server.PlanName)
	if err != nil {
		return activities.Change{}, err
	}
	defer c.Close()
	if err := c.checkReplication(); err != nil {
		return activities.Change{}, err
	}
	const limits = "SET LOCAL lock_timeout = '" + rehearsalLock + "'; SET LOCAL statement_timeout = '" + rehearsalTime +
		"'; SET LOCAL idle_in_transaction_session_timeout = '" + rehearsalIdle + "'"
	foreseen, err := c.foresee(run, limits)
	if err != nil {
		return activities.Change{}, err
	}
	defer c.Rollback()
	there, did, prepared, err := c.beginRehearsal(run, limits)
	if err != nil {
		return activities.Change{}, err
	}
	reach("rehearsed")
	const n = rehearsed
	if err := c.fingerprint(n, did, foreseen); err != nil {
		return activities.Change{}, err
	}
	diff, err := c.show(n, did)
	if err != nil {
		return activities.Change{}, err
	}
	change, err := c.weigh(run, did)
	if err != nil {
		return activities.Change{}, err
	}
	change.Summary, change.Diff, change.Keys = p.Database+": "+summarize(did), diff, []string{"postgres:" + p.Database}
	change.Digest = digestOf(p.Database, run, did)
	if len(prepared) > 0 || !there {
		change.Facts = append(change.Facts,
			"for the first step here, the schema unwind and the triggers \"!unwind ...\" are made, with a short lock on: "+
				cmp.Or(strings.Join(prepared, ", "), "no table"))
	}
	return change, nil
}

// rehearse performs the statements in the current transaction, and prepares in it the tables that
// are not yet.
func (c *connection) rehearse(n int64, run statement.Script) (*alteration.Change, []string, error) {
	var prepared []string
	for range alteration.Tries {
		if err := c.Run("SAVEPOINT rehearsal"); err != nil {
			return nil, nil, err
		}
		did, err := c.perform(n, run)
		missing, isMissing := errors.AsType[capture.Uncaptured](err)
		if !isMissing && !errors.Is(err, alteration.ErrInterfered) {
			return did, prepared, err
		}
		if err := c.Run("ROLLBACK TO rehearsal"); err != nil {
			return nil, nil, err
		}
		if err := statement.CheckEventTriggers(c.Connection); err != nil {
			return nil, nil, err
		}
		tables, err := capture.Describe(c.Connection, missing.Tables)
		if err == nil {
			err = capture.Prepare(c.Connection, tables)
		}
		if err != nil {
			return nil, nil, err
		}
		for _, r := range tables {
			prepared = append(prepared, r.FullName())
		}
	}
	return nil, nil, alteration.ErrUnprepared
}

// rehearsed is the number of a rehearsal: no record has it.
const rehearsed = -1

// beginRehearsal begins a transaction, and rehearses the statements in it.
func (c *connection) beginRehearsal(run statement.Script, limits string) (hasJournal bool, did *alteration.Change,
	prepared []string, err error) {
	if err := c.Run("BEGIN"); err != nil {
		return false, nil, nil, err
	}
	if limits != "" {
		if err := c.Run(limits); err != nil {
			return false, nil, nil, err
		}
	}
	there, err := c.hasJournal()
	if err == nil && !there {
		err = c.makeJournal()
	}
	if err != nil {
		return false, nil, nil, err
	}
	did, prepared, err = c.rehearse(rehearsed, run)
	return there, did, prepared, err
}

// foresee runs the statements once in a transaction of its own, which it rolls back, and returns
// what they wrote: what differs when they run again is volatile. Nothing is foreseen of a step that
// writes no rows for certain, or that declares its undo: its statements have run twice already.
func (c *connection) foresee(run statement.Script, limits string) (written, error) {
	if run.Undo != nil || !slices.ContainsFunc(run.Forward, func(s statement.Statement) bool {
		_, words := statement.Split(s.SQL)
		return !statement.IsAlteration(words[0])
	}) {
		return nil, nil
	}
	defer c.Rollback()
	_, did, _, err := c.beginRehearsal(run, limits)
	if err != nil {
		return nil, err
	}
	return c.readWritten(rehearsed, did)
}

// Apply runs the statements in one transaction together with their record.
func (a *execAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	p, run, err := readExec(s)
	if err != nil {
		return activities.Result{}, err
	}
	c, err := a.open(ctx, e, p.Database, server.ForwardName)
	if err != nil {
		return activities.Result{}, err
	}
	defer c.Close()
	if err := errors.Join(c.checkReplication()); err != nil {
		return activities.Result{}, err
	}
	if err := c.ensureJournal(); err != nil {
		return activities.Result{}, err
	}
	reach("journal")
	result, err := c.applyOnce(e, s, run, want)
	if err != nil {
		return activities.Result{}, err
	}
	return result, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Staged,
		statement.Scene{Connection: c.Connection, Result: result})
}

func (c *connection) applyOnce(e activities.Entry, s activities.Step, run statement.Script,
	want activities.Digest) (activities.Result, error) {
	foreseen, err := c.foreseeApproved(e, run, want)
	if err != nil {
		return activities.Result{}, err
	}
	for range alteration.Tries {
		result, err := c.try(e, s, run, want, foreseen)
		if err != nil {
			c.Rollback()
		}
		missing, isMissing := errors.AsType[capture.Uncaptured](err)
		if !isMissing && !errors.Is(err, alteration.ErrInterfered) {
			return result, err
		}
		if err := capture.PrepareShortly(c.Connection, missing.Tables); err != nil {
			return result, err
		}
	}
	return activities.Result{}, alteration.ErrUnprepared
}

// foreseeApproved foresees what an approved step writes, unless it has acted.
func (c *connection) foreseeApproved(e activities.Entry, run statement.Script, want activities.Digest) (written,
	error) {
	if want == "" {
		return nil, nil
	}
	if r, err := c.readRecord(e.Token); r != nil || err != nil {
		return nil, err
	}
	return c.foresee(run, "")
}

// try is one transaction.
func (c *connection) try(e activities.Entry, s activities.Step, run statement.Script, want activities.Digest,
	foreseen written) (activities.Result, error) {
	var n int64
	var created bool
	err := c.waiting(e.Token, func() (err error) {
		if err = c.Run("BEGIN"); err == nil {
			n, created, err = c.insertRecord(e, recordkeeping.Applied)
		}
		if err != nil {
			c.Rollback()
		}
		return err
	})
	if err != nil {
		return activities.Result{}, err
	}
	if !created {
		defer c.Rollback()
		r, err := c.readRecord(e.Token)
		switch {
		case err != nil:
			return activities.Result{}, err
		case r == nil: // it was rolled back since
			return activities.Result{}, errors.New("another attempt was given up just now; it is tried again")
		case r.State != recordkeeping.Applied:
			return activities.Result{}, activities.Errorf(activities.Fenced, "token %s is %s: this forward came too late",
				e.Token, r.State)
		}
		return r.Result, c.checkUnsettled(e.Token)
	}
	reach("recorded")
	did, err := c.perform(n, run)
	if err != nil {
		return activities.Result{}, err
	}
	reach("performed")
	change, err := c.weigh(run, did)
	if err == nil {
		err = activities.Judge(c.Ctx, change)
	}
	if err != nil {
		return activities.Result{}, err
	}
	if want != "" {
		if err := c.fingerprint(n, did, foreseen); err != nil {
			return activities.Result{}, err
		}
		p, _ := decode[execParams](s.With) // it was read before
		if got := digestOf(p.Database, run, did); got != want {
			return activities.Result{},
				activities.Errorf(activities.StaleApproval,
					"the change is not the one that was approved: now it is %s (%s), approved was %s",
					summarize(did), got.Short(), want.Short())
		}
	}
	byTable := map[string]any{}
	for _, n := range did.Counts() {
		byTable[n.Of] = map[string]any{"came": n.Added, "went": n.Removed, "changed": n.Changed}
	}
	result := activities.Result{
		Summary: summarize(did),
		Outputs: map[string]any{"changes": did.Changes, "rows": did.Rows, "tables": byTable},
	}
	if did.Rows == nil {
		result.Outputs["rows"] = []any{}
	}
	if err := activities.RunChecks(c.Ctx, s.Checks, activities.Staged, activities.Staged,
		statement.Scene{Connection: c.Connection, Result: result}); err != nil {
		return activities.Result{}, err
	}
	return result, c.commit(e.Token, n, did, &result)
}

// commit completes the record, and commits it with the change.
func (c *connection) commit(token string, n int64, did *alteration.Change, result *activities.Result) error {
	// What the record says is what an attempt returns that finds it.
	raw, err := json.Marshal(result)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return err
	}
	if did.Tables == nil {
		did.Tables = []*capture.Table{}
	}
	tables, err := json.Marshal(did.Tables)
	if err != nil {
		return err
	}
	alterations, err := json.Marshal(did.Alterations)
	if err != nil {
		return err
	}
	sealed := sealedResult{Result: *result}
	if sealed.Seal, err = c.makeSeal(token, n, did.Events, string(tables), string(alterations)); err != nil {
		return err
	}
	if raw, err = json.Marshal(sealed); err != nil {
		return err
	}
	if err := c.setMark(token); err != nil {
		return err
	}
	if err := c.Run(
		"UPDATE unwind.record SET result = $2, tables = $3, rows = $4, bytes = $5, alterations = $6 WHERE n = $1",
		n, string(raw), string(tables), did.Events, did.Bytes, string(alterations)); err != nil {
		return err
	}
	reach("complete")
	if err := c.Run("COMMIT"); err != nil {
		return err
	}
	reach("committed")
	return nil
}

// checkReplication refuses before anything is changed where an undo could not work.
func (c *connection) checkReplication() error {
	err := c.Run("SET session_replication_role = origin")
	if server.IsCode(err, "42501") {
		return refused(
			"database %s: the worker's role may not set session_replication_role, which an undo needs in order to put rows "+
				"back without running triggers "+
				"again; as a superuser: GRANT SET ON PARAMETER session_replication_role TO the role (PostgreSQL 15 or newer)",
			c.Name)
	}
	return err
}

func readExec(s activities.Step) (execParams, statement.Script, error) {
	p, err := decode[execParams](s.With)
	if err != nil {
		return p, statement.Script{}, err
	}
	run, err := p.script()
	return p, run, err
}

// digestOf covers the statements, and the rows that they change as these were and will be.
func digestOf(database string, run statement.Script, did *alteration.Change) activities.Digest {
	parts := [][]byte{[]byte(database)}
	for _, statements := range [][]statement.Statement{run.Forward, run.Undo} {
		raw, err := json.Marshal(statements)
		if err != nil {
			panic(err) // they came out of JSON
		}
		parts = append(parts, raw)
	}
	if run.Checkpoint {
		parts = append(parts, []byte("checkpoint"))
	}
	for _, t := range did.Tables {
		parts = append(parts, []byte(t.Digest))
	}
	for _, a := range did.Alterations {
		parts = append(parts, []byte(a.Does), []byte(strings.Join(a.Rows, "\n")))
	}
	return activities.DigestOf(parts...)
}

func summarize(did *alteration.Change) string {
	var all []string
	for _, a := range did.Alterations {
		all = append(all, a.Does)
	}
	for _, n := range did.Counts() {
		all = append(all, n.Of+": "+n.Describe("row"))
	}
	if all == nil {
		return "no row changes"
	}
	return strings.Join(all, "; ")
}

// weigh returns what a policy or a person decides by.
func (c *connection) weigh(run statement.Script, did *alteration.Change) (activities.Change, error) {
	change := activities.Change{
		Strategy: activities.Transaction, Undo: execSpec.Undo, Risk: activities.Medium, Unchanged: did.Events == 0 &&
			did.Alterations == nil,
		Counts: did.Counts(),
	}
	for _, a := range did.Alterations {
		change.Schema = append(change.Schema, a.Does)
		change.Facts = append(change.Facts, "schema: it "+a.Does)
		if !a.OnlyAdds() {
			change.Risk = activities.High
		}
		change.Ask = change.Ask || a.Held != nil // it destroys
	}
	for _, s := range run.Forward {
		_, words := statement.Split(s.SQL)
		if found := sweep.Find(words[0]); found != "" && !statement.IsAlteration(words[0]) {
			change.Risk = activities.High
			change.Facts = append(change.Facts, fmt.Sprintf("%s: %s without WHERE", s.Where, found))
		}
		if slices.ContainsFunc(words[0],
			func(w string) bool { return slices.Contains([]string{"nextval", "setval"}, statement.Name(w)) }) {
			change.Facts = append(change.Facts, s.Where+": it moves a sequence, which is not rolled back")
		}
	}
	for _, t := range did.Tables {
		fact := fmt.Sprintf("table %s: %s", t.FullName(), activities.CountOf(t.Came+t.Went+t.Changed, "row"))
		if touched := t.Went + t.Changed; t.Total > 0 && touched > 0 {
			fact += fmt.Sprintf(", %d%% of about %d go or change", min(100, touched*100/t.Total), t.Total)
		}
		most, err := c.takesMost(t)
		if err != nil {
			return change, err
		}
		change.Facts = append(change.Facts, fact)
		if t.Volatile != nil {
			change.Facts = append(change.Facts,
				fmt.Sprintf("table %s: what is written to %s differs each time the statements run: an approval does not cover it",
					t.FullName(), strings.Join(t.Volatile, ", ")))
		}
		if most {
			change.Risk = activities.High
			change.Facts = append(change.Facts, "table "+t.FullName()+": more than half of its rows go or change")
		}
	}
	for _, table := range did.Shifting {
		change.Facts = append(change.Facts,
			fmt.Sprintf(
				"table %s: the statements change other rows each time that they run: an approval will be stale; choose the "+
					"rows by what is in them", table))
	}
	if did.Declared != nil {
		did.Declared.Tell(&change)
	}
	return change, nil
}

// takesMost reports whether most rows of a table go or change. It counts no more rows than that
// takes: the table may be huge.
func (c *connection) takesMost(t *capture.Table) (bool, error) {
	touched, left := t.Went+t.Changed, int64(0)
	if !activities.MostOf(touched, touched) {
		return false, nil
	}
	err := c.Scan(fmt.Sprintf("SELECT count(*) FROM (SELECT FROM ONLY %s LIMIT %d) s", t.Quoted(), t.Came+2*touched), nil,
		&left)
	return activities.MostOf(touched, left-t.Came+t.Went), err
}
