package schema

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// Trait is something of the schema that one statement of ours can set, and another take away: a
// default, a constraint, a view, a comment.
type Trait struct {
	Rank int    // what comes back first, and goes last
	Key  string // equal for the same trait in two lists, as long as nothing was renamed
	Of   uint32 // what it belongs to
	What string // as people are told
	// Make sets it, and Drop takes it away; empty where nothing has to be done.
	Make, Drop string
}

// The ranks that are looked at. Names have one key for life; Drop and Make, put together, give a
// name back.
const (
	ofNames      = 0
	ofRoutines   = 20
	ofNotNull    = 22
	ofKeys       = 24
	ofViews      = 28
	ofChecks     = 32
	ofForeign    = 34
	ofIndexes    = 36
	ofStatistics = 37
	ofTriggers   = 40
	ofRules      = 42
	ofPolicies   = 44
	ofOwned      = 47
	ofPrivileges = 50
)

// Replaces reports whether Make can take the place of another one.
func (t Trait) Replaces() bool { return t.Rank == ofRoutines || t.Rank == ofViews }

// IsBuilt reports whether somebody makes it on purpose, and it goes with its table or column.
func (t Trait) IsBuilt() bool {
	return slices.Contains([]int{ofKeys, ofChecks, ofForeign, ofIndexes, ofStatistics, ofTriggers, ofRules, ofPolicies},
		t.Rank)
}

// IsName reports whether it is a name, which has one key for life.
func (t Trait) IsName() bool { return t.Rank == ofNames }

// IsPrivileges reports whether it is the privileges on something.
func (t Trait) IsPrivileges() bool { return t.Rank == ofPrivileges }

// IsThing reports whether one that comes is among the new objects, too.
func (t Trait) IsThing() bool {
	return slices.Contains([]int{ofRoutines, ofKeys, ofViews, ofChecks, ofForeign, ofIndexes}, t.Rank)
}

// Hangs reports whether only CASCADE takes it along with a column.
func (t Trait) Hangs() bool {
	return slices.Contains([]int{ofRoutines, ofViews, ofForeign, ofTriggers, ofRules, ofPolicies, ofOwned}, t.Rank)
}

// Tightens reports whether rows have to be in a certain way for it.
func (t Trait) Tightens() bool {
	return slices.Contains([]int{ofNotNull, ofKeys, ofChecks, ofForeign}, t.Rank) || t.Rank == ofIndexes &&
		strings.HasPrefix(t.Make, "CREATE UNIQUE")
}

