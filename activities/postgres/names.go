package postgres

// name is the name of a thing, by which alterations know it that renamed it.
type name struct {
	Key  string `json:"key"`  // of the trait, with the id of the thing
	Drop string `json:"drop"` // of the trait, with the name
}

func listNames(all []trait) (names []name) {
	for _, t := range all {
		if t.Rank == ofNames {
			names = append(names, name{t.Key, t.Drop})
		}
	}
	return names
}

// noteNames notes the names of what a statement has dropped.
func (t *trial) noteNames(a *alteration) error {
	is, err := t.connection.traits()
	remains := byKey(is)
	for _, n := range listNames(t.traits) {
		if _, there := remains[n.Key]; !there {
			a.Names = append(a.Names, n)
		}
	}
	return err
}

// keepNames takes an alteration back. What is made anew in that has another id: earlier alterations that have renamed it, of this step or of
// others that can still be undone, are told so.
func (c *connection) keepNames(n int64, all []*alteration, a *alteration) error {
	was, err := c.traits()
	if err != nil {
		return err
	}
	if err := c.runUndo(n, a); err != nil {
		return err
	}
	is, err := c.traits()
	if err != nil {
		return err
	}
	remains, now := byKey(is), map[string]string{}
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
		if err := c.run(`UPDATE unwind.record SET alterations = replace(alterations, format('"key":"%s"', $2::text), format('"key":"%s"', $3::text))
			WHERE state IN ('applied', 'undoing') AND n < $1 AND alterations LIKE '%"key":"' || $2 || '"%'`, n, old.Key, key); err != nil {
			return err
		}
	}
	return nil
}
