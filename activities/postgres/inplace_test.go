package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// office is a schema with all that statements can change in place.
//
//nolint:dupword // lists of columns
const office = `CREATE SCHEMA hr; CREATE TABLE hr.team (id int PRIMARY KEY, name text); CREATE SEQUENCE hr.numbers;
	CREATE TABLE person (id int PRIMARY KEY, mail text NOT NULL DEFAULT 'none', age int CHECK (age > 0),
	team int REFERENCES hr.team ON DELETE CASCADE, note text DEFAULT 'x');
	COMMENT ON TABLE person IS 'who works here'; COMMENT ON COLUMN person.mail IS 'it''s';
	CREATE INDEX person_age ON person (age) WHERE age > 3; CREATE UNIQUE INDEX one_mail ON person (lower(mail));
	ALTER TABLE person ADD CONSTRAINT pair UNIQUE (mail, age); COMMENT ON CONSTRAINT pair ON person IS 'both';
	CREATE STATISTICS hr.st ON age, team FROM person; ALTER TABLE person ALTER age SET STATISTICS 7;
	CREATE FUNCTION f(a int, b text DEFAULT 'q') RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT a';
	COMMENT ON FUNCTION f IS 'f'; REVOKE ALL ON FUNCTION f FROM PUBLIC;
	CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
	CREATE TRIGGER touched BEFORE UPDATE ON person FOR EACH ROW WHEN (OLD.age > 1) EXECUTE FUNCTION touch();
	ALTER TABLE person DISABLE TRIGGER touched; COMMENT ON TRIGGER touched ON person IS 'off';
	CREATE VIEW adult WITH (security_barrier = true) AS SELECT id, mail FROM person
	WHERE age > 17 WITH CASCADED CHECK OPTION; COMMENT ON VIEW adult IS 'grown up';
	GRANT SELECT, UPDATE (mail) ON adult TO PUBLIC;
	CREATE VIEW adult_mail AS SELECT mail FROM adult; ALTER VIEW adult ALTER mail SET DEFAULT 'm';
	CREATE RULE quiet AS ON DELETE TO adult DO INSTEAD NOTHING;
	CREATE POLICY mine ON hr.team FOR SELECT TO PUBLIC USING (id > 0); GRANT SELECT ON person TO PUBLIC;
	GRANT SELECT ON person TO postgres WITH GRANT OPTION; GRANT UPDATE (age), SELECT (mail, tableoid) ON person TO PUBLIC;
	CREATE TYPE mood AS ENUM ('b', 'a'); COMMENT ON TYPE mood IS 'm';
	CREATE DOMAIN short AS text DEFAULT 'd' CHECK (length(value) < 9); CREATE TYPE both_of AS (a int, b mood);
	CREATE TABLE hr.log (at mood, n serial);
	CREATE MATERIALIZED VIEW ids AS SELECT id FROM person; CREATE UNIQUE INDEX by_id ON ids (id);
	GRANT SELECT ON ids TO PUBLIC; INSERT INTO hr.log VALUES ('a'); SELECT nextval('hr.numbers');
	INSERT INTO hr.team VALUES (1, 'a'); INSERT INTO person SELECT g, 'm' || g, g, 1, NULL FROM generate_series(1, 30) g`