// listTraits lists traits. What it does not list is refused when it changes, since the description
// of the schema shows it.
//
//nolint:dupword,unqueryvet // lists of columns, and of catalogs whole
const listTraits = `WITH ours AS (SELECT oid FROM pg_namespace WHERE nspname ~ '` + HoldingPattern + `'
	OR nspname ~ '^pg_' OR nspname IN ('information_schema', 'unwind')),
	rel AS (SELECT c.*, c.oid::regclass::text AS name, CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
	WHEN 'S' THEN 'sequence' WHEN 'i' THEN 'index' WHEN 'I' THEN 'index' ELSE 'table' END AS word,
		EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.refobjsubid > 0
		AND d.deptype IN ('a', 'i') AND c.relkind = 'S') AS owned
		FROM pg_class c WHERE c.relnamespace NOT IN (SELECT oid FROM ours)
		AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'i', 'I') AND ($1::oid[] IS NULL OR c.oid = ANY($1))),
	tab AS (SELECT * FROM rel WHERE relkind IN ('r', 'p', 'v', 'm')),
	att AS (SELECT t.oid AS of, t.name AS tab, t.relkind, a.*, quote_ident(a.attname) AS col, format('%s.%I', t.name,
	a.attname) AS path FROM tab t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped),
	con AS (SELECT x.oid, x.contype, x.conrelid, x.conname, x.conindid, x.conrelid::regclass::text AS tab,
	quote_ident(x.conname) AS name FROM pg_constraint x JOIN rel r ON r.oid = x.conrelid
		WHERE x.coninhcount = 0 AND x.conparentid = 0 AND x.contype IN ('p', 'u', 'x', 'c', 'f')),
	typ AS (SELECT t.*, t.oid::regtype::text AS name FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
		WHERE t.typnamespace NOT IN (SELECT oid FROM ours) AND t.typelem = 0 AND t.typtype <> 'm' AND (t.typrelid = 0
		OR c.relkind = 'c') AND ($1 IS NULL OR t.oid = ANY($1))),
	fun AS (SELECT p.*, p.oid::regprocedure::text AS name FROM pg_proc p WHERE p.oid >= 16384
	AND p.pronamespace NOT IN (SELECT oid FROM ours) AND ($1 IS NULL OR p.oid = ANY($1))),
	nsp AS (SELECT n.*, quote_ident(n.nspname) AS name FROM pg_namespace n WHERE n.oid NOT IN (SELECT oid FROM ours)
	AND ($1 IS NULL OR n.oid = ANY($1))),
	named(of, id, word, name, schema, kind) AS (
		SELECT oid, oid::text, word, name, CASE WHEN relkind IN ('i', 'I') OR owned THEN 0 ELSE relnamespace END, 'TABLE'
		FROM rel
		UNION ALL SELECT oid, oid::text, 'type', name, typnamespace, 'TYPE' FROM typ
		UNION ALL SELECT oid, oid::text, 'function', name, pronamespace, 'ROUTINE' FROM fun),
	grantable(of, word, name, grants, acl, sub) AS (
		SELECT oid, word, name, CASE relkind WHEN 'S' THEN 'SEQUENCE '
		ELSE 'TABLE ' END || name, coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's'
		ELSE 'r' END::"char", relowner)), NULL FROM rel WHERE relkind NOT IN ('i', 'I')
		UNION ALL SELECT att.of, '', '', 'TABLE ' || tab, attacl, '(' || col || ')' FROM att WHERE attacl IS NOT NULL
		UNION ALL SELECT tab.oid, '', '', 'TABLE ' || name, attacl, '(' || attname || ')' FROM tab
			JOIN pg_attribute ON attrelid = tab.oid AND attnum < 0 AND attacl IS NOT NULL
		UNION ALL SELECT oid, 'function', name, 'ROUTINE ' || name, coalesce(proacl, acldefault('f', proowner)), NULL FROM fun
		UNION ALL SELECT oid, 'type', name, 'TYPE ' || name, coalesce(typacl, acldefault('T', typowner)), NULL FROM typ
		UNION ALL SELECT oid, 'schema', name, 'SCHEMA ' || name, coalesce(nspacl, acldefault('n', nspowner)), NULL FROM nsp),
	granted AS (SELECT g.of, g.grants, g.sub, e.is_grantable AS option, min(e.place) AS place, CASE
	WHEN e.grantee = 0 THEN 'PUBLIC' ELSE e.grantee::regrole::text END AS grantee,
			string_agg(e.privilege_type || coalesce(g.sub, ''), ', ' ORDER BY e.place) AS privileges
		FROM grantable g, aclexplode(g.acl) WITH ORDINALITY e(grantor, grantee, privilege_type, is_grantable, place)
		GROUP BY g.of, g.grants, g.sub, e.grantee, e.is_grantable),
	grants(of, grants, make, drop) AS (SELECT of, grants, string_agg(format('GRANT %s ON %s TO %s%s', privileges, grants,
	grantee, CASE WHEN option THEN ' WITH GRANT OPTION' END), '; ' ORDER BY sub NULLS FIRST, place),
			string_agg(DISTINCT format('REVOKE ALL ON %s FROM %s', grants, grantee), '; ') FROM granted GROUP BY of, grants),
	said AS (SELECT d.objoid, d.description, i.type, i.identity, CASE i.type WHEN 'table column' THEN 'COLUMN'
	WHEN 'view column' THEN 'COLUMN' WHEN 'materialized view column' THEN 'COLUMN'
	WHEN 'composite type column' THEN 'COLUMN'
			WHEN 'table constraint' THEN 'CONSTRAINT' WHEN 'domain constraint' THEN 'CONSTRAINT'
			WHEN 'statistics object' THEN 'STATISTICS' ELSE upper(i.type) END AS word
		FROM pg_description d, pg_identify_object(d.classoid, d.objoid, d.objsubid) i WHERE ($1 IS NULL
		OR d.objoid = ANY($1)) AND (d.objoid >= 16384 OR d.classoid = 'pg_namespace'::regclass)
		AND i.identity !~ '"?unwind_-?[0-9]+_[0-9]+"?(\.|$)')
	SELECT 0, format('%s name', id), of, word || ' ' || name, (SELECT quote_ident(relname) FROM pg_class WHERE oid = of
	AND kind = 'TABLE' UNION ALL SELECT quote_ident(typname) FROM pg_type WHERE oid = of AND kind = 'TYPE'
			UNION ALL SELECT quote_ident(proname) FROM pg_proc WHERE oid = of
			AND kind = 'ROUTINE'), format('ALTER %s %s RENAME TO ', kind, name)
		FROM named WHERE of NOT IN (SELECT conindid FROM con WHERE contype IN ('p', 'u', 'x'))
	UNION ALL SELECT 0, format('%s schema', id), of, word || ' ' || name, quote_ident(n.nspname),
	format('ALTER %s %s SET SCHEMA ', kind, named.name) FROM named JOIN pg_namespace n ON n.oid = named.schema
	UNION ALL SELECT 0, format('%s %s name', of, attnum), of, 'column ' || path, col,
	format('ALTER TABLE %s RENAME COLUMN %s TO ', tab, col) FROM att WHERE attinhcount = 0
	UNION ALL SELECT 0, format('%s constraint name', oid), conrelid, format('constraint %s of %s', name, tab), name,
	format('ALTER TABLE %s RENAME CONSTRAINT %s TO ', tab, name) FROM con
	UNION ALL SELECT 0, format('%s schema name', oid), oid, 'schema ' || name, name, format('ALTER SCHEMA %s RENAME TO ',
	name) FROM nsp
	UNION ALL SELECT CASE relkind WHEN 'v' THEN 29 ELSE 10 END, format('%s %s owner', word, name), oid,
	format('the owner of %s %s', word, name), format('ALTER TABLE %s OWNER TO %s', name, relowner::regrole), '' FROM rel
	WHERE relkind NOT IN ('i', 'I') AND NOT owned
	UNION ALL SELECT 10, format('type %s owner', name), oid, 'the owner of type ' || name,
	format('ALTER TYPE %s OWNER TO %s', name, typowner::regrole), '' FROM typ
	UNION ALL SELECT 10, format('schema %s owner', name), oid, 'the owner of schema ' || name,
	format('ALTER SCHEMA %s OWNER TO %s', name, nspowner::regrole), '' FROM nsp
	UNION ALL SELECT 20, 'function ' || name, oid, 'function ' || name, pg_get_functiondef(oid), 'DROP ROUTINE ' || name
	FROM fun WHERE prokind IN ('f', 'p', 'w')
	UNION ALL SELECT 21, format('function %s owner', name), oid, 'the owner of function ' || name,
	format('ALTER ROUTINE %s OWNER TO %s', name, proowner::regrole), '' FROM fun
	UNION ALL SELECT 22, path || ' not null', of, 'NOT NULL of ' || path,
	format('ALTER TABLE %s ALTER COLUMN %s SET NOT NULL', tab, col),
	format('ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL', tab, col) FROM att WHERE attnotnull AND relkind IN ('r', 'p')
	UNION ALL SELECT 22, format('domain %s not null', name), oid, 'NOT NULL of domain ' || name,
	format('ALTER DOMAIN %s SET NOT NULL', name), format('ALTER DOMAIN %s DROP NOT NULL', name) FROM typ
	WHERE typtype = 'd' AND typnotnull
	UNION ALL SELECT CASE contype WHEN 'c' THEN 32 WHEN 'f' THEN 34
	ELSE 24 END, format('constraint %s of %s', name, tab), conrelid, format('constraint %s of %s', name, tab),
		format('ALTER TABLE %s ADD CONSTRAINT %s %s', tab, name, pg_get_constraintdef(oid)),
		format('ALTER TABLE %s DROP CONSTRAINT %s', tab, name) FROM con
	UNION ALL SELECT 28, 'view ' || name, oid, 'view ' || name, format('CREATE OR REPLACE VIEW %s %s AS %s', name,
		'WITH (' || (SELECT string_agg(format('%s = %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)), ', ')
		FROM unnest(reloptions) o) || ')', pg_get_viewdef(oid)), 'DROP VIEW ' || name FROM rel WHERE relkind = 'v'
	UNION ALL SELECT 30, path || ' default', of, 'the default of ' || path,
	format('ALTER TABLE %s ALTER COLUMN %s SET DEFAULT %s', tab, col, pg_get_expr(d.adbin, d.adrelid)),
	format('ALTER TABLE %s ALTER COLUMN %s DROP DEFAULT', tab, col)
		FROM att JOIN pg_attrdef d ON d.adrelid = attrelid AND d.adnum = attnum WHERE attgenerated = ''
	UNION ALL SELECT 31, path || ' statistics', of, 'the statistics of ' || path,
	format('ALTER TABLE %s ALTER COLUMN %s SET STATISTICS %s', tab, col, coalesce(attstattarget, -1)), '' FROM att
	WHERE relkind IN ('r', 'p', 'm')
	UNION ALL SELECT 31, path || ' storage', of, 'the storage of ' || path,
	format('ALTER TABLE %s ALTER COLUMN %s SET STORAGE %s', tab, col, CASE attstorage WHEN 'p' THEN 'PLAIN'
	WHEN 'm' THEN 'MAIN' WHEN 'e' THEN 'EXTERNAL' ELSE 'EXTENDED' END), '' FROM att WHERE relkind IN ('r', 'p', 'm')
	UNION ALL SELECT 36, 'index ' || r.name, i.indrelid, 'index ' || r.name, pg_get_indexdef(r.oid),
	'DROP INDEX ' || r.name FROM rel r JOIN pg_index i ON i.indexrelid = r.oid
		WHERE NOT r.relispartition AND r.oid NOT IN (SELECT conindid FROM con WHERE contype IN ('p', 'u', 'x'))
	UNION ALL SELECT 37, format('statistics %I.%I', n.nspname, stxname), stxrelid, format('statistics %I.%I', n.nspname,
	stxname), pg_get_statisticsobjdef(s.oid), format('DROP STATISTICS %I.%I', n.nspname, stxname)
		FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = stxnamespace WHERE n.oid NOT IN (SELECT oid FROM ours)
		AND ($1 IS NULL OR s.oid = ANY($1))
	UNION ALL SELECT 38, format('statistics %I.%I target', n.nspname, stxname), stxrelid,
	format('the target of statistics %I.%I', n.nspname, stxname), format('ALTER STATISTICS %I.%I SET STATISTICS %s',
	n.nspname, stxname, coalesce(stxstattarget, -1)), ''
		FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = stxnamespace WHERE n.oid NOT IN (SELECT oid FROM ours)
		AND ($1 IS NULL OR s.oid = ANY($1))
	UNION ALL SELECT 38, format('statistics %I.%I owner', n.nspname, stxname), stxrelid,
	format('the owner of statistics %I.%I', n.nspname, stxname), format('ALTER STATISTICS %I.%I OWNER TO %s', n.nspname,
	stxname, stxowner::regrole), ''
		FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = stxnamespace WHERE n.oid NOT IN (SELECT oid FROM ours)
		AND ($1 IS NULL OR s.oid = ANY($1))
	UNION ALL SELECT 40, format('trigger %I on %s', tgname, name), tgrelid, format('trigger %I on %s', tgname, name),
	pg_get_triggerdef(t.oid), format('DROP TRIGGER %I ON %s', tgname, name)
		FROM pg_trigger t JOIN rel r ON r.oid = tgrelid WHERE NOT tgisinternal AND tgparentid = 0
		AND NOT ` + server.IsTrigger + `
	UNION ALL SELECT 41, format('trigger %I on %s enabled', tgname, name), tgrelid,
	format('whether trigger %I on %s runs', tgname, name),
		format('ALTER TABLE %s %s TRIGGER %I', name, CASE tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA'
		WHEN 'A' THEN 'ENABLE ALWAYS' ELSE 'ENABLE' END, tgname), ''
		FROM pg_trigger t JOIN rel r ON r.oid = tgrelid WHERE NOT tgisinternal AND tgparentid = 0
		AND NOT ` + server.IsTrigger + `
	UNION ALL SELECT 42, format('rule %I on %s', rulename, name), ev_class, format('rule %I on %s', rulename, name),
	pg_get_ruledef(w.oid), format('DROP RULE %I ON %s', rulename, name)
		FROM pg_rewrite w JOIN rel r ON r.oid = ev_class WHERE rulename <> '_RETURN'
	UNION ALL SELECT 44, format('policy %I on %s', polname, name), polrelid, format('policy %I on %s', polname, name),
	format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s', polname, name,
			CASE WHEN polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END, CASE polcmd WHEN 'r' THEN 'SELECT'
			WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
			(SELECT string_agg(CASE WHEN o = 0 THEN 'PUBLIC' ELSE o::regrole::text END, ', ') FROM unnest(polroles) o),
			' USING (' || pg_get_expr(polqual, polrelid) || ')', ' WITH CHECK (' || pg_get_expr(polwithcheck, polrelid) || ')'),
			format('DROP POLICY %I ON %s', polname, name)
		FROM pg_policy p JOIN rel r ON r.oid = polrelid
	UNION ALL SELECT 45, name || ' row security', oid, 'row security of ' || name,
	format('ALTER TABLE %s %s ROW LEVEL SECURITY, %s ROW LEVEL SECURITY', name, CASE WHEN relrowsecurity THEN 'ENABLE'
	ELSE 'DISABLE' END,
		CASE WHEN relforcerowsecurity THEN 'FORCE' ELSE 'NO FORCE' END), '' FROM rel WHERE relkind IN ('r', 'p')
	UNION ALL SELECT 45, name || ' replica identity', oid, 'the replica identity of ' || name,
	format('ALTER TABLE %s REPLICA IDENTITY %s', name, CASE relreplident WHEN 'f' THEN 'FULL' WHEN 'n' THEN 'NOTHING'
	WHEN 'd' THEN 'DEFAULT'
		ELSE (SELECT 'USING INDEX ' || quote_ident(c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		WHERE i.indrelid = rel.oid AND i.indisreplident) END), '' FROM rel WHERE relkind IN ('r', 'p')
	UNION ALL SELECT 45, r.name || ' clustered', r.oid, 'the clustering of ' || r.name,
	format('ALTER TABLE %s CLUSTER ON %I', r.name, c.relname), format('ALTER TABLE %s SET WITHOUT CLUSTER', r.name)
		FROM rel r JOIN pg_index i ON i.indrelid = r.oid JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indisclustered
	UNION ALL SELECT 46, name || ' options', oid, 'the options of ' || name, (SELECT format('ALTER TABLE %s SET (%s)',
	name, string_agg(format('%s = %L', split_part(o, '=', 1), substr(o, strpos(o, '=') + 1)), ', '))
	FROM unnest(reloptions) o),
		(SELECT format('ALTER TABLE %s RESET (%s)', name, string_agg(split_part(o, '=', 1), ', ')) FROM unnest(reloptions) o)
		FROM rel WHERE relkind IN ('r', 'm') AND reloptions IS NOT NULL
	UNION ALL SELECT 46, r.name || ' toast options', r.oid, 'the TOAST options of ' || r.name,
	(SELECT format('ALTER TABLE %s SET (%s)', r.name, string_agg(format('toast.%s = %L', split_part(o, '=', 1), substr(o,
	strpos(o, '=') + 1)), ', ')) FROM unnest(t.reloptions) o),
		(SELECT format('ALTER TABLE %s RESET (%s)', r.name, string_agg('toast.' || split_part(o, '=', 1), ', '))
		FROM unnest(t.reloptions) o) FROM rel r JOIN pg_class t ON t.oid = r.reltoastrelid WHERE r.relkind IN ('r', 'm')
		AND t.reloptions IS NOT NULL
	UNION ALL SELECT 47, r.name || ' owned', r.oid, 'the column that owns ' || r.name,
	format('ALTER SEQUENCE %s OWNED BY %s', r.name, a.path), format('ALTER SEQUENCE %s OWNED BY NONE', r.name)
		FROM rel r JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = r.oid AND d.deptype = 'a'
		AND d.refobjsubid > 0 JOIN att a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid WHERE r.relkind = 'S'
	UNION ALL SELECT 50, format('privileges %s', grants), of, format('privileges of %s %s', o.word, o.name),
		coalesce(g.make, ''), coalesce(g.drop, '') FROM grantable o LEFT JOIN grants g USING (of, grants) WHERE o.sub IS NULL
	UNION ALL SELECT 60, format('comment %s %s', word, identity), objoid, format('the comment on %s %s', lower(word),
	identity), format('COMMENT ON %s %s IS %L', word, CASE WHEN type = 'domain constraint' THEN replace(identity, ' on ',
	' ON DOMAIN ') ELSE identity END, description),
		format('COMMENT ON %s %s IS NULL', word, CASE WHEN type = 'domain constraint' THEN replace(identity, ' on ',
		' ON DOMAIN ') ELSE identity END) FROM said
	ORDER BY 1, 3, 2`

