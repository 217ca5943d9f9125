package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// volatile are the columns of catalogs that are another one after a change that was taken back
// exactly.
var volatile = map[string]string{
	"pg_class.relfilenode":       "the file, which VACUUM FULL and an index that is made again replace",
	"pg_class.relpages":          "an estimate, from VACUUM and ANALYZE",
	"pg_class.reltuples":         "an estimate, from VACUUM and ANALYZE",
	"pg_class.relallvisible":     "an estimate, from VACUUM",
	"pg_class.relfrozenxid":      "of VACUUM",
	"pg_class.relminmxid":        "of VACUUM",
	"pg_class.relhasindex":       "true for long after the last one has gone",
	"pg_class.relhasrules":       "true for long after the last one has gone",
	"pg_class.relhastriggers":    "true for long after the last one has gone",
	"pg_class.relhassubclass":    "true for long after the last one has gone",
	"pg_class.reltoastrelid":     "set for long after the last column that needs it has gone",
	"pg_class.relnatts":          "counts the columns that were dropped, too",
	"pg_attribute.atthasmissing": "whether the rows have been written since the column came",
	"pg_attribute.attmissingval": "whether the rows have been written since the column came",
	"pg_index.indcheckxmin":      "of the transaction that made it",
	"pg_database.oid":            "that of a database beside, whose name it has now",
	"pg_database.datfrozenxid":   "of VACUUM",
	"pg_database.datminmxid":     "of VACUUM",
}

// estimated are the catalogs that ANALYZE fills.
var estimated = []string{"pg_statistic", "pg_statistic_ext_data"}

// catalogs are the whole rows of all catalogs of a database, also of those that it shares, by name:
// of an object that was made again, with another id or behind columns that were dropped, they are
// the same.
type catalogs struct {
	rows []string
}

// reference is a column that holds ids of another catalog, or numbers of columns of the table of
// another column.
type reference struct{ of, relation string }

// catalogReader reads catalogs.
type catalogReader struct {
	t          testing.TB
	conn       *pgx.Conn
	references map[string]reference // by table and column
	names      map[string]string    // by catalog and id
	tables     map[string]string    // the names of catalogs, by id
	columns    map[string]string    // by the id of the table and their number
}

// readCatalogs reads the catalogs of a database; those that it shares only if shared is true: other
// tests may change them.
func readCatalogs(t testing.TB, dsn string, shared bool) (all catalogs) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ")
	require.NoError(t, err)
	return readCatalogsIn(t, conn, shared)
}

// readCatalogsIn does it in the transaction of a connection.
func readCatalogsIn(t testing.TB, conn *pgx.Conn, shared bool) (all catalogs) {
	t.Helper()
	r := catalogReader{t: t, conn: conn, references: map[string]reference{}, names: map[string]string{},
		columns: map[string]string{}, tables: map[string]string{}}
	r.run("SET LOCAL search_path = pg_catalog")
	r.readReferences()
	tables := collect[string](r,
		"SELECT relname::text FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r' AND NOT "+
			"relname = ANY($1) ORDER BY 1", estimated)
	r.nameThings(tables)
	for _, table := range tables {
		if shared ||
			!collect[bool](r, "SELECT relisshared FROM pg_class WHERE oid = ('pg_catalog.' || $1)::regclass", table)[0] {
			r.read(table, &all)
		}
	}
	slices.Sort(all.rows)
	return all
}

// compare returns how catalogs differ from what they were: nothing where they are equal. A TOAST
// table that came with a column stays when that goes; its options count.
func (all catalogs) compare(was catalogs) []string {
	return slices.DeleteFunc(differ(was.rows, all.rows), func(line string) bool {
		return strings.HasPrefix(line, "+ ") && strings.Contains(line, "pg_toast of ") &&
			!strings.Contains(line, " reloptions=")
	})
}

// withoutOurs leaves out what Unwind makes in a database.
func (all catalogs) withoutOurs() catalogs {
	isOurs := func(row string) bool { return strings.Contains(row, "unwind") }
	all.rows = slices.DeleteFunc(all.rows, isOurs)
	return all
}

// differ compares two sorted lists.
func differ(was, is []string) (lines []string) {
	for len(was)+len(is) > 0 {
		switch {
		case len(is) == 0 || len(was) > 0 && was[0] < is[0]:
			lines, was = append(lines, "- "+was[0]), was[1:]
		case len(was) == 0 || is[0] < was[0]:
			lines, is = append(lines, "+ "+is[0]), is[1:]
		default:
			was, is = was[1:], is[1:]
		}
	}
	return lines
}

