package alteration

import (
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/schema"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Alteration is what one statement did to the schema, or a TRUNCATE to tables, with all that takes
// it back.
type Alteration struct {
	// Does says it in a line.
	Does string `json:"does"`
	// Undo are the statements that take it back, in order.
	Undo []string `json:"undo,omitempty"`
	// Made are the tables and columns that it made: what others put into them since is drift.
	Made []made `json:"made,omitempty"`
	// Things are all that it made, by the names at the end of the step, and Shape digests of the lines
	// that describe it, and what goes with it: what others added or changed since is drift.
	Things []schema.Thing `json:"things,omitempty"`
	Shape  []string       `json:"shape,omitempty"`
	// Emptied are the tables that it truncated.
	Emptied []emptied `json:"emptied,omitempty"`
	// Held are things that stand in a schema of ours until the record is released: tables with the
	// rows that went, and others.
	Held []held `json:"held,omitempty"`
	// Parts is a digest of which parts those had at the end of the step: a later DROP ... CASCADE may
	// take some away.
	Parts activities.Digest `json:"parts,omitempty"`
	// Left are the traits that it changed, as it left them: another one is drift.
	Left []left `json:"left,omitempty"`
	// Names are those of things that it dropped: an undo that makes them anew gives them other ids.
	Names []name `json:"names,omitempty"`
	// Added are the ids of all that it made, where it has left the rest as it was.
	Added []uint32 `json:"added,omitempty"`
	// Was is the digest of the schema's description before the statement; empty where that has only
	// added things.
	Was activities.Digest `json:"was,omitempty"`

	// Dropped are columns that it dropped.
	Dropped *dropped `json:"dropped,omitempty"`
	// Declared is the undo that the step declares: it takes back all that the step did.
	Declared *Declared `json:"declared,omitempty"`

	// Rows are digests of what is held, where a plan is made or an approval is compared.
	Rows []string `json:"-"`

	things []schema.Object // that it made
	back   []place         // of Dropped: the columns from the first one on
	alters bool            // it has changed a trait of what was there before
}

// OnlyAdds reports whether it leaves everything that was there as it was.
func (a *Alteration) OnlyAdds() bool {
	return !a.alters && a.Emptied == nil && a.Held == nil && a.Names == nil && a.Dropped == nil && a.Declared == nil
}

// heldParts lists the parts of what is held; none where alterations hold nothing.
func heldParts(c *server.Connection, all []*Alteration) ([]string, error) {
	if !slices.ContainsFunc(all, func(a *Alteration) bool { return a.Held != nil }) {
		return nil, nil
	}
	return schema.HeldParts(c)
}

// partsIn is the digest of its own among all parts of what is held.
func (a *Alteration) partsIn(parts []string) activities.Digest {
	var own [][]byte
	for _, part := range parts {
		if slices.ContainsFunc(a.Held, func(h held) bool {
			return strings.HasPrefix(strings.ReplaceAll(h.Name, `"`, ""), strings.Fields(part)[0]+".")
		}) {
			own = append(own, []byte(part))
		}
	}
	if own == nil {
		return ""
	}
	return activities.DigestOf(own...)
}

// EmptiedIDs are the ids of the tables that it truncated.
func (a *Alteration) EmptiedIDs() (ids []uint32) {
	for _, e := range a.Emptied {
		ids = append(ids, e.Table.OID)
	}
	return ids
}

// hasMade reports whether a trait, as people are told it, is one of a column that it made.
func (a *Alteration) hasMade(what string) bool {
	return slices.ContainsFunc(a.Made,
		func(m made) bool { return m.Column != "" && strings.HasSuffix(what, " "+m.Table+"."+m.Column) })
}

// made is a table or a column that a statement made.
type made struct {
	OID    uint32 `json:"oid"`
	Table  string `json:"table"`          // quoted
	Left   string `json:"left,omitempty"` // its name at the end of the step
	Column string `json:"column,omitempty"`
	Type   string `json:"type,omitempty"`
	// Content is a column's value in rows that nobody has changed, as text, or the digest of what the
	// step left in a table.
	Content *string `json:"content"`
}

// held is a thing in a schema of ours.
type held struct {
	Kind string `json:"kind,omitempty"` // empty: a table
	Name string `json:"name"`           // quoted
	Of   string `json:"of"`             // as people know it
	// OID is the id that it keeps when it moves; 0 for a copy.
	OID uint32 `json:"oid,omitempty"`

	schema, table string // the same, not quoted
}

// hasRows reports whether it is a table.
func (h held) hasRows() bool { return h.Kind == "" }

// Fingerprint reads the rows of an alteration that an approval of it covers.
func (a *Alteration) Fingerprint(c *server.Connection) error {
	a.Rows = nil
	if a.Declared != nil {
		a.Rows = a.Declared.fingerprint()
	}
	for _, h := range a.Held {
		if !h.hasRows() {
			continue
		}
		content, err := schema.DigestRows(c, h.Name)
		if err != nil {
			return err
		}
		a.Rows = append(a.Rows, content)
	}
	return nil
}
