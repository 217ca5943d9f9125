package statement

import (
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// begins are the words that a statement of a step may begin with. The server takes one statement at
// a time, so the first word shows what it is; what a function does besides is found once it has
// run.
var begins = map[string]bool{
	"select": true, "insert": true, "update": true, "delete": true, "merge": true, "with": true, "values": true,
	"table": true, "call": true, "do": true,
	"create": true, "alter": true, "drop": true, "truncate": true, "comment": true, "grant": true, "revoke": true,
}

// escapes are statements and functions whose effect a rollback does not take back, with the reason.
var escapes = map[string]string{
	"begin": controls, "start": controls, "commit": controls, "end": controls, "rollback": controls, "abort": controls,
	"savepoint": controls,
	"release":   controls, "prepare": controls,
	"vacuum": "it runs outside of transactions", "cluster": "it rewrites tables",
	"reindex": "it changes no rows; run it by hand",
	"copy":    "it reads or writes files, or runs programs; use INSERT", "listen": sends, "notify": sends,
	"unlisten":  sends,
	"pg_notify": sends,
	"set":       session, "reset": session, "discard": session, "set_config": session,
	"session_replication_role": session, "load": "it runs code in the server", "lock": "a lock is no change",
	"lo_import": "it reads a file of the server", "lo_export": "it writes a file of the server",
	"pg_terminate_backend": "it ends other connections",
	"pg_cancel_backend":    "it ends other statements", "pg_reload_conf": "it changes the server",
	"pg_advisory_lock": "the lock would outlive the statement",
	"dblink":           "it works in a transaction of its own", "dblink_exec": "it works in a transaction of its own",
	"dblink_connect": "it works in a transaction of its own", "dblink_send_query": "it works in a transaction of its own",
	"reassign": schemaChange, "security": schemaChange, "import": schemaChange, "refresh": schemaChange,
}

const (
	controls     = "all statements of a step are one transaction, which Unwind begins and ends"
	sends        = "a message that was sent does not come back"
	session      = "it changes the connection, not the database"
	schemaChange = "of changes of the schema, a step runs CREATE, ALTER, DROP, TRUNCATE, COMMENT, GRANT and REVOKE"
)

// Check refuses a statement, given its words, that cannot be undone because of what it is.
func Check(where string, words []string) error {
	if len(words) == 0 || !begins[words[0]] {
		first := "it"
		reason := "a step runs INSERT, UPDATE, DELETE, MERGE, SELECT, WITH, VALUES, CALL, DO, CREATE, ALTER, DROP, " +
			"TRUNCATE, COMMENT, GRANT and REVOKE"
		if len(words) > 0 {
			first = strings.ToUpper(words[0])
			if r := escapes[words[0]]; r != "" {
				reason = r
			}
		}
		return activities.Errorf(activities.Refused, "%s: %s is not allowed: %s", where, first, reason)
	}
	if IsAlteration(words) {
		return checkAlteration(where, words)
	}
	for _, w := range words[1:] {
		w = Name(w)
		// Words that may also be the name of a column are looked at only where a statement begins;
		// functions, everywhere.
		if strings.Contains(w, "_") || strings.HasPrefix(w, "dblink") {
			if r := escapes[w]; r != "" {
				return activities.Errorf(activities.Refused, "%s: %s is not allowed: %s", where, w, r)
			}
		}
	}
	return nil
}

// Name is what a word names: a function has the same name with quotes and without.
func Name(word string) string { return strings.Trim(word, `"`) }

// checkAlteration refuses what has no inverse for certain, or escapes from the transaction. Whether
// the others have one is tried when they run.
func checkAlteration(where string, words []string) error {
	kind := words[1:]
	if len(kind) > 2 && kind[0] == "or" && kind[1] == "replace" {
		kind = kind[2:]
	}
	reason := ""
	switch {
	case slices.Contains(words, "concurrently"):
		reason = "CONCURRENTLY runs outside of transactions; leave it out, or run it by hand"
	case slices.Contains([]string{"create", "alter", "drop"}, words[0]) &&
		(len(kind) == 0 || slices.Contains(outsideSchema, kind[0])):
		reason = "it is about what no schema holds; declare its undo, or run it by hand"
		if len(kind) == 0 || slices.Contains(outsideDatabase, kind[0]) {
			reason = "it is about what no schema holds; run it by hand"
		}
	}
	return refuseWords(where, words, reason)
}

// refuseWords refuses a statement for a reason; empty for none.
func refuseWords(where string, words []string, reason string) error {
	if reason == "" {
		return nil
	}
	return activities.Errorf(activities.Refused, "%s: %s is not allowed: %s", where,
		strings.ToUpper(strings.Join(words[:min(len(words), 2)], " ")), reason)
}

// CheckDeclared is Check for a step that declares its undo: it refuses only what escapes from the
// transaction, or concerns the whole server.
func CheckDeclared(where string, words []string) error {
	if len(words) == 0 || words[0] != "refresh" && !IsAlteration(words) {
		return Check(where, words)
	}
	reason := ""
	switch {
	case slices.Contains(words, "concurrently"):
		reason = "CONCURRENTLY runs outside of transactions; leave it out, or run it by hand"
	case slices.Contains([]string{"create", "alter", "drop"}, words[0]) &&
		(len(words) < 2 || slices.Contains(outsideDatabase, words[1])):
		reason = "it concerns the whole server, or the connection alone; run it by hand"
	}
	return refuseWords(where, words, reason)
}

// outsideDatabase are those of outsideSchema that are not of one database, or not of its
// transactions.
var outsideDatabase = []string{"database", "role", "user", "group", "tablespace", "temp", "temporary", "local",
	"global", "subscription", "system", "owned"}

// outsideSchema are things that no schema holds, or that end with the connection, or whose
// statements have no inverse.
var outsideSchema = []string{
	"database", "role", "user", "group", "tablespace", "temp", "temporary", "local", "global", "extension", "subscription",
	"publication", "server", "foreign", "event", "system", "owned",
	"access", "language", "procedural", "trusted", "cast", "operator", "conversion", "collation", "aggregate", "transform",
	"text", "default", "large",
}

// IsAlteration reports whether a statement with these words changes the schema, or truncates.
func IsAlteration(words []string) bool {
	return slices.Contains([]string{"create", "alter", "drop", "truncate", "comment", "grant", "revoke"}, words[0])
}