// TestStatementsThatChangeTheSchemaInPlaceAreUndoneExactly compares whole dumps, with the schema.
func TestStatementsThatChangeTheSchemaInPlaceAreUndoneExactly(t *testing.T) {
	t.Parallel()
	for statement, says := range map[string]string{
		"ALTER TABLE person RENAME " +
			"TO people": "renames table public.person to people",
		"ALTER TABLE person RENAME id TO number; UPDATE person SET " +
			"age = 99": "renames column public.person.id to number",
		"ALTER TABLE person RENAME CONSTRAINT " +
			"pair TO two": "renames constraint pair of public.person to two",
		"ALTER INDEX person_age RENAME TO ages; ALTER INDEX pair " +
			"RENAME TO two": "renames index public.person_age to ages",
		"ALTER VIEW adult RENAME TO grown; ALTER VIEW grown RENAME " +
			"mail TO m": "renames view public.adult to grown",
		"ALTER FUNCTION f(int, text) RENAME TO g; ALTER SCHEMA hr RENAME " +
			"TO people": "renames function public.f(integer,text) to g",
		"ALTER SEQUENCE hr.numbers RENAME TO n; ALTER TABLE hr.team SET " +
			"SCHEMA public": "renames sequence hr.numbers to n",
		"ALTER TABLE person ALTER mail SET DEFAULT 'other', ALTER note " +
			"DROP DEFAULT": "drops the default of public.person.note; changes the default of public.person.mail",
		"ALTER TABLE person ALTER mail DROP NOT NULL; INSERT INTO person VALUES " +
			"(99, NULL)": "drops NOT NULL of public.person.mail",
		"ALTER TABLE person ALTER team SET " +
			"NOT NULL": "sets NOT NULL of public.person.team",
		"ALTER TABLE person DROP CONSTRAINT person_age_check, DROP " +
			"CONSTRAINT pair": "drops constraint pair of public.person, constraint person_age_check of public.person",
		"ALTER TABLE hr.team DROP CONSTRAINT " +
			"team_pkey CASCADE": "drops constraint team_pkey of hr.team, constraint person_team_fkey of public.person",
		"ALTER TABLE person ALTER age SET STATISTICS 9, ALTER mail SET STORAGE EXTERNAL, SET (fillfactor = 70), REPLICA " +
			"IDENTITY FULL": "changes",
		"ALTER TABLE person CLUSTER ON pair; ALTER TABLE person FORCE ROW LEVEL " +
			"SECURITY": "sets the clustering of public.person",
		"ALTER TABLE hr.team ENABLE ROW LEVEL SECURITY; DROP POLICY mine " +
			"ON hr.team": "changes row security of hr.team",
		"CREATE POLICY more ON hr.team AS RESTRICTIVE USING (id < 9); ALTER POLICY mine ON hr.team TO " +
			"postgres": "sets policy more on hr.team",
		"ALTER TABLE person ENABLE TRIGGER touched; DROP TRIGGER touched " +
			"ON person": "changes whether trigger touched on public.person runs",
		"CREATE TRIGGER another AFTER INSERT ON person EXECUTE " +
			"FUNCTION touch()": "sets trigger another on public.person",
		"DROP RULE quiet ON adult; CREATE RULE loud AS ON DELETE TO adult DO INSTEAD " +
			"SELECT 1": "drops rule quiet on public.adult",
		"DROP SEQUENCE hr.numbers; DROP " +
			"DOMAIN short": "drops sequence hr.numbers; drops domain public.short",
		"DROP TYPE both_of; DROP MATERIALIZED " +
			"VIEW ids": "drops type public.both_of; drops materialized view public.ids",
		"DROP SCHEMA hr CASCADE; CREATE SCHEMA hr; CREATE TABLE " +
			"hr.team (x int)": "drops schema hr with table hr.",
		"DROP INDEX person_age, one_mail; DROP " +
			"STATISTICS hr.st": "drops index public.one_mail, index public.person_age",
		"CREATE OR REPLACE VIEW adult_mail AS SELECT mail, id FROM adult " +
			"WHERE id > 3": "changes view public.adult_mail",
		"CREATE OR REPLACE VIEW adult AS SELECT id, mail " +
			"FROM person": "changes view public.adult",
		"DROP VIEW adult CASCADE": "drops view public.adult, view public.adult_mail",
		"ALTER VIEW adult RESET (check_option); ALTER VIEW adult ALTER mail " +
			"DROP DEFAULT": "changes view public.adult",
		"CREATE OR REPLACE FUNCTION f(a int, b text DEFAULT 'z') RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN " +
			"3; END $$": "changes function public.f(integer,text)",
		"ALTER FUNCTION f SECURITY DEFINER SET " +
			"search_path = hr": "changes function public.f(integer,text)",
		"CREATE OR REPLACE FUNCTION g() RETURNS int LANGUAGE sql AS " +
			"'SELECT 1'": "makes routine public.g()",
		"COMMENT ON TABLE person IS NULL; COMMENT ON COLUMN person.age IS 'years'; COMMENT ON FUNCTION " +
			"f IS 'g'": "drops the comment on table public.person",
		"COMMENT ON SCHEMA hr IS 's'; COMMENT ON INDEX one_mail IS 'i'; COMMENT ON POLICY mine ON " +
			"hr.team IS 'p'": "sets the comment on schema hr",
		"GRANT SELECT (ctid) ON person TO PUBLIC": "changes privileges of table public.person",
		"GRANT ALL ON person TO PUBLIC; REVOKE SELECT ON person FROM " +
			"postgres": "changes privileges of table public.person",
		"REVOKE ALL ON person FROM PUBLIC; REVOKE INSERT ON person " +
			"FROM worker": "changes privileges of table public.person",
		"GRANT EXECUTE ON FUNCTION f TO PUBLIC; GRANT USAGE ON SCHEMA hr TO PUBLIC; GRANT USAGE ON SEQUENCE hr.numbers " +
			"TO PUBLIC": "changes privileges of function public.f(integer,text)",
		"GRANT SELECT ON ALL TABLES IN SCHEMA hr TO PUBLIC; REVOKE UPDATE (age) ON person " +
			"FROM PUBLIC": "changes privileges of table hr.team",
	} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			d := newDatabase(t, office)
			before := d.wholeDump()
			d.exec("UPDATE person SET age = age + 1 WHERE id = 3").apply() // the table is prepared
			d.run("UPDATE person SET age = 3 WHERE id = 3")
			s := d.exec(statement)
			planned := s.plan()
			require.Contains(t, planned.Summary, says)
			require.Equal(t, before, d.wholeDump(), "after the plan")
			_, err := s.action.Apply(t.Context(), s.entry, s.with, planned.Digest)
			require.NoError(t, err)
			require.NotEqual(t, before, d.wholeDump())
			seen, err := s.action.Observe(t.Context(), s.entry)
			require.NoError(t, err)
			require.Equal(t, activities.AsLeft, seen.State, seen.Detail)
			s.undo(activities.Restored)
			require.Equal(t, before, d.wholeDump())
			s.undo(activities.Restored)
			again := d.exec("UPDATE person SET age = age + 1 WHERE id = 3")
			again.apply()
			again.undo(activities.Restored)
			require.Equal(t, before, d.wholeDump())
		})
	}
}

