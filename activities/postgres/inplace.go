package postgres

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// left is a trait that a statement changed, as it left it.
type left struct {
	Key  string  `json:"key"`
	What string  `json:"what"`
	Make *string `json:"make"` // nil: it is not there
	// Sealed says that the step left it so at its end: no later statement has changed it or a name in it.
	Sealed bool `json:"sealed,omitempty"`
}

// noteTraits says which traits a statement has changed, and keeps how it left them. isNew are the ids of things that it made.
func (t *trial) noteTraits(a *alteration, isNew map[uint32]bool) error {
	is, err := t.connection.traits()
	if err != nil {
		return err
	}
	d := compareTraits(t.traits, is)
	var parts []string
	if a.Does != "" {
		parts = append(parts, a.Does)
	}
	if err := t.checkChanges(d, isNew); err != nil {
		return err
	}
	renamed := d.renamed()
	for _, i := range renamed {
		parts = append(parts, fmt.Sprintf("renames %s to %s", d.were[i].What, d.are[i].Make))
		a.Left = append(a.Left, left{Key: d.were[i].Key, What: d.were[i].What, Make: &d.are[i].Make})
	}
	if renamed == nil { // or else everything has another key
		parts = t.listChanges(a, d, is, parts, isNew)
	}
	a.Does = strings.Join(parts, "; ")
	return nil
}

// listChanges says what a statement that renames nothing has changed.
func (t *trial) listChanges(a *alteration, d difference, is []trait, parts []string, isNew map[uint32]bool) []string {
	remains := map[uint32]bool{}
	for _, n := range is {
		remains[n.Of] = true
	}
	say := func(verb, what string) {
		if len(parts) > 0 && strings.HasPrefix(parts[len(parts)-1], verb) {
			parts[len(parts)-1] += ", " + what
		} else {
			parts = append(parts, verb+" "+what)
		}
	}
	for _, was := range d.gone {
		a.Left = append(a.Left, left{Key: was.Key, What: was.What})
		if was.replaces() || remains[was.Of] {
			say("drops", was.What)
		}
	}
	for i, was := range d.were {
		a.Left = append(a.Left, left{Key: was.Key, What: was.What, Make: &d.are[i].Make})
		say("changes", was.What)
	}
	for _, now := range d.came {
		a.Left = append(a.Left, left{Key: now.Key, What: now.What, Make: &now.Make})
		if !isNew[now.Of] && !slices.Contains(saidAsObjects, now.Rank) {
			say("sets", now.What)
		}
	}
	return parts
}