// Traits lists the traits of the schema, in the order in which they can be made.
func Traits(c *server.Connection) ([]Trait, error) { return TraitsOf(c, nil) }

// TraitsOf lists the traits of things with these ids alone, unless they are nil.
func TraitsOf(c *server.Connection, ids []uint32) (all []Trait, err error) {
	err = WithPlainNames(c, func() error {
		all, err = server.Collect(c, pgx.RowToStructByPos[Trait], listTraits, ids)
		return err
	})
	return all, err
}

// ByKey indexes traits.
func ByKey(all []Trait) map[string]Trait {
	index := make(map[string]Trait, len(all))
	for _, t := range all {
		index[t.Key] = t
	}
	return index
}

// Difference is what two lists of traits do not have in common: those that are gone, that came, and
// of those that are another one, both.
type Difference struct{ Gone, Came, Were, Are []Trait }

// IsEmpty reports whether they have all in common.
func (d Difference) IsEmpty() bool { return len(d.Gone)+len(d.Came)+len(d.Were) == 0 }

// Compare compares the traits that there were with those that there are.
func Compare(was, is []Trait) (d Difference) {
	old, now := ByKey(was), ByKey(is)
	for _, t := range was {
		n, there := now[t.Key]
		switch {
		case !there && t.Rank == ofNames: // it is gone, and so are other traits of it
		case !there:
			d.Gone = append(d.Gone, t)
		case n.Make != t.Make:
			d.Were, d.Are = append(d.Were, t), append(d.Are, n)
		}
	}
	for _, t := range is {
		if _, there := old[t.Key]; !there && t.Rank != ofNames {
			d.Came = append(d.Came, t)
		}
	}
	return d
}

// Renamed are the places in Were of names that are others. The name of a schema is part of many,
// and comes alone.
func (d Difference) Renamed() (places []int) {
	for i, was := range d.Were {
		switch {
		case was.Rank != ofNames:
		case strings.HasPrefix(was.Drop, "ALTER SCHEMA "):
			return []int{i}
		default:
			places = append(places, i)
		}
	}
	return places
}
