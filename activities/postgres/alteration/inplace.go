package alteration

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/capture"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// left is a trait that a statement changed, as it left it.
type left struct {
	Key  string  `json:"key"`
	What string  `json:"what"`
	Make *string `json:"make"` // nil: it is not there
	// Sealed says that the step left it so at its end: no later statement has changed it or a name in
	// it.
	Sealed bool `json:"sealed,omitempty"`
}

// noteTraits says which traits a statement has changed, and keeps how it left them. isNew are the
// ids of things that it made.
func (t *trial) noteTraits(a *Alteration, isNew map[uint32]bool) error {
	is, err := t.traitsNow()
	if err != nil {
		return err
	}
	t.after = is
	d := schema.Compare(t.traits, is)
	var parts []string
	if a.Does != "" {
		parts = append(parts, a.Does)
	}
	if err := t.checkChanges(d, isNew); err != nil {
		return err
	}
	renamed := d.Renamed()
	a.alters = renamed != nil || len(d.Were) > 0
	for _, i := range renamed {
		parts = append(parts, fmt.Sprintf("renames %s to %s", d.Were[i].What, d.Are[i].Make))
		a.Left = append(a.Left, left{Key: d.Were[i].Key, What: d.Were[i].What, Make: &d.Are[i].Make})
	}
	if renamed == nil { // or else everything has another key
		parts = t.listChanges(a, d, is, parts, isNew)
	}
	a.Does = strings.Join(parts, "; ")
	return nil
}

// listChanges says what a statement that renames nothing has changed.
func (t *trial) listChanges(a *Alteration, d schema.Difference, is []schema.Trait, parts []string,
	isNew map[uint32]bool) []string {
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
	for _, was := range d.Gone {
		a.Left = append(a.Left, left{Key: was.Key, What: was.What})
		if was.Replaces() || remains[was.Of] {
			say("drops", was.What)
			a.alters = true
		}
	}
	for i, was := range d.Were {
		a.Left = append(a.Left, left{Key: was.Key, What: was.What, Make: &d.Are[i].Make})
		say("changes", was.What)
	}
	for _, now := range d.Came {
		a.Left = append(a.Left, left{Key: now.Key, What: now.What, Make: &now.Make})
		if !isNew[now.Of] && !now.IsThing() {
			say("sets", now.What)
			a.alters = a.alters || !t.did.IsMade(now.Of) && !a.hasMade(now.What)
		}
	}
	return parts
}

