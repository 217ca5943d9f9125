package schema

import (
	"cmp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Survey is what a transaction sees of the database, and what it has done so far.
type Survey struct {
	Schema  string // its description
	nodes   map[uint32]FileNode
	tallies map[uint32]tally
	columns map[uint32]string // of relations whose columns it has written: where it has
}

// tally is how many rows of a table a transaction has inserted, deleted and updated.
type tally struct {
	ID                  uint32
	Name                string // quoted
	Came, Went, Changed int64
	Catalog             bool // described by the schema, or following from what is
}

// TakeSurvey looks at the database.
func TakeSurvey(c *server.Connection) (s Survey, err error) {
	if s.Schema, err = Describe(c); err != nil {
		return s, err
	}
	if s.nodes, err = FileNodes(c); err != nil {
		return s, err
	}
	all, err := server.Collect(c, pgx.RowToStructByPos[tally],
		`SELECT relid, quote_ident(schemaname) || '.' || quote_ident(relname), n_tup_ins, n_tup_del, n_tup_upd,
			schemaname = 'pg_catalog' AND relname = ANY($1::text[])
		FROM pg_stat_xact_all_tables WHERE n_tup_ins + n_tup_upd + n_tup_del > 0
		AND schemaname !~ '^pg_toast'`, describedNames())
	s.tallies, s.columns = map[uint32]tally{}, map[uint32]string{}
	for _, t := range all {
		s.tallies[t.ID] = t
	}
	if err != nil {
		return s, err
	}
	rows, err := c.Query(c.Ctx,
		"SELECT attrelid, string_agg(ctid::text, '' ORDER BY ctid) FROM pg_attribute x WHERE attrelid >= 16384 AND "+
			"attnum > 0 AND "+Ours+" GROUP BY attrelid")
	if err != nil {
		return s, c.Explain(err)
	}
	var id uint32
	var places string
	_, err = pgx.ForEachRow(rows, []any{&id, &places}, func() error {
		s.columns[id] = places
		return nil
	})
	return s, c.Explain(err)
}

// IDs are the ids of the relations with rows of their own, by name.
func (s Survey) IDs() map[string]uint32 {
	ids := make(map[string]uint32, len(s.nodes))
	for id, node := range s.nodes {
		ids[node.Name] = id
	}
	return ids
}

// TouchedUntil are the ids of relations with rows of their own that were changed, made or dropped
// between two surveys of a transaction; true for those that are not what they were, and not only in
// rows.
func (s Survey) TouchedUntil(end Survey) map[uint32]bool {
	all := map[uint32]bool{}
	for id, t := range end.tallies {
		if was := s.tallies[id]; !t.Catalog && (t.Came != was.Came || t.Went != was.Went || t.Changed != was.Changed) {
			all[id] = false
		}
	}
	for id, node := range end.nodes {
		if was, there := s.nodes[id]; node.Ours && (!there || was.Node != node.Node || was.Name != node.Name) ||
			end.columns[id] != s.columns[id] {
			all[id] = true
		}
	}
	for id := range s.nodes {
		if _, there := end.nodes[id]; !there {
			all[id] = true
		}
	}
	return all
}

// DescribedUntil are the ids of the catalogs that the schema's description covers and that were
// changed between two surveys.
func (s Survey) DescribedUntil(end Survey) (ids []uint32) {
	for id, t := range end.tallies {
		if t.Catalog && t != s.tallies[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// CountsUntil are the rows that changed between two surveys, but for those of catalogs.
func (s Survey) CountsUntil(end Survey) (all []activities.Count) {
	for id, t := range end.tallies {
		was := s.tallies[id]
		n := activities.Count{Of: strings.ReplaceAll(t.Name, `"`, ""), Added: t.Came - was.Came, Removed: t.Went - was.Went,
			Changed: t.Changed - was.Changed}
		if id >= server.FirstNormalObject && n.Added+n.Removed+n.Changed > 0 {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b activities.Count) int { return cmp.Compare(a.Of, b.Of) })
	return all
}

// NamesOf are all names that relations had in surveys.
func NamesOf(touched []map[uint32]bool, surveys ...Survey) map[string]bool {
	names := map[string]bool{}
	for _, all := range touched {
		for id, exclusive := range all {
			for _, s := range surveys {
				if node, there := s.nodes[id]; there {
					names[node.Name] = names[node.Name] || exclusive
				} else if t, there := s.tallies[id]; there {
					names[t.Name] = names[t.Name] || exclusive
				}
			}
		}
	}
	return names
}