func collect[T any](r catalogReader, sql string, args ...any) []T {
	r.t.Helper()
	rows, err := r.conn.Query(r.t.Context(), sql, args...)
	require.NoError(r.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(r.t, err, sql)
	return all
}

func (r catalogReader) run(sql string) {
	r.t.Helper()
	_, err := r.conn.Exec(r.t.Context(), sql)
	require.NoError(r.t, err)
}

// readReferences asks the server which columns hold ids of which catalog.
func (r catalogReader) readReferences() {
	for _, line := range collect[string](r,
		`SELECT concat_ws(' ', fktable, fkcols[1], CASE cardinality(fkcols) WHEN 2 THEN fkcols[2] ELSE '' END, pktable)
			FROM pg_get_catalog_foreign_keys()`) {
		part := strings.Split(line, " ")
		if part[2] == "" {
			r.references[part[0]+"."+part[1]] = reference{of: part[3]}
		} else {
			r.references[part[0]+"."+part[2]] = reference{relation: part[1]}
		}
	}
	r.references["pg_constraint.confdelsetcols"] = reference{relation: "conrelid"}
	r.references["pg_publication_rel.prattrs"] = reference{relation: "prrelid"}
}

// nameThings names all that has an id.
func (r catalogReader) nameThings(tables []string) {
	withIDs := collect[string](r,
		"SELECT attrelid::regclass::text FROM pg_attribute WHERE attname = 'oid' AND attnum > 0 AND "+
			"attrelid::regclass::text = ANY($1)", tables)
	for _, table := range withIDs {
		if table == "pg_enum" {
			continue // nothing has the id of a label
		}
		for _, pair := range collect[string](r,
			`SELECT x.oid || ' ' || coalesce(i.type || ' ' || i.identity, '') FROM pg_catalog.`+table+
				` x, pg_identify_object(x.tableoid, x.oid, 0) i WHERE x.oid >= 16384`) {
			id, name, _ := strings.Cut(pair, " ")
			r.names[table+" "+id] = name
		}
	}
	for key, name := range r.names {
		name = ofToast.ReplaceAllStringFunc(name, func(found string) string {
			return "pg_toast of " + r.names["pg_class "+ofToast.FindStringSubmatch(found)[1]]
		})
		r.names[key] = ofInternal.ReplaceAllString(name, "$1")
	}
	for _, table := range collect[string](r,
		"SELECT concat_ws(' ', oid, relname) FROM pg_class WHERE relname = ANY($1) AND oid < 16384", tables) {
		id, name, _ := strings.Cut(table, " ")
		r.tables[id] = name
	}
	for _, column := range collect[string](r,
		"SELECT concat_ws(' ', attrelid, attnum, attname) FROM pg_attribute WHERE attnum > 0 AND attrelid >= 16384") {
		part := strings.SplitN(column, " ", 3)
		r.columns[part[0]+" "+part[1]] = part[2]
	}
}

var (
	ofToast    = regexp.MustCompile(`pg_toast_(\d+)`)
	ofInternal = regexp.MustCompile(`(\w+_ConstraintTrigger(?:_[ac])?)_\d+`)
	ofNumber   = regexp.MustCompile(`\b\d{5,}\b`)
)

// byDefault are the arguments of acldefault in catalogs with privileges: those that are by default
// are the same whether they were granted or not.
var byDefault = map[string]string{
	"pg_class": `CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner`, "pg_attribute": "'c', 10",
	"pg_proc": "'f', proowner", "pg_type": "'T', typowner", "pg_namespace": "'n', nspowner",
	"pg_language": "'l', lanowner", "pg_foreign_data_wrapper": "'F', fdwowner", "pg_foreign_server": "'S', srvowner",
	"pg_database": "'d', datdba", "pg_tablespace": "'t', spcowner",
	"pg_largeobject_metadata": "'L', lomowner", "pg_parameter_acl": "'p', 10",
}

// sortPrivileges writes privileges in an order of their own: in which they were granted says
// nothing.
func sortPrivileges(granted any) string {
	all, _ := granted.([]any)
	lines := make([]string, len(all))
	for i, each := range all {
		lines[i] = fmt.Sprint(each)
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

// column is a column of a catalog.
type column struct{ Name, Type string }

// read reads a catalog: what is the server's own as one digest, and each row that has the id of
// something else.
func (r catalogReader) read(table string, all *catalogs) {
	rows, err := r.conn.Query(r.t.Context(),
		"SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = ('pg_catalog.' || "+
			"$1)::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum", table)
	require.NoError(r.t, err)
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	require.NoError(r.t, err)
	types, conditions, stable := map[string]string{}, []string{"false"}, []string(nil)
	for _, c := range columns {
		types[c.Name] = c.Type
		switch c.Type {
		case "oid", "regproc":
			conditions = append(conditions, fmt.Sprintf("%s::oid >= 16384", c.Name))
		case "oid[]", "oidvector":
			conditions = append(conditions, fmt.Sprintf("16384 <= ANY(%s::oid[])", c.Name))
		}
		if volatile[table+"."+c.Name] == "" {
			stable = append(stable, "x."+c.Name)
		}
	}
	where := map[string]string{
		"pg_attribute": "NOT attisdropped",
		"pg_shdepend":  "dbid IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))",
		"pg_database":  "NOT starts_with(datname, 'unwind_kept_')",
	}[table]
	if where == "" {
		where = "true"
	}
	own := strings.Join(conditions, " OR ")
	all.rows = append(all.rows,
		collect[string](r,
			fmt.Sprintf(
				"SELECT format('%s: of the server %%s rows %%s', count(*), sum(hashtextextended(ROW(%s)::text, 0))) FROM "+
					"pg_catalog.%[1]s x WHERE NOT (%[3]s) AND %[4]s",
				table, strings.Join(stable, ", "), own, where))...)
	privileges := "NULL"
	if by := byDefault[table]; by != "" {
		privileges = "acldefault(" + by + ")"
	}
	for _, raw := range collect[string](r,
		fmt.Sprintf("SELECT (to_jsonb(x) || jsonb_build_object('', %s))::text FROM pg_catalog.%s x WHERE (%s) AND %s",
			privileges, table, own, where)) {
		var values map[string]any
		decoder := json.NewDecoder(strings.NewReader(raw))
		decoder.UseNumber()
		require.NoError(r.t, decoder.Decode(&values))
		var line strings.Builder
		for _, name := range slices.Sorted(maps.Keys(values)) {
			value := values[name]
			switch {
			case volatile[table+"."+name] != "" || value == nil || name == "":
			case types[name] == "aclitem[]":
				if granted := sortPrivileges(value); granted != sortPrivileges(values[""]) {
					fmt.Fprintf(&line, " %s=%s", name, granted)
				}
			case types[name] == "pg_node_tree": // it holds numbers of columns and old names; what it says stands in the dump
			default:
				fmt.Fprintf(&line, " %s=%v", name, r.resolve(table, name, types[name], value, values))
			}
		}
		all.rows = append(all.rows, table+":"+line.String())
	}
}

// placeOf is the place of a column among those that have not been dropped.
func (r catalogReader) placeOf(relation, number string) string {
	last, err := strconv.Atoi(number)
	require.NoError(r.t, err)
	place := min(last, 0) // of the server's own columns
	for n := 1; n <= last; n++ {
		if !strings.HasPrefix(r.columns[fmt.Sprint(relation, " ", n)], "........pg.dropped.") {
			place++
		}
	}
	return strconv.Itoa(place)
}

// resolve writes a value with names in the place of ids and of the numbers of columns.
func (r catalogReader) resolve(table, name, kind string, value any, row map[string]any) string {
	text := fmt.Sprint(value)
	number := func(column string) string { return fmt.Sprint(row[column]) }
	named := func(of string) string {
		return ofNumber.ReplaceAllStringFunc(text, func(id string) string {
			if known := r.names[of+" "+id]; known != "" {
				return known
			}
			return id
		})
	}
	columnOf := func(relation string) string {
		return regexp.MustCompile(`-?\d+`).ReplaceAllStringFunc(text, func(n string) string {
			if known := r.columns[relation+" "+n]; known != "" {
				return known
			}
			return n
		})
	}
	where, known := r.references[table+"."+name]
	classOf := map[string]string{"objid": "classid", "refobjid": "refclassid", "objoid": "classoid"}[name]
	objectOf := map[string]string{"objsubid": "objid", "refobjsubid": "refobjid"}[name]
	if name == "objsubid" && row["objoid"] != nil {
		objectOf = "objoid"
	}
	switch {
	case table == "pg_attribute" && name == "attnum":
		return r.placeOf(number("attrelid"), text)
	case known && where.of != "":
		return named(where.of)
	case known:
		return columnOf(number(where.relation))
	case name == "oid":
		if table == "pg_enum" {
			return ""
		}
		return named(table)
	case classOf != "":
		return named(r.tables[number(classOf)])
	case objectOf != "":
		return columnOf(number(objectOf))
	}
	return ofInternal.ReplaceAllString(ofToast.ReplaceAllStringFunc(text, func(found string) string {
		return "pg_toast of " + r.names["pg_class "+ofToast.FindStringSubmatch(found)[1]]
	}), "$1")
}
