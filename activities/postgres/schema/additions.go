package schema

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Catalogs are the catalogs before a statement, by which one that has only added rows to them is
// known.
type Catalogs struct {
	ids    map[uint32]bool // of all things that there are
	writes map[string]writes
	newest *int64 // the age of the newest row that the transaction has written; nil if none
}

// writes are how many rows of a catalog a transaction has written, also in savepoints that it
// rolled back.
type writes struct {
	Name              string
	Inserted, Deleted int64
	All               int64
}

// LookAtCatalogs looks at them.
func LookAtCatalogs(c *server.Connection) (before Catalogs, err error) {
	var ids []uint32
	var all []string
	for _, name := range []string{"class", "type", "proc", "constraint", "namespace", "cast", "statistic_ext", "attrdef",
		"trigger", "rewrite", "policy"} {
		all = append(all, "SELECT oid FROM pg_catalog.pg_"+name)
	}
	// a comment may be on something else, and another one is counted neither as inserted nor as deleted
	all = append(all, fmt.Sprintf("SELECT objoid FROM pg_catalog.pg_description WHERE objoid >= %d",
		server.FirstNormalObject))
	if err := c.Scan("SELECT array_agg(oid) FROM ("+strings.Join(all, " UNION ALL ")+") s", nil, &ids); err != nil {
		return before, err
	}
	before.ids = make(map[uint32]bool, len(ids))
	for _, id := range ids {
		before.ids[id] = true
	}
	if before.writes, err = countWrites(c); err != nil {
		return before, err
	}
	rows, err := listOwn(c, before.writes, nil)
	for _, r := range rows {
		if before.newest == nil || r.Age < *before.newest {
			before.newest = &r.Age
		}
	}
	return before, err
}

func countWrites(c *server.Connection) (map[string]writes, error) {
	all, err := server.Collect(c, pgx.RowToStructByPos[writes],
		`SELECT relname, ins, del, ins + del + upd FROM (SELECT relname::text, pg_stat_get_xact_tuples_inserted(oid) AS ins,
			pg_stat_get_xact_tuples_deleted(oid) AS del, pg_stat_get_xact_tuples_updated(oid) AS upd FROM pg_class
			WHERE oid < $1 AND relkind = 'r') s WHERE ins + del + upd > 0`, server.FirstNormalObject)
	counts := make(map[string]writes, len(all))
	for _, each := range all {
		counts[each.Name] = each
	}
	return counts, err
}

// ownRow is one of a catalog that the transaction has written.
type ownRow struct {
	Catalog string
	Of      uint32 // the thing that it is of
	Age     int64  // of its transaction or savepoint
}

// listOwn lists the rows of described catalogs, among those that the transaction has written to,
// that it has written after the row with this age.
func listOwn(c *server.Connection, written map[string]writes, newest *int64) ([]ownRow, error) {
	var all []string
	for name := range written {
		if column, known := described[name]; known {
			all = append(all,
				fmt.Sprintf(
					"SELECT '%[1]s', x.%[2]s::oid, age(x.xmin)::bigint FROM pg_catalog.%[1]s x WHERE %[3]s AND ($1::bigint IS "+
						"NULL OR age(x.xmin) < $1)", name, column, Ours))
		}
	}
	if all == nil {
		return nil, nil
	}
	return server.Collect(c, pgx.RowToStructByPos[ownRow], strings.Join(all, " UNION ALL "), newest)
}

// Additions are rows that a statement has added to catalogs.
type Additions struct {
	IDs []uint32 // of the things that they are of, which are all new

	before Catalogs
	writes map[string]writes
	rows   map[string]int64 // by catalog
}

// FindAdditions returns what a statement has added; nil unless it has left all that there was as it
// was. The server counts no row as deleted then, and each one as inserted that is there, and they
// are of things that were not there. What is not described is not looked at.
func (before Catalogs) FindAdditions(c *server.Connection) (*Additions, error) {
	a := Additions{IDs: []uint32{}, before: before, rows: map[string]int64{}}
	var err error
	if a.writes, err = countWrites(c); err != nil {
		return nil, err
	}
	own, err := listOwn(c, a.writes, before.newest)
	if err != nil {
		return nil, err
	}
	seen := map[uint32]bool{}
	for _, r := range own {
		if before.ids[r.Of] {
			return nil, nil //nolint:nilnil // documented
		}
		a.rows[r.Catalog]++
		if !seen[r.Of] {
			seen[r.Of] = true
			a.IDs = append(a.IDs, r.Of)
		}
	}
	for name, is := range a.writes {
		was := before.writes[name]
		if _, known := described[name]; is.Deleted != was.Deleted || known && is.Inserted-was.Inserted != a.rows[name] ||
			!known && is.All != was.All {
			return nil, nil //nolint:nilnil // documented
		}
	}
	return &a, nil
}

// AreTakenBack reports whether the catalogs are row by row what they were before the additions,
// which have just been taken back: all of these are gone, and the server counts no more rows as
// deleted.
func (a *Additions) AreTakenBack(c *server.Connection) (bool, error) {
	now, err := countWrites(c)
	if err != nil {
		return false, err
	}
	for name, is := range now {
		_, known := described[name]
		if was := a.writes[name]; is.Deleted-was.Deleted != a.rows[name] || !known && is.All != was.All {
			return false, nil
		}
	}
	left, err := listOwn(c, now, a.before.newest)
	return len(left) == 0, err
}
