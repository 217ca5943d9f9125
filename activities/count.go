package activities

import (
	"fmt"
	"strings"
)

// CountOf says how many there are of something: "1 row", "2 rows", "3 entries".
func CountOf[N int | int64](n N, what string) string {
	if stem, ok := strings.CutSuffix(what, "y"); ok && n != 1 && !strings.HasSuffix(what, "key") {
		what = stem + "ie"
	}
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ss"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Count is how many items of a set come, go and change: the rows of a table, the keys of a
// database.
type Count struct {
	Of      string `json:"of"`
	Added   int64  `json:"added"`
	Removed int64  `json:"removed"`
	Changed int64  `json:"changed"`
	// Before is how many there were, or about so many; 0 where that is not known.
	Before int64 `json:"before,omitempty"`
}

// Describe says what becomes of the items, which are all of one kind: "2 rows added, 1 changed".
func (c Count) Describe(item string) string {
	var parts []string
	for _, p := range []struct {
		n    int64
		verb string
	}{{c.Added, "added"}, {c.Removed, "removed"}, {c.Changed, "changed"}} {
		switch {
		case p.n == 0:
		case parts == nil:
			parts = append(parts, CountOf(p.n, item)+" "+p.verb)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.verb))
		}
	}
	if parts == nil {
		return "no " + item + " changes"
	}
	return strings.Join(parts, ", ")
}