// checkChanges refuses changes of tables that the worker may not change, and what rows would have to fit that the step has changed: an
// undo puts those back first.
func (t *trial) checkChanges(d difference, isNew map[uint32]bool) error {
	tight := map[uint32]bool{}
	var ids []uint32
	for _, each := range slices.Concat(d.gone, d.came, d.are) {
		if !isNew[each.Of] {
			ids = append(ids, each.Of)
		}
	}
	for _, each := range slices.Concat(d.came, d.are) {
		tight[each.Of] = tight[each.Of] || each.tightens()
	}
	tables, err := t.describeTables(ids)
	if err != nil {
		return err
	}
	for _, r := range tables {
		switch {
		case r.Kind != "r" && r.Kind != "p" || t.did.isMade(r.OID):
		case len(t.Allow) > 0 && !matchesAny(t.Allow, r.name()):
			return refused("%s: this worker's config allows changes of %s in database %s", r.name(), strings.Join(t.Allow, ", "), t.name)
		case tight[r.OID]:
			if err := t.checkUntouched(r.OID, r.name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// saidAsObjects are the ranks of what is said to be made already.
var saidAsObjects = []int{ofRoutines, ofKeys, ofViews, ofChecks, ofForeign, ofIndexes}

// takeBackTraits gives all traits back that the schema had, first the names. It adds the statements to the inverse.
func (t *trial) takeBackTraits(a *alteration) error {
	back := func(sql string) error {
		if sql == "" {
			return nil
		}
		a.Undo = append(a.Undo, sql)
		return t.tryBack(sql)
	}
	const rounds = 4 // what has to be made anew loses its comments and privileges, which the next round sees
	for range rounds {
		is, err := t.connection.traits()
		if err != nil {
			return err
		}
		d := compareTraits(t.traits, is)
		if renamed := d.renamed(); renamed != nil {
			for _, i := range renamed {
				if err := back(d.are[i].Drop + d.were[i].Make); err != nil {
					return err
				}
			}
			continue
		}
		if d.empty() {
			return nil
		}
		if err := t.takeBackChanges(d, is, back); err != nil {
			return err
		}
	}
	return nil
}

// takeBackChanges drops what came, and makes again what went or is another now. is are the traits as they are.
func (t *trial) takeBackChanges(d difference, is []trait, back func(sql string) error) error {
	for _, now := range slices.Backward(d.came) {
		if err := back(now.Drop); err != nil {
			return err
		}
	}
	again := d.gone
	for i, was := range slices.Backward(d.were) {
		able := false
		if was.replaces() {
			var err error
			if able, err = t.isPossible(was.Make); err != nil {
				return err
			}
		}
		if !able && was.Rank != ofPrivileges { // without privileges, nothing could be made
			if err := back(d.are[i].Drop); err != nil {
				return err
			}
		}
		if able || !was.replaces() {
			again = append(again, was)
		}
	}
	slices.SortStableFunc(again, func(x, y trait) int { return x.Rank - y.Rank })
	now := byKey(is)
	for _, was := range again {
		if was.Rank == ofPrivileges {
			if err := back(now[was.Key].Drop); err != nil {
				return err
			}
		}
		if err := back(was.Make); err != nil {
			return err
		}
	}
	return nil
}

// isPossible reports whether a statement can run.
func (t *trial) isPossible(sql string) (bool, error) {
	if err := t.run("SAVEPOINT possible"); err != nil {
		return false, err
	}
	failed := t.run(sql)
	return failed == nil, t.run("ROLLBACK TO possible; RELEASE possible")
}

// sealLeft notes which traits are at the end of a step as a statement of it left them.
func (c *connection) sealLeft(all []*alteration) error {
	now, err := c.currentTraits(all)
	for _, a := range all {
		for i, l := range a.Left {
			a.Left[i].Sealed = l.holds(now)
		}
	}
	return err
}

// currentTraits are the traits by their keys; none where nothing was left.
func (c *connection) currentTraits(all []*alteration) (map[string]trait, error) {
	if !slices.ContainsFunc(all, func(a *alteration) bool { return a.Left != nil }) {
		return nil, nil
	}
	is, err := c.traits()
	return byKey(is), err
}

func (l left) holds(now map[string]trait) bool {
	is, there := now[l.Key]
	return there == (l.Make != nil) && (!there || is.Make == *l.Make)
}

// findChanged returns which trait others have changed since statements left it; empty if none. With sealed, it looks at those that the
// step left so at its end.
func (c *connection) findChanged(all []*alteration, sealed bool) (problem string, err error) {
	now, err := c.currentTraits(all)
	if err != nil {
		return "", err
	}
	for _, a := range all {
		for _, l := range a.Left {
			if (l.Sealed || !sealed) && !l.holds(now) {
				return l.What + " is not as the step left it", nil
			}
		}
	}
	return "", nil
}

// mendCapture makes the triggers anew that name columns by names which the transaction has changed.
func (c *connection) mendCapture() error {
	ids, err := collect(c, pgx.RowTo[uint32], "SELECT tgrelid FROM pg_trigger WHERE tgname = $1 AND EXISTS (SELECT FROM pg_attribute x WHERE attrelid = tgrelid AND "+ours+")", triggerName)
	if err != nil || ids == nil {
		return err
	}
	all, err := c.describeTables(ids)
	if err != nil {
		return err
	}
	return c.prepareTables(slices.DeleteFunc(all, func(r *relation) bool { return r.Captured || len(r.Key) == 0 }))
}

// staleCapture is the error uncaptured if a statement failed in a trigger of ours that names a column by a name which it had before.
func staleCapture(err error) error {
	said, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || said.Code != undefinedColumn {
		return err
	}
	found := captureFunction.FindStringSubmatch(said.Where)
	if found == nil {
		return err
	}
	oid, _ := strconv.ParseUint(found[1], 10, 32) // digits
	return uncaptured{[]uint32{uint32(oid)}}
}

const undefinedColumn = "42703"

var captureFunction = regexp.MustCompile(`PL/pgSQL function unwind\.capture_([0-9]+)\(\)`)
