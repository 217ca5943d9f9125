package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
)

// declaredUndo is the alteration of a step that declares its undo; nil for other steps.
func (r *record) declaredUndo() *alteration {
	if i := slices.IndexFunc(r.Alterations, func(a *alteration) bool { return a.Declared != nil }); i >= 0 {
		return r.Alterations[i]
	}
	return nil
}

func (d *declared) watched() map[string]bool {
	all := map[string]bool{}
	for _, x := range d.Contents {
		all[x.Name] = x.Exclusive
	}
	return all
}

// takeBack runs the undo that a step declares, and compares what is then with what was before the step.
func (c *connection) takeBack(r *record, decision activities.Decision) (activities.Undone, error) {
	d := r.declaredUndo().Declared
	if err := c.lockContents(d.watched()); err != nil {
		return activities.Undone{}, err
	}
	drift, err := c.findStrayed(d)
	if err != nil {
		return activities.Undone{}, err
	}
	forced := drift != nil && decision.Force == drift.drift.Digest
	if drift != nil && !forced {
		return activities.Undone{}, *drift
	}
	start, err := c.survey()
	if err != nil {
		return activities.Undone{}, err
	}
	if err := errors.Join(c.revert(r.N, r.Alterations), c.mendCapture()); err != nil {
		return activities.Undone{}, err
	}
	end, err := c.survey()
	if err != nil {
		return activities.Undone{}, err
	}
	now, err := c.readContents(d.watched())
	if err != nil {
		return activities.Undone{}, err
	}
	losses := append(compareSchemas(replaceLines(start.schema, d.Comes, d.Goes), end.schema), d.compareContents(now)...)
	unexpected := d.findUntried(start, end)
	if !forced {
		for _, loss := range losses {
			if !slices.Contains(d.Losses, loss) {
				unexpected = append(unexpected, loss)
			}
		}
	}
	if unexpected != nil {
		other := newDrift("the undo that the step declares would not do what it did when it was tried; nothing was touched\n" + strings.Join(unexpected, "\n"))
		if other.drift.Digest != decision.Force {
			return activities.Undone{}, other
		}
	}
	return d.report(losses, forced), nil
}

// report says what was seen after the undo.
func (d *declared) report(losses []string, forced bool) activities.Undone {
	u := activities.Undone{Outcome: activities.Restored, Observed: "the undo that the step declares ran; the schema and " + activities.CountOf(len(d.Contents), "table") + " were compared: all is as it was"}
	if losses != nil {
		u.Outcome, u.Losses = activities.Compensated, losses
		u.Observed = "the undo that the step declares ran; not all is as it was"
	}
	if forced {
		u.Observed += ", over what someone else had changed"
	}
	return u
}

// findUntried says which tables the undo touches now that it did not touch when it was tried: nobody has looked at what others did to them.
func (d *declared) findUntried(start, end survey) (problems []string) {
	watched := d.watched()
	for name := range namesOf([]map[uint32]bool{start.touchedUntil(end)}, start, end) {
		if _, known := watched[name]; !known && !strings.HasPrefix(name, "unwind.") && !strings.HasPrefix(name, "unwind_") {
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

// findStrayed compares what the step changed with how it left that; nil if nothing differs.
func (c *connection) findStrayed(d *declared) (*driftError, error) {
	is, err := c.describe()
	if err != nil {
		return nil, err
	}
	var shown []string
	var parts [][]byte
	for _, line := range missingLines(strings.Join(d.Comes, "\n"), is) {
		if line != "" {
			shown = append(shown, "- "+line)
		}
	}
	for _, line := range d.Goes {
		if slices.Contains(strings.Split(is, "\n"), line) {
			shown = append(shown, "+ "+line)
		}
	}
	now, err := c.readContents(d.watched())
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
		shown = append(shown, fmt.Sprintf("%s: as the step left it %s, now %s", x.Name, sayContent(x.Left), sayOther(x.Left, now[x.Name])))
		newer, err := c.showNewer(x.Name, d.Transaction)
		if err != nil {
			return nil, err
		}
		shown = append(shown, newer...)
	}
	if shown == nil {
		return nil, nil //nolint:nilnil // documented
	}
	drift := newDrift("others have changed what the step changed; its undo would run on that\n"+strings.Join(shown, "\n"), append(parts, []byte(strings.Join(shown, "\n")))...)
	return &drift, nil
}

// showNewer lists rows that others have written since the step: those of later transactions.
func (c *connection) showNewer(name, transaction string) (shown []string, err error) {
	r, err := c.findTable(name)
	if err != nil || r == nil {
		return nil, err
	}
	rows, err := collect(c, pgx.RowTo[string], fmt.Sprintf("SELECT to_jsonb(q.*)::text FROM ONLY %s q WHERE age(q.xmin) < age($1::text::xid) ORDER BY 1 LIMIT %d", name, shownRows), transaction)
	for _, row := range rows {
		shown = append(shown, strings.TrimSuffix(c.showRow(&r.table, images{nil, &row}), "\n"))
	}
	return shown, err
}

// runDeclared runs the statements of a declared undo. Earlier steps know their rows by version: rows that are again as such a step left them are
// passed on to it.
func (c *connection) runDeclared(n int64, d *declared) error {
	all, err := d.list()
	if err != nil {
		return err
	}
	before, err := c.countOwn()
	if err != nil {
		return err
	}
	_, _, err = c.runAll(all)
	if err == nil {
		err = c.putCheckpointBack(d)
	}
	if err != nil {
		if e, ok := errors.AsType[*activities.Error](err); ok && e.Type != activities.DamagedRecord {
			return newDrift("the undo that the step declares fails beside what others have done since: " + e.Message)
		}
		return err
	}
	after, err := c.countOwn()
	if err == nil && after != before {
		err = newDrift("the undo that the step declares changes the journal of Unwind now; nothing was touched")
	}
	if err != nil {
		return err
	}
	for _, x := range d.Contents {
		r, err := c.findTable(x.Name)
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		if err := c.run(fmt.Sprintf(`UPDATE unwind.change c SET version = q.xmin FROM unwind.record r, jsonb_array_elements(r.tables::jsonb) t, %s q
			WHERE r.state IN ('applied', 'undoing') AND r.n <> $1 AND quote_ident(t->>'schema') || '.' || quote_ident(t->>'name') = $2
			AND c.record = r.n AND c.relid = (t->>'oid')::oid AND c.new = (q.*)::text`, x.Name), n, x.Name); err != nil {
			return err
		}
	}
	return nil
}

// countOwn counts the rows of the journal that the transaction has changed.
func (c *connection) countOwn() (n int64, err error) {
	return n, c.scan("SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM pg_stat_xact_all_tables WHERE schemaname = 'unwind'", nil, &n)
}
