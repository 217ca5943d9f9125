package statement

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
)

// TestStatementsEndWherePsqlEndsThem: psql, which shares its scanner with the server, says what it
// sends.
func TestStatementsEndWherePsqlEndsThem(t *testing.T) {
	t.Parallel()
	s := postgrestest.Need(t)
	dsn := s.Admin(s.Database(t))
	programs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/psql")
	require.NotEmpty(t, programs)
	psql := programs[len(programs)-1]
	for _, text := range []string{
		"SELECT 1; SELECT 2",
		"SELECT 1;;; SELECT 2;",
		"SELECT (1; 2); SELECT 3",
		"SELECT ')'; SELECT '('; SELECT 1",
		"CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END; SELECT 3",
		"create or replace procedure p() begin atomic insert into t values (1); end; SELECT 3",
		"CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN CASE 1 WHEN 2 THEN 3 END END; SELECT 2; " +
			"END; SELECT 3",
		"CREATE FUNCTION f(\"end\" int DEFAULT 1) RETURNS int BEGIN ATOMIC SELECT \"end\"; SELECT 2; END; SELECT 3",
		"CREATE FUNCTION f() RETURNS int LANGUAGE sql RETURN CASE WHEN true THEN 1 END; SELECT 3",
		"CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END $$; SELECT 3",
		"CREATE OR REPLACE VIEW v AS SELECT CASE WHEN true THEN 1 END AS begin; SELECT 3",
		"CREATE RULE r AS ON INSERT TO t DO ALSO (INSERT INTO l VALUES (1); INSERT INTO l VALUES (2)); SELECT 3",
		"CREATE SCHEMA s CREATE TABLE t (a int); SELECT 3",
		"SELECT $1$a;$1$; SELECT $a$;$b$;$a$; SELECT a$b$;SELECT $$;$$ FROM b$",
		"SELECT date'\\'; SELECT e'\\';'; SELECT E'\\\\'; SELECT type'\\'; SELECT U&'\\';SELECT n'\\'; SELECT xe'\\'",
		"SELECT 'it''s;'; SELECT \"a;\"\"b\"; SELECT U&\"a;\"",
		"SELECT 1 -- ; a\n; SELECT 2 /* ; /* ; */ ; */; SELECT 3 -- x\r; SELECT 4",
		"SELECT 1 +-- ;\n 2; SELECT 3 */* ; */ 4; SELECT 5",
		"DO $body$ BEGIN PERFORM 1; END $body$; SELECT 'é;'; SELECT é$$; SELECT 1$$;$$",
		"/* only */ -- this\n",
	} {
		cmd := exec.Command(psql, "--no-psqlrc", "--quiet", "--echo-queries", "--output=/dev/null", dsn)
		cmd.Stdin = strings.NewReader(text)
		echo, err := cmd.Output() // what fails on the server was sent, too
		require.NoError(t, err)
		statements, words := Split(text)
		require.Len(t, words, len(statements))
		require.Equal(t, sent(string(echo)), sent(strings.Join(statements, ";\n")+";"), text)
	}
}

var comment = regexp.MustCompile(`--[^\r\n]*|/\*[^*]*(\*[^*]*)*\*/`)

// sent are lines of statements without what is between these.
func sent(text string) []string {
	var all []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.Trim(comment.ReplaceAllString(line, ""), " ;\r"); line != "" {
			all = append(all, line)
		}
	}
	return all
}
