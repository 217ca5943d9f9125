package statement

import (
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// transactional are the names of the server's own volatile functions whose effect ends with a
// rollback, or with the connection, or that only read; and those that move sequences, which a plan
// tells of. Nobody has looked at others.
const transactional = `^(random|random_normal|setseed|array_sample|array_shuffle|clock_timestamp|timeofday|
	gen_random_uuid|uuidv[47]|nextval|setval|currval|lastval|
	current_query|currtid2|set_config|txid_status|bernoulli|system|loread|lowrite|
	lo_(close|creat|create|from_bytea|get|lseek|lseek64|open|put|tell|tell64|truncate|truncate64|unlink)|
	pg_(notify|sleep.*|(try_)?advisory_.*|(safe_snapshot_)?blocking_pids|.*_size|
	stat_get_.*|stat_have_stats|stat_clear_snapshot|stat_file|
	(current|control|is|last|ls|partition|read|show|xact)_.*|
	get_(backend_memory_contexts|multixact_members|shmem_allocations|wal_.*)|
	sequence_last_value|lock_status|prepared_xact|jit_available|
	notification_queue_usage|(database_)?collation_actual_version|
	hba_file_rules|ident_file_mappings))$`

// knownExtensions have volatile functions in C that do nothing beside their transaction.
var knownExtensions = []string{"autoinc", "insert_username", "lo", "moddatetime", "pgaudit", "pgcrypto", "pg_trgm",
	"refint", "tablefunc", "tcn", "uuid-ossp"}

// listEscaping lists volatile functions that may escape from their transaction, and functions that
// may keep the server from counting what they do, among those with names that a statement has, that
// run as triggers of tables with such names or as event triggers, and that the text of one of these
// names.
const listEscaping = `WITH RECURSIVE called(id) AS (
		SELECT oid FROM pg_proc WHERE proname = ANY($1::name[])
		UNION SELECT tgfoid FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid WHERE c.relname = ANY($1::name[])
		AND NOT tgisinternal
		UNION SELECT evtfoid FROM pg_event_trigger WHERE $5 AND evtenabled <> 'D' AND evtevent <> 'login'
		UNION SELECT p.oid FROM called JOIN pg_proc f ON f.oid = id AND f.oid >= $4 JOIN pg_language l ON l.oid = f.prolang
		AND l.lanpltrusted,
			LATERAL regexp_matches(lower(coalesce(pg_get_function_sqlbody(f.oid), f.prosrc)), '[a-z_][a-z0-9_$]*', 'g') word
			JOIN pg_proc p ON p.proname = word[1])
	SELECT DISTINCT p.proname::text FROM called JOIN pg_proc p ON p.oid = id JOIN pg_language l ON l.oid = p.prolang
	WHERE p.oid >= $4 AND concat(p.proconfig, p.prosrc, pg_get_function_sqlbody(p.oid)) ~* 'track_counts'
		OR p.provolatile = 'v' AND (p.oid < $4 AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
	AND p.proname !~ $2 OR p.oid >= $4 AND NOT l.lanpltrusted
		AND NOT EXISTS (SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
		WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' AND e.extname = ANY($3::text[])))
	ORDER BY 1`

var identifier = regexp.MustCompile(`[a-z_][a-z0-9_$]*`)

// checkCalls refuses a statement that may call a function whose effect a rollback does not take
// back, before a plan tries it.
func checkCalls(c *server.Connection, s Statement) error {
	_, all := Split(s.SQL)
	if len(all) != 1 || len(all[0]) == 0 {
		return nil // the server refuses it
	}
	words, fires := all[0], !slices.Contains(explained, all[0][0])
	switch {
	case slices.Contains([]string{"comment", "grant", "revoke", "drop"}, words[0]),
		// nothing is called
		slices.Contains([]string{"function", "procedure", "view", "trigger", "rule", "policy"}, created(words)):
		words = nil
	case words[0] == "do":
		words = identifier.FindAllString(strings.ToLower(s.SQL), -1)
	}
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = Name(w)
	}
	found, err := listEscapes(c, names, fires)
	if all[0][0] == "do" && slices.Contains(words, "track_counts") {
		found = append(found, "track_counts")
	}
	if err != nil || len(found) == 0 {
		return err
	}
	return activities.Errorf(activities.Refused,
		"%s: it calls %s, or names it in a function that it calls: no rollback is known to take back what that does, and "+
			"a plan would do it too; call it by hand",
		s.Where, strings.Join(found, ", "))
}

// CheckEventTriggers refuses to change the schema for Unwind itself where an event trigger may do
// what no rollback takes back.
func CheckEventTriggers(c *server.Connection) error {
	found, err := listEscapes(c, nil, true)
	if err != nil || len(found) == 0 {
		return err
	}
	return activities.Errorf(activities.Refused,
		"database %s: an event trigger calls %s: no rollback is known to take back what that does, and a plan would do "+
			"it too; disable the event trigger, or run what "+
			"starter postgres prepare --print prints by hand", c.Name, strings.Join(found, ", "))
}

// listEscapes lists functions that may escape from their transaction, and that statements with
// these names call; fires says that they fire event triggers.
func listEscapes(c *server.Connection, names []string, fires bool) ([]string, error) {
	slices.Sort(names)
	return server.Collect(c, pgx.RowTo[string], listEscaping, slices.Compact(names),
		strings.Join(strings.Fields(transactional), ""), knownExtensions, server.FirstNormalObject, fires)
}
