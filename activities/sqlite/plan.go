package sqlite

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/sweep"
)

// plan says what a step would do.
func (c *call) plan(ctx context.Context) (change activities.Change, err error) {
	unlock, err := c.LockToken(ctx, c.token)
	if err != nil {
		return change, err
	}
	defer unlock()
	if err := c.token.CheckOpen(); err != nil {
		return change, err
	}
	switch c.Entry.Action {
	case queryName:
		return c.planQuery()
	case keepName:
		return c.planKeep()
	case restoreName:
		return c.planRestore()
	case verifyName, compareName:
		return c.planLook()
	}
	return c.planExec(ctx)
}

// planExec runs the statements in a transaction that it rolls back.
func (c *call) planExec(ctx context.Context) (change activities.Change, err error) {
	p, err := parseExec(c.Step.With)
	if err != nil {
		return change, err
	}
	path, err := c.locateThere(p.Database)
	if err != nil {
		return change, err
	}
	d, err := c.open(path)
	if err != nil {
		return change, err
	}
	defer d.Close()
	e, end, err := c.execute(ctx, d, p, "plan")
	if err != nil {
		return change, err
	}
	defer end()
	c.reach("rehearsed")
	change, err = c.describe(d, p, e)
	if err = errors.Join(err, e.store.Close(), c.removeFiles()); err != nil {
		return change, err
	}
	end()
	c.reach("taken-back")
	return change, nil
}

// count counts the rows of each table that are inserted, deleted and updated.
func (e *effect) count() (map[string]*activities.Count, error) {
	all := map[string]*activities.Count{}
	return all, e.store.each(func(i images) error {
		t := all[i.table]
		if t == nil {
			t = &activities.Count{Of: i.table}
			all[i.table] = t
		}
		switch i.change() {
		case "+":
			t.Added++
		case "-":
			t.Removed++
		default:
			t.Changed++
		}
		return nil
	})
}

func (e *effect) summarize(d *database) (string, error) {
	var parts []string
	if e.why != nil {
		parts = compareContent(e.Before, e.After)
	} else {
		tallies, err := e.count()
		if err != nil {
			return "", err
		}
		for _, name := range slices.Sorted(maps.Keys(tallies)) {
			parts = append(parts, name+": "+tallies[name].Describe("row"))
		}
	}
	if len(parts) == 0 {
		parts = []string{"nothing changes"}
	}
	return d.path + ": " + strings.Join(parts, "; "), nil
}

// shownRows is how many rows a person sees.
const shownRows = 20

// weigh returns what a policy or a person decides by: how the change is undone, and how risky it
// is.
func (c *call) weigh(d *database, p execParams, e *effect) (change activities.Change,
	tallies map[string]*activities.Count, err error) {
	change = activities.Change{
		Strategy: activities.Transaction, Risk: activities.Medium,
		Undo: "the changed rows are put back in one transaction, without the database's triggers",
	}
	for _, s := range p.Statements {
		if found := sweep.FindIn(s.SQL); found != "" {
			change.Risk = activities.High
			change.Facts = append(change.Facts, found+" without WHERE")
		}
	}
	if e.why != nil {
		slices.Sort(e.why)
		change.Strategy = activities.Snapshot
		change.Undo = "the whole file is put back from a checkpoint, unless somebody has changed anything in it since"
		change.Facts = append(change.Facts, strings.Join(slices.Compact(e.why), "; "))
		change.Unchanged = len(compareContent(e.Before, e.After)) == 0
		if e.takes || slices.ContainsFunc(p.Statements, func(s statement) bool { return !sweep.OnlyAdds(s.SQL) }) {
			change.Risk = activities.High
		}
		return change, nil, nil
	}
	if tallies, err = e.count(); err != nil {
		return change, nil, err
	}
	change.Unchanged = len(tallies) == 0
	for _, name := range slices.Sorted(maps.Keys(tallies)) {
		t := tallies[name]
		touched := t.Removed + t.Changed
		if !activities.MostOf(touched, touched) {
			continue
		}
		// No more rows are counted than it takes: the table may be huge.
		left, err := d.number(fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM %s LIMIT %d)", e.tables[lower(name)].target(),
			t.Added+2*touched))
		if err != nil {
			return change, nil, err
		}
		if activities.MostOf(touched, left-t.Added+t.Removed) {
			change.Risk = activities.High
			change.Facts = append(change.Facts, name+": more than half of its rows go or change")
		}
	}
	return change, tallies, nil
}