// checkChanges refuses changes of tables that the worker may not change, and what rows would have
// to fit that the step has changed: an undo puts those back first.
func (t *trial) checkChanges(d schema.Difference, isNew map[uint32]bool) error {
	tight := map[uint32]bool{}
	var ids []uint32
	for _, each := range slices.Concat(d.Gone, d.Came, d.Are) {
		if !isNew[each.Of] {
			ids = append(ids, each.Of)
		}
	}
	for _, each := range slices.Concat(d.Came, d.Are) {
		tight[each.Of] = tight[each.Of] || each.Tightens()
	}
	tables, err := capture.Describe(t.Connection, ids)
	if err != nil {
		return err
	}
	for _, r := range tables {
		switch {
		case r.Kind != "r" && r.Kind != "p" || t.did.IsMade(r.OID):
		case !t.Allows(r.FullName()):
			return activities.Errorf(activities.Refused, "%s: this worker's config allows changes of %s in database %s",
				r.FullName(), strings.Join(t.Allow, ", "), t.Name)
		case tight[r.OID]:
			if err := t.checkUntouched(r.OID, r.FullName()); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeBackTraits gives all traits back that the schema had, first the names. It adds the statements
// to the inverse.
func (t *trial) takeBackTraits(a *Alteration) error {
	back := func(sql string) error {
		if sql == "" {
			return nil
		}
		a.Undo = append(a.Undo, sql)
		return t.tryBack(sql)
	}
	const rounds = 4 // what has to be made anew loses its comments and privileges, which the next round sees
	for range rounds {
		is, err := t.traitsNow()
		if err != nil {
			return err
		}
		d := schema.Compare(t.traits, is)
		if renamed := d.Renamed(); renamed != nil {
			for _, i := range renamed {
				if err := back(d.Are[i].Drop + d.Were[i].Make); err != nil {
					return err
				}
			}
			continue
		}
		if d.IsEmpty() {
			return nil
		}
		if err := t.takeBackChanges(d, is, back); err != nil {
			return err
		}
	}
	return nil
}

// takeBackChanges drops what came, and makes again what went or is another now. is are the traits
// as they are.
func (t *trial) takeBackChanges(d schema.Difference, is []schema.Trait, back func(sql string) error) error {
	for _, now := range slices.Backward(d.Came) {
		if err := back(now.Drop); err != nil {
			return err
		}
	}
	again := d.Gone
	for i, was := range slices.Backward(d.Were) {
		able := false
		if was.Replaces() {
			var err error
			if able, err = t.isPossible(was.Make); err != nil {
				return err
			}
		}
		if !able && !was.IsPrivileges() { // without privileges, nothing could be made
			if err := back(d.Are[i].Drop); err != nil {
				return err
			}
		}
		if able || !was.Replaces() {
			again = append(again, was)
		}
	}
	slices.SortStableFunc(again, func(x, y schema.Trait) int { return x.Rank - y.Rank })
	now := schema.ByKey(is)
	for _, was := range again {
		if was.IsPrivileges() {
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
	if err := t.Run("SAVEPOINT possible"); err != nil {
		return false, err
	}
	failed := t.Run(sql)
	return failed == nil, t.Run("ROLLBACK TO possible; RELEASE possible")
}

// sealLeft notes which traits are at the end of a step as a statement of it left them.
func sealLeft(c *server.Connection, all []*Alteration) error {
	if len(all) == 1 { // there was no later one
		for i := range all[0].Left {
			all[0].Left[i].Sealed = true
		}
		return nil
	}
	now, err := currentTraits(c, all)
	for _, a := range all {
		for i, l := range a.Left {
			a.Left[i].Sealed = l.holds(now)
		}
	}
	return err
}

// currentTraits are the traits by their keys; none where nothing was left.
func currentTraits(c *server.Connection, all []*Alteration) (map[string]schema.Trait, error) {
	if !slices.ContainsFunc(all, func(a *Alteration) bool { return a.Left != nil }) {
		return nil, nil
	}
	is, err := schema.Traits(c)
	return schema.ByKey(is), err
}

// stayAdded reports whether all that alterations have left are traits of things that they have
// added, and these are as they were left.
func stayAdded(c *server.Connection, all []*Alteration) (bool, error) {
	ids := []uint32{}
	for _, a := range all {
		if a.Left != nil && a.Added == nil {
			return false, nil
		}
		ids = append(ids, a.Added...)
	}
	if len(ids) == 0 {
		return true, nil
	}
	is, err := schema.TraitsOf(c, ids)
	if err != nil {
		return false, err
	}
	now := schema.ByKey(is)
	for _, a := range all {
		if slices.ContainsFunc(a.Left, func(l left) bool { return l.Make == nil || !l.holds(now) }) {
			return false, nil
		}
	}
	return true, nil
}

func isLast(l left) bool { return l.Sealed }

func isAny(left) bool { return true }

func (l left) holds(now map[string]schema.Trait) bool {
	is, there := now[l.Key]
	return there == (l.Make != nil) && (!there || is.Make == *l.Make)
}

// findChanged returns which trait others have changed since statements left it, among those of
// alterations that count; empty if none.
func findChanged(c *server.Connection, all []*Alteration, counts func(left) bool) (problem string, err error) {
	if same, err := stayAdded(c, all); same || err != nil {
		return "", err
	}
	now, err := currentTraits(c, all)
	if err != nil {
		return "", err
	}
	for _, a := range all {
		for _, l := range a.Left {
			if counts(l) && !l.holds(now) {
				return l.What + " is not as the step left it", nil
			}
		}
	}
	return "", nil
}
