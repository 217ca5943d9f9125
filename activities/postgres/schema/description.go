package schema

import (
	"cmp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// describeSchema is the text of the schema of a database: all that pg_dump writes down of it, but
// for what steps hold, and what others have made in the schemas of the server, which pg_dump leaves
// out. Of the server's own objects it has the number: what is changed of them, and not dropped,
// [BuiltIn] finds. Two texts are equal if nobody can tell the schemas apart by name, definition,
// owner, privilege or comment. Privileges that are by default are the same as those that were
// granted so.
//
//nolint:unqueryvet // of catalogs, whole rows are described
const describeSchema = `WITH ours AS (SELECT oid FROM pg_namespace WHERE nspname ~ '` + HoldingPattern + `'
	OR nspname ~ '^pg_(toast|temp_)'),
	rel AS (SELECT c.*, c.oid::regclass::text AS name FROM pg_class c WHERE c.relnamespace NOT IN (SELECT oid FROM ours)
	AND c.oid >= 16384 AND c.relkind <> 't' AND ($1::oid[] IS NULL OR c.oid = ANY($1))),
	line(of, sub, text) AS (
	SELECT oid, 0, format('schema %s %s %s', nspname, nspowner::regrole, coalesce(nspacl, acldefault('n', nspowner)))
	FROM pg_namespace WHERE oid NOT IN (SELECT oid FROM ours) AND (oid >= 16384 OR oid = 2200)
	UNION ALL SELECT oid, 0, format('relation %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s', name, relkind,
	relowner::regrole, coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's'
	ELSE 'r' END::"char", relowner)), reloptions, relpersistence, relrowsecurity, relforcerowsecurity,
		relreplident, reltablespace, relispartition, reloftype::regtype, (SELECT concat_ws(' ', o.reloptions,
		nullif(o.relacl, acldefault('r', o.relowner))) FROM pg_class o WHERE o.oid = rel.reltoastrelid), relam,
		relispopulated, CASE relkind WHEN 'p' THEN pg_get_partkeydef(oid) END) FROM rel
	UNION ALL SELECT r.oid, a.attnum, format('column %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s %s', r.name,
		rank() OVER (PARTITION BY a.attrelid ORDER BY a.attnum), a.attname, format_type(a.atttypid, a.atttypmod),
		a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity, a.attgenerated,
		a.attcollation::regcollation, a.attacl, a.attoptions, a.attstorage, a.attcompression, a.attstattarget, a.attislocal,
		a.attfdwoptions)
		FROM rel r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped LEFT
		JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
	UNION ALL SELECT r.oid, a.attnum, format('system column %s %s %s', r.name, a.attname, a.attacl) FROM rel r
		JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum < 0 AND a.attacl IS NOT NULL
	UNION ALL SELECT x.oid, 0, format('constraint %s %s %s %s %s %s %s', coalesce(x.conrelid::regclass::text,
	x.contypid::regtype::text), x.conname, pg_get_constraintdef(x.oid), x.convalidated, x.connoinherit,
		x.conislocal, x.coninhcount)
		FROM pg_constraint x WHERE x.connamespace NOT IN (SELECT oid FROM ours) AND x.oid >= 16384
		AND ($1 IS NULL OR x.oid = ANY($1))
	UNION ALL SELECT r.oid, 0, format('index %s %s %s %s %s', i.indexrelid::regclass, pg_get_indexdef(i.indexrelid),
	i.indisclustered, i.indisreplident, i.indisvalid) FROM pg_index i JOIN rel r ON r.oid = i.indexrelid
	UNION ALL SELECT t.oid, 0, format('trigger %s %s', pg_get_triggerdef(t.oid), t.tgenabled) FROM pg_trigger t
	JOIN rel r ON r.oid = t.tgrelid WHERE NOT t.tgisinternal AND NOT t.` + server.IsTrigger + `
	UNION ALL SELECT t.oid, 0, format('built-in trigger of %s %s %s', r.name, pg_get_constraintdef(t.tgconstraint),
	t.tgenabled) FROM pg_trigger t JOIN rel r ON r.oid = t.tgrelid WHERE t.tgisinternal AND t.tgenabled <> 'O'
	UNION ALL SELECT w.oid, 0, format('rule %s %s', pg_get_ruledef(w.oid), w.ev_enabled) FROM pg_rewrite w
	JOIN rel r ON r.oid = w.ev_class
	UNION ALL SELECT p.oid, 0, format('policy %s %s %s %s %s %s %s', r.name, p.polname, p.polcmd, p.polpermissive,
	p.polroles::regrole[], pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid))
		FROM pg_policy p JOIN rel r ON r.oid = p.polrelid
	UNION ALL SELECT h.inhrelid, 0, format('parent %s %s %s %s %s', h.inhrelid::regclass, h.inhparent::regclass,
	h.inhseqno, h.inhdetachpending, pg_get_expr(c.relpartbound, c.oid)) FROM pg_inherits h JOIN rel c ON c.oid = h.inhrelid
	UNION ALL SELECT r.oid, 0, format('sequence %s %s %s %s %s %s %s %s %s', r.name, s.seqtypid::regtype, s.seqstart,
	s.seqincrement, s.seqmax, s.seqmin, s.seqcache, s.seqcycle,
		(SELECT format('%s.%I', a.attrelid::regclass, a.attname) FROM pg_depend d
		JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid WHERE d.classid = 'pg_class'::regclass
		AND d.objid = r.oid AND d.deptype IN ('a', 'i') AND d.refobjsubid > 0))
		FROM pg_sequence s JOIN rel r ON r.oid = s.seqrelid
	UNION ALL SELECT p.oid, 0, format('routine %s %s %s %s %s %s %s', p.oid::regprocedure, p.proowner::regrole,
	coalesce(p.proacl, acldefault('f', p.proowner)), p.prosrc, p.proconfig, (p.prorettype::regtype,
	p.prolang, p.prokind, p.provolatile, p.prosecdef, p.proisstrict, pg_get_expr(p.proargdefaults, 0)),
		(pg_get_function_sqlbody(p.oid), p.proallargtypes::regtype[], p.proargmodes, p.proargnames, p.provariadic::regtype,
		p.protrftypes::regtype[], p.procost, p.prorows, p.prosupport, p.proleakproof, p.proparallel, p.probin))
		FROM pg_proc p WHERE p.pronamespace NOT IN (SELECT oid FROM ours) AND p.oid >= 16384
		AND format('%s.%s', p.pronamespace::regnamespace, p.proname) !~ '^unwind\.capture_[0-9]+$'
		AND ($1 IS NULL OR p.oid = ANY($1))
	UNION ALL SELECT t.oid, 0, format('type %s %s %s %s %s %s %s', t.oid::regtype, t.typtype, t.typowner::regrole,
	coalesce(t.typacl, acldefault('T', t.typowner)), t.typdefault, (SELECT array_agg(e.enumlabel ORDER BY e.enumsortorder)
	FROM pg_enum e WHERE e.enumtypid = t.oid),
		(t.typnotnull, t.typbasetype::regtype, t.typtypmod, t.typcollation::regcollation, t.typinput, t.typoutput,
		t.typreceive, t.typsend, t.typmodin, t.typmodout, t.typanalyze, t.typalign, t.typstorage, t.typcategory,
		t.typispreferred,
			t.typdelim, t.typisdefined, t.typsubscript))
		FROM pg_type t WHERE t.typnamespace NOT IN (SELECT oid FROM ours) AND t.oid >= 16384
		AND ($1 IS NULL OR t.oid = ANY($1))
	UNION ALL SELECT rngtypid, 0, format('range %s %s', rngtypid::regtype, (rngsubtype::regtype, rngmultitypid::regtype,
	rngcollation::regcollation, (SELECT opcname FROM pg_opclass o WHERE o.oid = rngsubopc), rngcanonical, rngsubdiff))
	FROM pg_range WHERE rngtypid >= 16384
	UNION ALL SELECT aggfnoid, 0, format('aggregate %s %s %s', aggfnoid::regprocedure, (aggtranstype::regtype,
	aggmtranstype::regtype, aggsortop::regoperator),
	to_jsonb(g) - '{aggfnoid,aggtranstype,aggmtranstype,aggsortop}'::text[]) FROM pg_aggregate g WHERE aggfnoid >= 16384
	UNION ALL SELECT oid, 0, format('cast %s %s %s %s %s', castsource::regtype, casttarget::regtype,
	castfunc::regprocedure, castcontext, castmethod) FROM pg_cast WHERE oid >= 16384
	UNION ALL SELECT oid, 0, format('statistics %s %s %s', pg_get_statisticsobjdef(oid), stxowner::regrole,
	coalesce(stxstattarget, -1)) FROM pg_statistic_ext WHERE stxnamespace NOT IN (SELECT oid FROM ours)
	UNION ALL SELECT rel.oid, 0, format('publication %s %s %s %s', p.pubname, r.prrelid::regclass, (SELECT
	array_agg(a.attname ORDER BY a.attname) FROM pg_attribute a WHERE a.attrelid = r.prrelid
	AND to_jsonb(r) -> 'prattrs' @> to_jsonb(a.attnum)),
		md5(regexp_replace(to_jsonb(r) ->> 'prqual', ' :location -?[0-9]+', '', 'g'))) FROM pg_publication_rel r
		JOIN pg_publication p ON p.oid = r.prpubid JOIN rel ON rel.oid = r.prrelid
	UNION ALL SELECT objoid, objsubid, format('comment %s %s', pg_describe_object(classoid, objoid, objsubid), description)
	FROM pg_description WHERE (objoid >= 16384 OR classoid = 'pg_namespace'::regclass)
		AND pg_describe_object(classoid, objoid, objsubid) !~ '"?unwind_-?[0-9]+_[0-9]+"?(\.|$)'
	UNION ALL SELECT NULL, 0, format('built-in comments %s', (SELECT sum(hashtextextended(format('%s %s %s %s', classoid,
	objoid, objsubid, description), 0)) FROM pg_description WHERE objoid < 16384
	AND classoid <> 'pg_namespace'::regclass)) WHERE $1 IS NULL
	UNION ALL SELECT objid, objsubid, format('extension %s of %s', pg_describe_object(refclassid, refobjid, refobjsubid),
	pg_describe_object(classid, objid, objsubid)) FROM pg_depend WHERE deptype = 'x'
	UNION ALL SELECT NULL, 0, format('%s has %s', pg_describe_object(refclassid, refobjid, refobjsubid),
	pg_describe_object(classid, objid, objsubid)) FROM pg_depend WHERE deptype = 'e'
	UNION ALL SELECT oid, 0, format('default privileges %s %s %s %s', defaclrole::regrole, defaclnamespace::regnamespace,
	defaclobjtype, defaclacl) FROM pg_default_acl
	UNION ALL SELECT NULL, 0, format('others %s', (SELECT count(*) FROM pg_extension) + (SELECT count(*)
	FROM pg_event_trigger) + (SELECT count(*) FROM pg_cast) + (SELECT count(*) FROM pg_operator)
		+ (SELECT count(*) FROM pg_opclass) + (SELECT count(*) FROM pg_conversion) + (SELECT count(*)
		FROM pg_collation) + (SELECT count(*) FROM pg_language) + (SELECT count(*) FROM pg_publication)
		+ (SELECT count(*) FROM pg_foreign_server) + (SELECT count(*) FROM pg_ts_config) + (SELECT count(*)
		FROM pg_transform)) WHERE $1 IS NULL
	UNION ALL SELECT NULL, 0, format('built-in objects %s', (SELECT count(*) FROM pg_class WHERE oid < 16384)
		+ (SELECT count(*) FROM pg_type WHERE oid < 16384) + (SELECT count(*) FROM pg_proc WHERE oid < 16384)
		+ (SELECT count(*) FROM pg_namespace WHERE oid < 16384) + (SELECT count(*) FROM pg_constraint WHERE oid < 16384)
		+ (SELECT count(*) FROM pg_rewrite WHERE ev_class < 16384) + (SELECT count(*) FROM pg_trigger WHERE tgrelid < 16384)
		+ (SELECT count(*) FROM pg_policy WHERE polrelid < 16384)) WHERE $1 IS NULL
	) SELECT text FROM line WHERE ($1::oid[] IS NULL OR of = ANY($1))
		AND ($1 IS NULL OR EXISTS (SELECT FROM unnest($1, $2::int[]) one(id, part)
		WHERE id = of AND part IN (0, sub))) ORDER BY text COLLATE "C"`

// Object is something that has a name in a schema.
type Object struct {
	Class uint32 // pg_class, pg_proc, pg_type, pg_namespace, pg_constraint, or pg_attribute for a column
	OID   uint32
	Sub   int32
	Kind  string // as DROP names it; empty where it goes with another
	Name  string // as DROP takes it
	Table string // of a column or constraint
	Ours  bool   // the current transaction has written its row of the catalog
}

// IsIn reports whether it is a schema, or in it.
func (o Object) IsIn(schema string) bool {
	return o.Kind == "SCHEMA" && o.Name == schema || strings.HasPrefix(cmp.Or(o.Table, o.Name), schema+".")
}

// Ours is the condition that the current transaction, or a savepoint of it, has written a row x of
// a catalog, and not another one that has committed meanwhile: of the transactions since, only our
// own is in progress in what we see.
const Ours = `CASE WHEN age(x.xmin) > 0 THEN false ELSE
	pg_xact_status((pg_current_xact_id()::text::bigint / 4294967296 * 4294967296 + x.xmin::text::bigint)::text::xid8)
		= 'in progress' END`

// listObjects lists what statements can make.
const listObjects = `SELECT 'pg_class'::regclass::oid, x.oid, 0, CASE x.relkind WHEN 'v' THEN 'VIEW'
	WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE' WHEN 'i' THEN indexed WHEN 'I' THEN indexed
		WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'TABLE'
		ELSE '' END, x.oid::regclass::text, '',
		` + Ours + ` FROM pg_class x, LATERAL (SELECT CASE WHEN x.relispartition THEN '' ELSE 'INDEX' END) i(indexed)
			WHERE x.oid >= 16384 AND x.relnamespace <> 'pg_toast'::regnamespace AND ($1::oid[] IS NULL OR x.oid = ANY($1))
	UNION ALL SELECT 'pg_proc'::regclass::oid, oid, 0, 'ROUTINE', oid::regprocedure::text, '',
	` + Ours + ` FROM pg_proc x WHERE oid >= 16384 AND ($1 IS NULL OR x.oid = ANY($1))
	UNION ALL SELECT 'pg_type'::regclass::oid, oid, 0, CASE WHEN typtype = 'd' THEN 'DOMAIN' WHEN typrelid = 0
	AND typelem = 0 AND typtype <> 'm' OR typtype = 'c' AND EXISTS (SELECT FROM pg_class c WHERE c.oid = typrelid
	AND c.relkind = 'c') THEN 'TYPE' ELSE '' END, oid::regtype::text, '', ` + Ours + `
		FROM pg_type x WHERE oid >= 16384 AND ($1 IS NULL OR x.oid = ANY($1))
	UNION ALL SELECT 'pg_namespace'::regclass::oid, oid, 0, 'SCHEMA', quote_ident(nspname), '',
	` + Ours + ` FROM pg_namespace x WHERE oid >= 16384 AND ($1 IS NULL OR x.oid = ANY($1))
	UNION ALL SELECT 'pg_constraint'::regclass::oid, oid, 0, CASE WHEN coninhcount > 0 OR conparentid > 0 THEN ''
	WHEN contype = 'f' THEN 'FOREIGN KEY' ELSE 'CONSTRAINT' END, quote_ident(conname), conrelid::regclass::text,
	` + Ours + ` FROM pg_constraint x WHERE conrelid >= 16384 AND ($1 IS NULL OR x.oid = ANY($1))
	UNION ALL SELECT 'pg_attribute'::regclass::oid, attrelid, attnum, CASE attinhcount WHEN 0 THEN 'COLUMN'
	ELSE '' END, quote_ident(attname), attrelid::regclass::text,
	` + Ours + ` FROM pg_attribute x WHERE attrelid >= 16384 AND ($1 IS NULL OR attrelid = ANY($1)) AND attnum > 0
		AND NOT attisdropped
		AND EXISTS (SELECT FROM pg_class c WHERE c.oid = attrelid AND c.relkind IN ('r', 'p'))`

// WithPlainNames runs do with a search path under which the server writes every name with its
// schema.
func WithPlainNames(c *server.Connection, do func() error) error {
	var path string
	if err := c.Scan("SELECT current_setting('search_path')", nil, &path); err != nil {
		return err
	}
	if err := c.Run("SELECT set_config('search_path', 'pg_catalog', true)"); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return c.Run("SELECT set_config('search_path', $1, true)", path)
}

// Describe describes the schema of the database as the transaction sees it, in lines.
func Describe(c *server.Connection) (text string, err error) {
	err = WithPlainNames(c, func() error {
		lines, err := describe(c, nil, nil)
		text = strings.Join(lines, "\n")
		return err
	})
	return text, err
}

// describe lists the lines of the description, or those alone that are of objects with these ids
// and parts.
func describe(c *server.Connection, ids []uint32, parts []int32) ([]string, error) {
	lines, err := server.Collect(c, pgx.RowTo[string], describeSchema, ids, parts)
	if err != nil {
		return nil, err
	}
	unknown, err := describeUnknown(c, knownColumns, ids)
	lines = append(lines, unknown...)
	for i, line := range lines {
		lines[i] = oneLine.Replace(line)
	}
	return lines, err
}

var oneLine = strings.NewReplacer(`\`, `\\`, "\n", `\n`)

// Objects lists what the schema holds.
func Objects(c *server.Connection) ([]Object, error) { return ObjectsOf(c, nil) }

// ObjectsOf lists things with these ids alone, with the columns of tables, unless they are nil.
func ObjectsOf(c *server.Connection, ids []uint32) (all []Object, err error) {
	err = WithPlainNames(c, func() error {
		all, err = server.Collect(c, pgx.RowToStructByPos[Object], listObjects, ids)
		return err
	})
	return all, err
}

// objectKey identifies an object.
type objectKey struct {
	Class, OID uint32
	Sub        int32
}

func (o Object) key() objectKey { return objectKey{o.Class, o.OID, o.Sub} }

// Lacking lists the objects of one list that another lacks.
func Lacking(all, other []Object) (missing []Object) {
	there := map[objectKey]bool{}
	for _, o := range other {
		there[o.key()] = true
	}
	for _, o := range all {
		if !there[o.key()] {
			missing = append(missing, o)
		}
	}
	return missing
}

// FirstDifference is a line of one description that the other lacks, or that is too much in the other.
func FirstDifference(was, is string) string {
	missing, more := MissingLines(was, is), MissingLines(is, was)
	switch {
	case missing != nil:
		return missing[0]
	case more != nil:
		return "the schema without " + more[0]
	}
	return "the schema in its order"
}

// MissingLines are the lines of one description that the other lacks.
func MissingLines(was, is string) (missing []string) {
	there := map[string]bool{}
	for line := range strings.SplitSeq(is, "\n") {
		there[line] = true
	}
	for line := range strings.SplitSeq(was, "\n") {
		if !there[line] {
			missing = append(missing, line)
		}
	}
	return missing
}