func (c *call) describe(d *database, p execParams, e *effect) (change activities.Change, err error) {
	change, tallies, err := c.weigh(d, p, e)
	if err != nil {
		return change, err
	}
	change.Keys = []string{keyPrefix + d.path}
	if change.Digest, err = c.digest(d, e); err != nil {
		return change, err
	}
	if change.Summary, err = e.summarize(d); err != nil {
		return change, err
	}
	if fact := e.describeVolatile(); fact != "" {
		change.Facts = append(change.Facts, fact)
	}
	if e.why != nil {
		info, err := os.Stat(d.path)
		if err != nil {
			return change, err
		}
		change.Facts = append(change.Facts, "the whole file is copied first: "+activities.CountOf(info.Size(), "byte"))
		change.Diff = strings.Join(compareContent(e.Before, e.After), "\n")
		return change, nil
	}
	for _, name := range slices.Sorted(maps.Keys(tallies)) {
		t := tallies[name]
		left, err := d.number("SELECT count(*) FROM " + e.tables[lower(name)].target())
		if err != nil {
			return change, err
		}
		t.Before = left - t.Added + t.Removed
		change.Facts = append(change.Facts,
			fmt.Sprintf("%s: %s, of %s", name, t.Describe("row"), activities.CountOf(t.Before, "row")))
		change.Counts = append(change.Counts, *t)
	}
	shown, all := "", int64(0)
	err = e.store.each(func(i images) error {
		if all++; all <= shownRows {
			shown += i.describe(e.tables[lower(i.table)], false) + "\n"
		}
		return nil
	})
	if all > shownRows {
		shown += fmt.Sprintf("... and %s more\n", activities.CountOf(all-shownRows, "row"))
	}
	change.Diff = shown
	return change, err
}

// describe is a line for a person: "~ people id=1 name='Ann' -> 'Anna'".
func (i images) describe(t *table, private bool) string {
	show := func(v any) string { return literal(v, private) }
	var line strings.Builder
	line.WriteString(i.change() + " " + i.table)
	for n, at := range t.key {
		line.WriteString(" " + t.names[at] + "=" + show(i.key[n]))
	}
	for at, name := range t.names {
		if slices.Contains(t.key, at) {
			continue
		}
		switch i.change() {
		case "+":
			line.WriteString(" " + name + "=" + show(i.after[at]))
		case "-":
			line.WriteString(" " + name + "=" + show(i.before[at]))
		default:
			if !equal(i.before[at:at+1], i.after[at:at+1]) {
				line.WriteString(" " + name + "=" + show(i.before[at]) + " -> " + show(i.after[at]))
			}
		}
	}
	return line.String()
}

// maxLiteral is how many bytes of a value are shown.
const maxLiteral = 200

// literal is a value as SQL writes it, or its digest.
func literal(v any, private bool) string {
	if private && v != nil {
		return "<" + activities.DigestOf(encode([]any{v})).Short() + ">"
	}
	switch v := v.(type) {
	case nil:
		return "NULL"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		if len(v) > maxLiteral {
			cut := v[:maxLiteral]
			for !utf8.ValidString(cut) && len(cut) > maxLiteral-utf8.UTFMax {
				cut = cut[:len(cut)-1]
			}
			v = cut + fmt.Sprintf("... (%s)", activities.CountOf(len(v), "byte"))
		}
		return "'" + strings.ReplaceAll(strconv.Quote(v)[1:len(strconv.Quote(v))-1], "'", "''") + "'"
	case []byte:
		if len(v) > maxLiteral/2 {
			return fmt.Sprintf("x'%s...' (%s)", hex.EncodeToString(v[:maxLiteral/2]), activities.CountOf(len(v), "byte"))
		}
		return "x'" + hex.EncodeToString(v) + "'"
	}
	return ""
}
