package schema

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// shown are the columns of described catalogs that a description shows, or that follow from what it
// shows: from the text of a definition, or from the rows of another catalog.
var shown = map[string]string{
	"pg_aggregate": `aggfnoid aggkind aggnumdirectargs aggtransfn aggfinalfn aggcombinefn aggserialfn aggdeserialfn
		aggmtransfn aggminvtransfn aggmfinalfn aggfinalextra aggmfinalextra aggfinalmodify aggmfinalmodify aggsortop
		aggtranstype aggtransspace aggmtranstype aggmtransspace agginitval aggminitval`,
	"pg_attrdef": `oid adrelid adnum adbin`,
	"pg_attribute": `attrelid attname atttypid attstattarget attlen attnum atttypmod attbyval attalign attstorage
		attcompression attnotnull atthasdef attidentity attgenerated attisdropped attislocal attinhcount attcollation attacl
		attoptions attfdwoptions`,
	"pg_cast": `oid castsource casttarget castfunc castcontext castmethod`,
	"pg_class": `oid relname relnamespace reltype reloftype relowner relam reltablespace reltoastrelid relisshared
		relpersistence relkind relispopulated relnatts relchecks relrowsecurity relforcerowsecurity relreplident
		relispartition relacl reloptions relpartbound`,
	"pg_constraint": `oid conname connamespace contype condeferrable condeferred conenforced convalidated conrelid
		contypid conindid conparentid confrelid confupdtype confdeltype confmatchtype conislocal coninhcount connoinherit
		conperiod conkey confkey conpfeqop conppeqop conffeqop confdelsetcols conexclop conbin`,
	"pg_depend":      `classid objid objsubid refclassid refobjid refobjsubid deptype`,
	"pg_description": `objoid classoid objsubid description`,
	"pg_enum":        `oid enumtypid enumsortorder enumlabel`,
	"pg_index": `indexrelid indrelid indnatts indnkeyatts indisunique indnullsnotdistinct indisprimary indisexclusion
		indimmediate indisclustered indisvalid indisreplident indkey indcollation indclass indoption indexprs indpred`,
	"pg_inherits":          `inhrelid inhparent inhseqno inhdetachpending`,
	"pg_namespace":         `oid nspname nspowner nspacl`,
	"pg_partitioned_table": `partrelid partstrat partnatts partdefid partattrs partclass partcollation partexprs`,
	"pg_policy":            `oid polname polrelid polcmd polpermissive polroles polqual polwithcheck`,
	"pg_proc": `oid proname pronamespace proowner prolang procost prorows provariadic prosupport prokind prosecdef
		proleakproof proisstrict proretset provolatile proparallel pronargs pronargdefaults prorettype proargtypes
		proallargtypes proargmodes proargnames proargdefaults protrftypes prosrc probin prosqlbody proconfig proacl`,
	"pg_publication_rel": `oid prpubid prrelid prqual prattrs`,
	"pg_range":           `rngtypid rngsubtype rngmultitypid rngcollation rngsubopc rngcanonical rngsubdiff`,
	"pg_rewrite":         `oid rulename ev_class ev_type ev_enabled is_instead ev_qual ev_action`,
	"pg_sequence":        `seqrelid seqtypid seqstart seqincrement seqmax seqmin seqcache seqcycle`,
	"pg_shdepend":        `dbid classid objid objsubid refclassid refobjid deptype`,
	"pg_statistic_ext":   `oid stxrelid stxname stxnamespace stxowner stxstattarget stxkeys stxkind stxexprs`,
	"pg_trigger": `oid tgrelid tgparentid tgname tgfoid tgtype tgenabled tgisinternal tgconstrrelid tgconstrindid
		tgconstraint tgdeferrable tginitdeferred tgnargs tgattr tgargs tgqual tgoldtable tgnewtable`,
	"pg_type": `oid typname typnamespace typowner typlen typbyval typtype typcategory typispreferred typisdefined typdelim
		typrelid typsubscript typelem typarray typinput typoutput typreceive typsend typmodin typmodout typanalyze typalign
		typstorage typnotnull typbasetype typtypmod typndims typcollation typdefaultbin typdefault typacl`,
}

// volatile are the other columns of described catalogs: no part of a schema, for these reasons.
var volatile = []struct{ columns, why string }{
	{`pg_class.relpages pg_class.reltuples pg_class.relallvisible pg_class.relallfrozen pg_statistic.*
		pg_statistic_ext_data.*`, "VACUUM and ANALYZE estimate them"},
	{`pg_class.relfilenode pg_class.relrewrite pg_class.relfrozenxid pg_class.relminmxid pg_attribute.atthasmissing
		pg_attribute.attmissingval`, "they say how rows are stored, and rows are compared themselves"},
	{"pg_class.relhasindex pg_class.relhasrules pg_class.relhastriggers pg_class.relhassubclass",
		"hints of the server, which stay when the last one is gone"},
	{"pg_index.indcheckxmin pg_index.indisready pg_index.indislive", "they are states of an index that is being made"},
	{"pg_attribute.attcacheoff", "it is one of the server's memory"},
	{"pg_attribute.attndims", "the server enforces none, and a dump has none"},
}

// knownColumns are all of those, as CATALOG.COLUMN.
var knownColumns = listKnown()

func listKnown() (all []string) {
	for catalog, columns := range shown {
		for column := range strings.FieldsSeq(columns) {
			all = append(all, catalog+"."+column)
		}
	}
	for _, v := range volatile {
		all = append(all, strings.Fields(v.columns)...)
	}
	return all
}

// describeUnknown describes, in lines, what columns hold that a later version of the server has and
// that nobody has looked at: a change of one of them counts, and has no inverse. The schema public,
// 2200, is no object of the server's own.
func describeUnknown(c *server.Connection, known []string, ids []uint32) ([]string, error) {
	type catalog struct {
		Name    string
		Columns []string
	}
	unknown, err := server.Collect(c, pgx.RowToStructByPos[catalog],
		`SELECT relname::text, array_agg(quote_ident(attname) ORDER BY attname) FROM pg_class c
			JOIN pg_attribute a ON attrelid = c.oid AND attnum > 0 AND NOT attisdropped
			WHERE relnamespace = 'pg_catalog'::regnamespace AND relname = ANY($1) AND relname || '.*' <> ALL($2)
			AND relname || '.' || attname <> ALL($2) GROUP BY relname`, describedNames(), known)
	if err != nil || len(unknown) == 0 {
		return nil, err
	}
	var all []string
	for _, each := range unknown {
		all = append(all, fmt.Sprintf("SELECT format('%[1]s of %%s %%s', x.%[2]s::oid, to_jsonb(ROW(x.%[3]s))) FROM "+
			"pg_catalog.%[1]s x WHERE (x.%[2]s::oid >= %[4]d OR x.%[2]s::oid = 2200) AND ($1::oid[] IS NULL OR "+
			"x.%[2]s::oid = ANY($1))", each.Name, described[each.Name], strings.Join(each.Columns, ", x."),
			server.FirstNormalObject))
	}
	return server.Collect(c, pgx.RowTo[string],
		"SELECT line FROM ("+strings.Join(all, " UNION ALL ")+`) s(line) ORDER BY line COLLATE "C"`, ids)
}