// TestWhatOthersDidToWhatAStepChangedInPlaceIsNotLost: nothing is touched, and the reason is shown.
func TestWhatOthersDidToWhatAStepChangedInPlaceIsNotLost(t *testing.T) {
	t.Parallel()
	for step, c := range map[string]struct{ others, shows string }{
		"ALTER TABLE person RENAME TO people": {"ALTER TABLE people RENAME TO humans",
			"table public.person is not as the step left it"},
		"ALTER TABLE person RENAME mail TO address": {"ALTER TABLE person DROP address CASCADE",
			"column public.person.mail is not as the step left it"},
		"ALTER TABLE person ALTER mail SET DEFAULT 'a'": {"ALTER TABLE person ALTER mail SET DEFAULT 'b'",
			"the default of public.person.mail is not"},
		"ALTER TABLE person ALTER mail DROP NOT NULL": {"INSERT INTO person VALUES (99, NULL)",
			"contains null values"},
		"ALTER TABLE person DROP CONSTRAINT pair": {
			"INSERT INTO person (id, mail, age) VALUES (98, 'M', 1), (99, 'N', 1); UPDATE person SET mail = 'x', age = 3 " +
				"WHERE id < 2; DROP INDEX one_mail; UPDATE person SET mail = 'x', age = 3 WHERE id < 3",
			"could not create unique index"},
		"DROP INDEX person_age": {"CREATE INDEX person_age ON person (age)",
			"index public.person_age is not as the step left it"},
		"CREATE OR REPLACE VIEW adult_mail AS SELECT 'a' AS mail": {
			"CREATE OR REPLACE VIEW adult_mail AS SELECT 'b' AS mail", "view public.adult_mail is not as the step left it"},
		"CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 1'": {
			"CREATE OR REPLACE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT 2'",
			"function public.g() is not as the step left it"},
		"COMMENT ON TABLE person IS 'ours'; ALTER TABLE person RENAME TO p": {"COMMENT ON TABLE p IS 'theirs'",
			"the comment on table public.person is not as the step left it"},
		"REVOKE ALL ON person FROM PUBLIC": {"GRANT INSERT ON person TO PUBLIC",
			"privileges of table public.person is not as the step left it"},
		"CREATE TRIGGER t BEFORE UPDATE ON person EXECUTE FUNCTION suppress_redundant_updates_trigger()": {
			"COMMENT ON TRIGGER t ON person IS 'theirs'", "would take along what others did since: the comment on trigger t on"},
		"CREATE RULE r AS ON DELETE TO person DO NOTHING": {"COMMENT ON RULE r ON person IS 'theirs'",
			"would take along what others did since: the comment on rule r on"},
		"CREATE POLICY p ON person USING (true)": {"COMMENT ON POLICY p ON person IS 'theirs'",
			"would take along what others did since: the comment on policy p on"},
		"CREATE STATISTICS s ON mail, age FROM person": {"COMMENT ON STATISTICS s IS 'theirs'",
			"would take along what others did since: the comment on statistics public.s"},
		"CREATE STATISTICS two ON id, age FROM person": {"ALTER STATISTICS two SET STATISTICS 7",
			"the target of statistics public.two is not as the step left it"},
		"ALTER TABLE person ADD CONSTRAINT grown CHECK (age > 0)": {"COMMENT ON CONSTRAINT grown ON person IS 'theirs'",
			"would be lost: comment constraint grown on table public.person theirs"},
		"CREATE OR REPLACE VIEW adult_mail AS SELECT mail, 1 AS one FROM person WHERE age >= 18": {
			"COMMENT ON VIEW adult_mail IS 'theirs'",
			"would take along what others did since: the comment on view public.adult_mail"},
		"CREATE OR REPLACE VIEW adult_mail AS SELECT mail, 2 AS two FROM person WHERE age >= 18": {
			"GRANT SELECT ON adult_mail TO PUBLIC",
			"would take along what others did since: privileges of view public.adult_mail"},
		"DROP VIEW adult_mail": {"ALTER TABLE person DROP COLUMN mail CASCADE",
			"cannot be taken back beside what others have done since"},
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			d := newDatabase(t, office, `UPDATE person SET mail = upper(mail) WHERE id = 1`)
			s := d.exec(step)
			s.apply()
			d.run(c.others)
			theirs := d.wholeDump()
			require.Contains(t, s.undo(activities.Drifted).Drift.Diff, c.shows)
			require.Equal(t, theirs, d.wholeDump())
		})
	}
}

// TestARowWrittenAfterItsKeyWasRenamed: the trigger that captures rows names columns, and is made
// anew wherever it does not fit.
func TestARowWrittenAfterItsKeyWasRenamed(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, people)
	before := d.dump()
	first := d.exec("UPDATE person SET mail = 'one' WHERE id = 1")
	first.apply()
	second := d.exec("ALTER TABLE person RENAME id TO number", "UPDATE person SET mail = 'two' WHERE number = 2")
	require.Contains(t, second.plan().Summary, "public.person: 1 row changed")
	second.apply()
	second.undo(activities.Restored)
	first.undo(activities.Restored)
	require.Equal(t, before, d.dump())
	d.run("ALTER TABLE person RENAME id TO theirs")
	third := d.exec("UPDATE person SET mail = 'three' WHERE theirs = 3")
	require.Contains(t, third.plan().Summary, "1 row changed")
	third.apply()
	third.undo(activities.Restored)
}
