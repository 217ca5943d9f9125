package alteration

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// DeclaredIn is the undo that a step declares, given its alterations; nil for other steps.
func DeclaredIn(all []*Alteration) *Declared {
	for _, a := range all {
		if a.Declared != nil {
			return a.Declared
		}
	}
	return nil
}

func (d *Declared) watched() map[string]bool {
	all := map[string]bool{}
	for _, x := range d.Contents {
		all[x.Name] = x.Exclusive
	}
	return all
}

// Remade returns the tables that the undo of a step has made anew: their ids before the step, and
// those that they have now.
func (d *Declared) Remade(c *server.Connection) (map[uint32]uint32, error) {
	remade := map[uint32]uint32{}
	for _, x := range d.Contents {
		var now *uint32
		if err := c.Scan("SELECT to_regclass($1)::oid", []any{x.Name}, &now); err != nil {
			return nil, err
		}
		if now != nil && x.OID != 0 && *now != x.OID {
			remade[x.OID] = *now
		}
	}
	return remade, nil
}

// TakeBack runs the undo that a step declares, and compares what is then with what was before the
// step.
func TakeBack(c *server.Connection, n int64, all []*Alteration, decision activities.Decision) (activities.Undone,
	error) {
	d := DeclaredIn(all)
	if err := schema.LockContents(c, d.watched()); err != nil {
		return activities.Undone{}, err
	}
	strayed, err := FindStrayed(c, d)
	if err != nil {
		return activities.Undone{}, err
	}
	forced := strayed != nil && decision.Force == strayed.Drift.Digest
	if strayed != nil && !forced {
		return activities.Undone{}, *strayed
	}
	start, err := schema.TakeSurvey(c)
	if err != nil {
		return activities.Undone{}, err
	}
	if err := errors.Join(Revert(c, n, all), capture.Mend(c)); err != nil {
		return activities.Undone{}, err
	}
	end, err := schema.TakeSurvey(c)
	if err != nil {
		return activities.Undone{}, err
	}
	now, err := schema.ReadContents(c, d.watched())
	if err != nil {
		return activities.Undone{}, err
	}
	losses := append(compareSchemas(replaceLines(start.Schema, d.Comes, d.Goes), end.Schema), d.compareContents(now)...)
	unexpected := d.findUntried(start, end)
	if !forced {
		for _, loss := range losses {
			if !slices.Contains(d.Losses, loss) {
				unexpected = append(unexpected, loss)
			}
		}
	}
	if unexpected != nil {
		other := drift.New(
			"the undo that the step declares would not do what it did when it was tried; nothing was touched\n" +
				strings.Join(unexpected, "\n"))
		if other.Drift.Digest != decision.Force {
			return activities.Undone{}, other
		}
	}
	return d.report(losses, forced), nil
}

// report says what was seen after the undo.
func (d *Declared) report(losses []string, forced bool) activities.Undone {
	u := activities.Undone{Outcome: activities.Restored,
		Observed: "the undo that the step declares ran; the schema and " + activities.CountOf(len(d.Contents), "table") +
			" were compared: all is as it was"}
	if losses != nil {
		u.Outcome, u.Losses = activities.Compensated, losses
		u.Observed = "the undo that the step declares ran; not all is as it was"
	}
	if forced {
		u.Observed += ", over what someone else had changed"
	}
	return u
}

// findUntried says which tables the undo touches now that it did not touch when it was tried:
// nobody has looked at what others did to them.
func (d *Declared) findUntried(start, end schema.Survey) (problems []string) {
	watched := d.watched()
	for name := range schema.NamesOf([]map[uint32]bool{start.TouchedUntil(end)}, start, end) {
		if _, known := watched[name]; !known && !schema.IsJournal(strings.Trim(strings.Split(name, ".")[0], `"`)) {
			problems = append(problems, "it touches "+name+" now")
		}
	}
	slices.Sort(problems)
	return problems
}

// replaceLines is a text without some lines, and with others.
func replaceLines(text string, without, with []string) string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return slices.Contains(without, line) })
	return strings.Join(append(lines, with...), "\n")
}

