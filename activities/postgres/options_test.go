package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// thereAndBack is a statement that sets something, and those that take it away again.
type thereAndBack struct {
	there string
	back  []string
}

// TestEachOptionPrivilegeAndSetting sets and resets, each as a step that is undone, what the server
// knows: the options of each kind of relation, the privileges on each kind of thing, and the
// settings of routines, roles and databases.
func TestEachOptionPrivilegeAndSetting(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]func(*enumeration, *testing.T) []thereAndBack{
		"options": (*enumeration).listOptions, "privileges": (*enumeration).listPrivileges,
		"settings": (*enumeration).listSettings,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnumeration(t)
			var there, back []string
			for _, pair := range testrun.DrawShare(t, testrun.DrawShare(t, list(e, t)...)...) { // each is slow
				there = append(there, pair.there)
				back = append(back, pair.back...)
			}
			e.checkAccepted(t, there)
			t.Log(e.count)
			e.also = append(e.also, e.exact...)
			e.begin(t)
			e.checkAccepted(t, back)
			require.Empty(t, e.differences(t), "a statement that was refused has left something")
			t.Log(e.count)
		})
	}
}

// checkAccepted checks those statements that the server runs.
func (e *enumeration) checkAccepted(t *testing.T, statements []string) {
	t.Helper()
	e.count["statements"] += len(statements)
	statements = slices.DeleteFunc(slices.Clone(statements), func(sql string) bool { return !e.accepts(t, sql) })
	e.count["accepted"] += len(statements)
	for few := range slices.Chunk(statements, 10) {
		e.check(t, few)
	}
}

// listOptions finds, among the names that psql knows, those that the server takes for an option.
func (e *enumeration) listOptions(t *testing.T) (all []thereAndBack) {
	t.Helper()
	targets := []string{"TABLE t", "TABLE parted", "TABLE t ALTER a", "MATERIALIZED VIEW m", "VIEW v", "TABLESPACE ts"}
	for method := range strings.FieldsSeq(e.value("SELECT string_agg(amname, ' ') FROM pg_am WHERE amtype = 'i'")) {
		for _, column := range []string{"a", "b", "i"} {
			index := fmt.Sprintf("CREATE INDEX of_%s ON t USING %[1]s (%s)", method, column)
			if e.accepts(t, index) {
				e.also, targets = append(e.also, index), append(targets, "INDEX of_"+method)
				break
			}
		}
	}
	e.begin(t)
	names := append(postgrestest.Words(t), strings.Split(words["view_option_name"], "|")...)
	for _, target := range testrun.DrawShare(t, targets...) {
		for _, prefix := range []string{"", "toast."} {
			e.accepts(t, "SELECT 1") // there is a connection
			_, err := e.conn.Exec(t.Context(), fmt.Sprintf(`DO $do$ DECLARE name text; found text := ''; BEGIN
				FOREACH name IN ARRAY string_to_array('%s', ' ') LOOP
					BEGIN EXECUTE format('ALTER %s SET (%s%%I = '':'')', name);
					EXCEPTION WHEN OTHERS THEN
						IF sqlerrm NOT LIKE 'unrecognized%%' THEN found := found || ' ' || name; END IF; END;
				END LOOP; RAISE 'found%%', found; END $do$`, strings.Join(names, " "), target, prefix))
			_, found, isFound := strings.Cut(fmt.Sprint(err), "found")
			require.True(t, isFound, err)
			for name := range strings.FieldsSeq(strings.TrimSuffix(found, "(SQLSTATE P0001)")) {
				all = append(all, e.settle(t, target, prefix+name)...)
			}
		}
	}
	return all
}

// settle gives an option values that it takes.
func (e *enumeration) settle(t *testing.T, target, name string) (all []thereAndBack) {
	t.Helper()
	for _, value := range []string{"true", "off", "on", "local", "100", "1000", "100000"} {
		there := fmt.Sprintf("ALTER %s SET (%s = %s)", target, name, value)
		if len(all) < 2 && e.accepts(t, there) {
			all = append(all, thereAndBack{there, []string{fmt.Sprintf("ALTER %s RESET (%s)", target, name)}})
		}
	}
	if len(all) == 0 {
		t.Logf("no value is one of %s of %s", name, target)
	}
	return all
}

// listPrivileges takes the privileges of each kind of thing from those that its owner has.
func (e *enumeration) listPrivileges(t *testing.T) (all []thereAndBack) {
	t.Helper()
	for kind, things := range map[string][]string{
		"r": {"TABLE t", "TABLE v"}, "s": {"SEQUENCE seq"}, "d": {"DATABASE d"},
		"f": {"FUNCTION f", "PROCEDURE pr", "FUNCTION ag(int)"}, "l": {"LANGUAGE lang"}, "L": {"LARGE OBJECT 4242"},
		"n": {"SCHEMA s"}, "p": {"PARAMETER work_mem"}, "t": {"TABLESPACE ts"}, "F": {"FOREIGN DATA WRAPPER fdw"},
		"S": {"FOREIGN SERVER srv"}, "T": {"TYPE mood", "DOMAIN whole"},
	} {
		names := strings.SplitSeq(e.value(fmt.Sprintf(`SELECT string_agg(privilege_type, ',' ORDER BY privilege_type)
			FROM aclexplode(acldefault('%s', 10)) WHERE grantee = 10`, kind)), ",")
		for name := range names {
			for _, thing := range things {
				on := []string{name + " ON " + thing}
				if kind == "r" {
					on = append(on, name+" (b) ON "+thing)
				}
				for _, each := range on {
					all = append(all,
						thereAndBack{"GRANT " + each + " TO PUBLIC", []string{"REVOKE " + each + " FROM PUBLIC"}},
						thereAndBack{"GRANT " + each + " TO bob", []string{"REVOKE " + each + " FROM bob"}},
						thereAndBack{"GRANT " + each + " TO alice WITH GRANT OPTION", []string{
							"REVOKE GRANT OPTION FOR " + each + " FROM alice CASCADE", "REVOKE " + each + " FROM alice CASCADE"}},
						thereAndBack{"REVOKE " + each + " FROM postgres", []string{"GRANT " + each + " TO postgres"}})
				}
			}
		}
	}
	slices.SortFunc(all, func(x, y thereAndBack) int { return strings.Compare(x.there, y.there) })
	return all
}

// listSettings gives each setting the value that it has.
func (e *enumeration) listSettings(t *testing.T) (all []thereAndBack) {
	t.Helper()
	rows := e.value("SELECT string_agg(format('%s = %L', name, setting), chr(1) ORDER BY name) FROM pg_settings")
	for setting := range strings.SplitSeq(rows, "\x01") {
		name, _, _ := strings.Cut(setting, " ")
		for _, of := range []string{"PROCEDURE pr", "ROLE alice", "DATABASE d", "ROLE alice IN DATABASE d"} {
			all = append(all, thereAndBack{fmt.Sprintf("ALTER %s SET %s", of, setting),
				[]string{fmt.Sprintf("ALTER %s RESET %s", of, name)}})
		}
	}
	return all
}
