package found

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Facts are what was found out about a thing, by name: "mode" is "0640".
type Facts map[string]string

// Snapshot is everything that was found in one world, by name.
type Snapshot map[string]Facts

// Change is a difference between two snapshots of a thing.
type Change struct {
	// Sign is + for a new thing, - for a missing one, ~ for a changed one.
	Sign  string
	Thing string
	// Facts are the names of those that differ, sorted; Was and Is hold them all.
	Facts   []string
	Was, Is Facts
}

func (c Change) String() string {
	if c.Sign != "~" {
		return c.Sign + " " + c.Thing
	}
	var all []string
	for _, name := range c.Facts {
		all = append(all, fmt.Sprintf("%s %s -> %s", name, orNone(c.Was[name]), orNone(c.Is[name])))
	}
	return "~ " + c.Thing + ": " + strings.Join(all, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Changes lists what differs in now, by name.
func (s Snapshot) Changes(now Snapshot) []Change {
	all := maps.Clone(s)
	if all == nil {
		all = Snapshot{}
	}
	maps.Copy(all, now)
	var changes []Change
	for _, thing := range slices.Sorted(maps.Keys(all)) {
		was, had := s[thing]
		is, has := now[thing]
		switch {
		case !had:
			changes = append(changes, Change{Sign: "+", Thing: thing, Is: is})
		case !has:
			changes = append(changes, Change{Sign: "-", Thing: thing, Was: was})
		default:
			if names := was.differ(is); len(names) > 0 {
				changes = append(changes, Change{Sign: "~", Thing: thing, Facts: names, Was: was, Is: is})
			}
		}
	}
	return changes
}

func (f Facts) differ(is Facts) []string {
	all := maps.Clone(f)
	maps.Copy(all, is)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if f[name] != is[name] {
			names = append(names, name)
		}
	}
	return names
}