// FindStrayed compares what the step changed with how it left that; nil if nothing differs.
func FindStrayed(c *server.Connection, d *Declared) (*drift.Error, error) {
	is, err := schema.Describe(c)
	if err != nil {
		return nil, err
	}
	var shown []string
	var parts [][]byte
	for _, line := range schema.MissingLines(strings.Join(d.Comes, "\n"), is) {
		if line != "" {
			shown = append(shown, "- "+line)
		}
	}
	for _, line := range d.Goes {
		if slices.Contains(strings.Split(is, "\n"), line) {
			shown = append(shown, "+ "+line)
		}
	}
	now, err := schema.ReadContents(c, d.watched())
	if err != nil {
		return nil, err
	}
	for _, x := range d.Contents {
		if sameContent(x.Left, now[x.Name]) {
			continue
		}
		state := "gone"
		if now[x.Name] != nil {
			state = *now[x.Name]
		}
		parts = append(parts, []byte(x.Name), []byte(state))
		shown = append(shown,
			fmt.Sprintf("%s: as the step left it %s, now %s", x.Name, sayContent(x.Left), sayOther(x.Left, now[x.Name])))
		newer, err := showNewer(c, x.Name, d.Transaction)
		if err != nil {
			return nil, err
		}
		shown = append(shown, newer...)
	}
	if shown == nil {
		return nil, nil //nolint:nilnil // documented
	}
	strayed := drift.New("others have changed what the step changed; its undo would run on that\n"+
		strings.Join(shown, "\n"), append(parts, []byte(strings.Join(shown, "\n")))...)
	return &strayed, nil
}

// showNewer lists rows that others have written since the step: those of later transactions.
func showNewer(c *server.Connection, name, transaction string) (shown []string, err error) {
	r, err := capture.Find(c, name)
	if err != nil || r == nil {
		return nil, err
	}
	rows, err := server.Collect(c, pgx.RowTo[string],
		fmt.Sprintf("SELECT to_jsonb(q.*)::text FROM ONLY %s q WHERE age(q.xmin) < age($1::text::xid) ORDER BY 1 LIMIT %d",
			name, capture.ShownRows), transaction)
	for _, row := range rows {
		shown = append(shown, strings.TrimSuffix(capture.ShowRow(c, &r.Table, capture.Images{New: &row}), "\n"))
	}
	return shown, err
}

// runDeclared runs the statements of a declared undo. Earlier steps know their rows by version:
// rows that are again as such a step left them are passed on to it.
func runDeclared(c *server.Connection, n int64, d *Declared) error {
	all, err := d.list()
	if err != nil {
		return err
	}
	before, err := countOwn(c)
	if err != nil {
		return err
	}
	_, _, err = runAll(c, all)
	if err == nil {
		err = putCheckpointBack(c, d)
	}
	if err != nil {
		if e, ok := errors.AsType[*activities.Error](err); ok && e.Type != activities.DamagedRecord {
			return drift.New("the undo that the step declares fails beside what others have done since: " + e.Message)
		}
		return err
	}
	after, err := countOwn(c)
	if err == nil && after != before {
		err = drift.New("the undo that the step declares changes the journal of Unwind now; nothing was touched")
	}
	if err != nil {
		return err
	}
	for _, x := range d.Contents {
		r, err := capture.Find(c, x.Name)
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		if err := c.Canonically(func() error {
			return capture.PassVersions(c, fmt.Sprintf("SELECT (q.*)::text, q.xmin FROM %s q", x.Name),
				`r.state IN ('applied', 'undoing') AND r.n <> $1
				AND c.relid IN (SELECT (t->>'oid')::oid FROM jsonb_array_elements(r.tables::jsonb) t
				WHERE quote_ident(t->>'schema') || '.' || quote_ident(t->>'name') = $2)`, n, x.Name)
		}); err != nil {
			return err
		}
	}
	return nil
}

// countOwn counts the rows of the journal that the transaction has changed.
func countOwn(c *server.Connection) (n int64, err error) {
	return n, c.Scan(
		"SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM pg_stat_xact_all_tables WHERE schemaname = 'unwind'",
		nil, &n)
}
