package postgres

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
)

// survey is what a transaction sees of the database, and what it has done so far.
type survey struct {
	schema  string
	nodes   map[uint32]fileNode
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

func (c *connection) survey() (s survey, err error) {
	if s.schema, err = c.describe(); err != nil {
		return s, err
	}
	if s.nodes, err = c.fileNodes(); err != nil {
		return s, err
	}
	all, err := collect(c, pgx.RowToStructByPos[tally], `SELECT relid, quote_ident(schemaname) || '.' || quote_ident(relname), n_tup_ins, n_tup_del, n_tup_upd, schemaname = 'pg_catalog' AND relname = ANY($1::text[])
		FROM pg_stat_xact_all_tables WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 AND schemaname !~ '^pg_toast'`, described)
	s.tallies, s.columns = map[uint32]tally{}, map[uint32]string{}
	for _, t := range all {
		s.tallies[t.ID] = t
	}
	if err != nil {
		return s, err
	}
	rows, err := c.Query(c.ctx, "SELECT attrelid, string_agg(ctid::text, '' ORDER BY ctid) FROM pg_attribute x WHERE attrelid >= 16384 AND attnum > 0 AND "+ours+" GROUP BY attrelid")
	if err != nil {
		return s, c.explain(err)
	}
	var id uint32
	var places string
	_, err = pgx.ForEachRow(rows, []any{&id, &places}, func() error {
		s.columns[id] = places
		return nil
	})
	return s, c.explain(err)
}

// touchedUntil are the ids of relations with rows of their own that were changed, made or dropped between two surveys of a transaction; true for
// those that are not what they were, and not only in rows.
func (s survey) touchedUntil(end survey) map[uint32]bool {
	all := map[uint32]bool{}
	for id, t := range end.tallies {
		if was := s.tallies[id]; !t.Catalog && (t.Came != was.Came || t.Went != was.Went || t.Changed != was.Changed) {
			all[id] = false
		}
	}
	for id, node := range end.nodes {
		if was, there := s.nodes[id]; node.ours && (!there || was.node != node.node || was.name != node.name) || end.columns[id] != s.columns[id] {
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

// countsUntil are the rows that changed between two surveys, but for those of catalogs.
func (s survey) countsUntil(end survey) (all []activities.Count) {
	for id, t := range end.tallies {
		was := s.tallies[id]
		n := activities.Count{Of: strings.ReplaceAll(t.Name, `"`, ""), Added: t.Came - was.Came, Removed: t.Went - was.Went, Changed: t.Changed - was.Changed}
		if id >= firstNormalObject && n.Added+n.Removed+n.Changed > 0 {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b activities.Count) int { return cmp.Compare(a.Of, b.Of) })
	return all
}

// namesOf are all names that relations had in surveys.
func namesOf(touched []map[uint32]bool, surveys ...survey) map[string]bool {
	names := map[string]bool{}
	for _, all := range touched {
		for id, exclusive := range all {
			for _, s := range surveys {
				if node, there := s.nodes[id]; there {
					names[node.name] = names[node.name] || exclusive
				} else if t, there := s.tallies[id]; there {
					names[t.Name] = names[t.Name] || exclusive
				}
			}
		}
	}
	return names
}

// lockContents keeps others from changing tables, and from reading those that are not only to be changed in rows.
func (c *connection) lockContents(names map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var isTable bool
		if err := c.scan("SELECT coalesce((SELECT relkind IN ('r', 'p') AND oid >= 16384 FROM pg_class WHERE oid = to_regclass($1)), false)", []any{name}, &isTable); err != nil {
			return err
		}
		mode := map[bool]string{true: "ACCESS EXCLUSIVE", false: "SHARE ROW EXCLUSIVE"}[names[name]]
		if !isTable {
			continue
		}
		if err := c.run(fmt.Sprintf("LOCK TABLE ONLY %s IN %s MODE", name, mode)); err != nil {
			return err
		}
	}
	return nil
}

// readContents reads what is in each of these now; nil where there is no such thing.
func (c *connection) readContents(names map[string]bool) (map[string]*string, error) {
	all := map[string]*string{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var kind *string
		var populated *bool
		if err := c.scan("SELECT (SELECT relkind::text FROM pg_class WHERE oid = to_regclass($1)), (SELECT relispopulated FROM pg_class WHERE oid = to_regclass($1))", []any{name}, &kind, &populated); err != nil {
			return nil, err
		}
		if kind == nil {
			continue
		}
		var digest string
		var err error
		switch {
		case *kind == "S":
			err = c.scan("SELECT format('position %s%s', last_value, CASE WHEN NOT is_called THEN ' unused' END) FROM "+name, nil, &digest)
		case !*populated:
			digest = "not populated"
		default:
			digest, err = c.digestRows(name)
		}
		if err != nil {
			return nil, err
		}
		all[name] = &digest
	}
	return all, nil
}
