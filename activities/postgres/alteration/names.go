package alteration

import (
	"fmt"
	"slices"

	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// name is the name of a thing, by which alterations know it that renamed it.
type name struct {
	Key  string `json:"key"`  // of the trait, with the id of the thing
	Drop string `json:"drop"` // of the trait, with the name
}

func listNames(all []schema.Trait) (names []name) {
	for _, t := range all {
		if t.IsName() {
			names = append(names, name{t.Key, t.Drop})
		}
	}
	return names
}

// noteNames notes the names of what a statement has dropped.
func (t *trial) noteNames(a *Alteration) error {
	var err error
	if t.after == nil {
		t.after, err = t.traitsNow()
	}
	remains := schema.ByKey(t.after)
	for _, n := range listNames(t.traits) {
		if _, there := remains[n.Key]; !there {
			a.Names = append(a.Names, n)
		}
	}
	return err
}

// keepNames takes an alteration back. What is made anew in that has another id: earlier alterations
// that have renamed it, of this step or of others that can still be undone, are told so. It is drift
// where work of others goes, too.
func keepNames(c *server.Connection, n int64, all []*Alteration, a *Alteration) error {
	if a.Added != nil { // nothing is made anew
		return runUndo(c, n, a)
	}
	was, err := schema.Traits(c)
	if err != nil {
		return err
	}
	if err := runUndo(c, n, a); err != nil {
		return err
	}
	is, err := schema.Traits(c)
	if err != nil {
		return err
	}
	remains, now := schema.ByKey(is), map[string]string{}
	for _, n := range listNames(is) {
		now[n.Drop] = n.Key
	}
	for _, old := range append(listNames(was), a.Names...) {
		_, same := remains[old.Key]
		key, there := now[old.Drop]
		if same || !there {
			continue
		}
		for _, each := range all {
			for i := range each.Left {
				if each.Left[i].Key == old.Key {
					each.Left[i].Key = key
				}
			}
		}
		if err := c.Run(`UPDATE unwind.record SET alterations = replace(alterations, format('"key":"%s"', $2::text),
			format('"key":"%s"', $3::text))
			WHERE state IN ('applied', 'undoing') AND n < $1
			AND alterations LIKE '%"key":"' || $2 || '"%'`, n, old.Key, key); err != nil {
			return err
		}
	}
	return a.checkTaken(was, is)
}

// checkTaken is drift where an alteration's undo has taken away, or changed, a trait that the
// statement has not: what others did to something that goes with it, or is made anew.
func (a *Alteration) checkTaken(was, is []schema.Trait) error {
	d := schema.Compare(was, is)
	if a.Declared != nil || d.Renamed() != nil { // the one looks itself, and the other gives everything another key
		return nil
	}
	for _, taken := range slices.Concat(d.Gone, d.Were) {
		if !slices.ContainsFunc(a.Left, func(l left) bool { return l.Key == taken.Key }) {
			return drift.New(fmt.Sprintf("taking back what the step did (%s) would take along what others did since: %s", a.Does,
				taken.What))
		}
	}
	return nil
}
