package postgres_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/testrun"
)

// depot is a schema with all that hangs on columns, from both sides, and with names that an alias
// of ours might have.
//
//nolint:dupword // lists of columns
const depot = `CREATE TABLE place (id int PRIMARY KEY);
	CREATE TABLE item (q int, id int PRIMARY KEY, code text UNIQUE, number serial,
	price numeric NOT NULL DEFAULT 1.5 CONSTRAINT dear CHECK (price > 0), place int REFERENCES place ON DELETE
	SET NULL, h text, "with ""space" text, up int REFERENCES item, last bigserial);
	CREATE TABLE part (id int PRIMARY KEY, item text CONSTRAINT of REFERENCES item (code) ON UPDATE CASCADE);
	COMMENT ON CONSTRAINT of ON part IS 'belongs to';
	CREATE INDEX cheap ON item (price) WHERE price < 9; CREATE INDEX pair ON item (h, price);
	COMMENT ON INDEX pair IS 'two';
	COMMENT ON COLUMN item.price IS 'with tax'; COMMENT ON CONSTRAINT dear ON item IS 'never free';
	COMMENT ON COLUMN item.last IS 'the end';
	ALTER TABLE item ALTER price SET STATISTICS 50, ALTER h SET STORAGE EXTERNAL;
	CREATE STATISTICS st ON price, h FROM item;
	GRANT SELECT (price), UPDATE (h), REFERENCES (code) ON item TO PUBLIC;
	GRANT SELECT (price) ON item TO postgres WITH GRANT OPTION; GRANT USAGE ON SEQUENCE item_number_seq TO PUBLIC;
	CREATE VIEW sold AS SELECT id, price, h FROM item WHERE price > 3;
	CREATE VIEW best WITH (security_barrier = true) AS SELECT id FROM sold; GRANT SELECT ON sold TO PUBLIC;
	COMMENT ON COLUMN sold.price IS 'much';
	CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'nobody updates'; END $$;
	CREATE TRIGGER touched BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION touch();
	CREATE TRIGGER priced AFTER UPDATE OF price ON item FOR EACH ROW WHEN (OLD.price > NEW.price) EXECUTE FUNCTION touch();
	CREATE RULE keep AS ON UPDATE TO item DO INSTEAD NOTHING;
	INSERT INTO place VALUES (1); INSERT INTO item (q, id, code, price, place, h) SELECT g, g, 'c' || g, g, 1, 'h' || g
	FROM generate_series(1, 30) g; INSERT INTO part SELECT g, 'c' || g FROM generate_series(1, 9) g`

// TestDroppedColumnsComeBackWhereTheyWere compares whole dumps, with the schema.
func TestDroppedColumnsComeBackWhereTheyWere(t *testing.T) {
	t.Parallel()
	for statement, schema := range map[string]string{
		"ALTER TABLE person DROP COLUMN note":                             office,
		"ALTER TABLE person DROP mail CASCADE":                            office,
		"ALTER TABLE person DROP age CASCADE":                             office,
		"ALTER TABLE person DROP team":                                    office,
		"ALTER TABLE person DROP note, DROP team, ADD late int":           office,
		"ALTER TABLE item DROP q":                                         depot,
		"ALTER TABLE item DROP code CASCADE":                              depot,
		"ALTER TABLE item DROP number":                                    depot,
		"ALTER TABLE item DROP price CASCADE":                             depot,
		"ALTER TABLE item DROP place, DROP last":                          depot,
		"ALTER TABLE item DROP h CASCADE":                                 depot,
		`ALTER TABLE item DROP "with ""space", ALTER price SET DEFAULT 7`: depot,
		"ALTER TABLE item DROP price CASCADE, ADD price text DEFAULT 'much'; CREATE VIEW sold AS SELECT price " +
			"FROM item": depot,
		"ALTER TABLE item DROP number; ALTER TABLE item DROP q; ALTER TABLE item RENAME last " +
			"TO number": depot,
		"ALTER TABLE item RENAME last TO final; ALTER TABLE item RENAME CONSTRAINT dear TO d; ALTER TABLE " +
			"item DROP q": depot,
	} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			d := newDatabase(t, schema)
			first := d.exec(map[string]string{office: "UPDATE person SET age = age + 1 WHERE id = 3",
				depot: "UPDATE part SET item = 'c20' WHERE id = 3"}[schema])
			before := d.wholeDump()
			first.apply()
			s := d.exec(statement)
			planned := s.plan()
			require.Regexp(t, `drops \d columns? of public\.\w+ \(.+\), with the values of 30 rows`, planned.Summary)
			require.Contains(t, planned.Diff, "- id=1 ")
			require.True(t, planned.Ask)
			_, err := s.action.Apply(t.Context(), s.entry, s.with, planned.Digest)
			require.NoError(t, err)
			left := d.wholeDump()
			s.apply()
			require.Equal(t, left, d.wholeDump(), "a retry after the commit was lost finds it")
			seen, err := s.action.Observe(t.Context(), s.entry)
			require.NoError(t, err)
			require.Equal(t, activities.AsLeft, seen.State, seen.Detail)
			s.undo(activities.Restored)
			s.undo(activities.Restored)
			first.undo(activities.Restored)
			require.Equal(t, before, d.wholeDump())
			require.Equal(t, "0", d.value("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'unwind\\_%'"))
		})
	}
}

// TestASequenceThatAColumnOwnsComesBackWithIt: at its position, and released with the record.
func TestASequenceThatAColumnOwnsComesBackWithIt(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, depot)
	s := d.exec("ALTER TABLE item DROP number, DROP last")
	s.apply()
	require.Equal(t, "true", d.value("SELECT to_regclass('item_number_seq') IS NULL"))
	s.undo(activities.Restored)
	d.run("INSERT INTO item (id) VALUES (77)")
	require.Equal(t, "31 31", d.value("SELECT number || ' ' || last FROM item WHERE id = 77"))
	s = d.exec("ALTER TABLE item DROP number")
	s.apply()
	require.NoError(t, s.action.Release(t.Context(), s.entry))
	require.Equal(t, "1",
		d.value("SELECT count(*) FROM pg_class WHERE relkind = 'S' AND oid >= 16384 AND relname LIKE 'item%'"))
	require.Equal(t, "0", d.value("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'unwind\\_%'"))
}

// TestStepsAroundADroppedColumnAreUndoneInOrder: what each of them knows of rows and names stays
// right.
func TestStepsAroundADroppedColumnAreUndoneInOrder(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, depot, "DROP RULE keep ON item; DROP TRIGGER touched ON item; DROP TRIGGER priced ON item")
	before := d.wholeDump()
	steps := []*step{
		d.exec("UPDATE item SET h = 'x' WHERE id < 10"), d.exec("ALTER TABLE item RENAME last TO final"),
		d.exec("ALTER TABLE item RENAME CONSTRAINT dear TO d"), d.exec("ALTER VIEW sold RENAME TO gone"),
		d.exec("ALTER TABLE item DROP q"), d.exec("ALTER TABLE item DROP price CASCADE"),
		d.exec("UPDATE item SET h = 'y', id = id + 100 WHERE id < 20"),
		d.exec("DELETE FROM item WHERE id > 25 AND id < 100; INSERT INTO item (id) VALUES (500)"),
		d.exec("ALTER TABLE item DROP h"), d.exec("ALTER TABLE item ADD price text"),
		d.exec("UPDATE item SET price = 'cheap'"), d.exec("ALTER TABLE item DROP price"), d.exec("TRUNCATE item CASCADE"),
		d.exec("DROP TABLE item CASCADE"),
	}
	for _, s := range steps {
		s.apply()
	}
	steps[4].undo(activities.Drifted)
	for _, s := range slices.Backward(steps) {
		s.undo(activities.Restored)
	}
	require.Equal(t, before, d.wholeDump())
}

// TestWhatOthersDidToATableWithADroppedColumnIsNotLost: nothing is touched, and the reason is
// shown.
func TestWhatOthersDidToATableWithADroppedColumnIsNotLost(t *testing.T) {
	t.Parallel()
	const drop = "ALTER TABLE item DROP number"
	for others, c := range map[string]struct{ step, shows string }{
		"ALTER TABLE item ADD number int": {drop,
			"table public.item, of which the step has dropped columns, was altered"},
		"ALTER TABLE item ADD more int":         {drop, "more integer"},
		"ALTER TABLE item DROP place":           {drop, "was altered"},
		"ALTER TABLE item ALTER up TYPE bigint": {drop, "up bigint"},
		"ALTER TABLE item RENAME up TO down":    {drop, "was altered"},
		"ALTER TABLE item RENAME TO things":     {drop, "was altered"},
		"DROP TABLE item CASCADE":               {drop, "is gone"},
		"CREATE SEQUENCE item_number_seq":       {drop, "is not as the step left it"},
		"ALTER TABLE item DROP CONSTRAINT item_pkey CASCADE": {drop,
			"by which the values of dropped columns find their rows again, is another one now"},
		"ALTER TABLE item ENABLE ALWAYS TRIGGER touched": {drop,
			"trigger touched of table public.item would run on the rows"},
		"ALTER TABLE item ENABLE REPLICA RULE keep": {drop,
			"rule keep of table public.item would run on the rows"},
		"CREATE OR REPLACE VIEW sold AS SELECT id, price, h FROM item": {drop,
			`\n  WHERE (item.price > (3)::numeric); O`},
		"REVOKE SELECT ON sold FROM PUBLIC": {drop,
			"an undo would lose it\n- relation public.sold"},
		"COMMENT ON VIEW sold IS 'theirs'":                      {drop, "- comment view public.sold theirs"},
		"COMMENT ON CONSTRAINT dear ON item IS 'theirs'":        {drop, "never free"},
		"ALTER TABLE item ADD CONSTRAINT more CHECK (h <> 'x')": {drop, "- constraint public.item more"},
		"CREATE INDEX theirs ON item (up)":                      {drop, "theirs"},
		"DROP INDEX cheap":                                      {drop, "+ index public.cheap"},
		"ALTER TABLE item ALTER price SET (n_distinct = 5)":     {drop, "n_distinct=5"},
		"ALTER TABLE item ALTER price SET DEFAULT 9":            {drop, "price numeric t 9"},
		"GRANT UPDATE (price) ON item TO PUBLIC":                {drop, "an undo would lose it"},
		"DROP VIEW best": {drop,
			"cannot be taken back beside what others have done since"},
		"CREATE VIEW late AS SELECT up FROM item": {drop,
			"cannot be taken back beside what others have done since"},
		"INSERT INTO item (id) VALUES (99)": {
			"ALTER TABLE item ALTER price DROP DEFAULT; ALTER TABLE item DROP price CASCADE", "contains null values"},
		"INSERT INTO item (id) VALUES (88); DELETE FROM item WHERE id = 30": {drop,
			"1 row of public.item with a key that is new since the step, and 1 key gone"},
		"DROP RULE keep ON item; ALTER TABLE item DISABLE TRIGGER touched; UPDATE item SET id = 66 WHERE id = 6": {drop,
			"whether rows were deleted and inserted or their keys changed"},
	} {
		t.Run(others, func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			d := newDatabase(t, depot)
			s := d.exec(c.step)
			s.apply()
			d.run(others)
			theirs := d.wholeDump()
			require.Contains(t, s.undo(activities.Drifted).Drift.Diff, c.shows)
			require.Equal(t, theirs, d.wholeDump())
		})
	}
}

// TestRowsThatOthersChangedKeepTheirValuesOfADroppedColumn: deleted ones stay so, and inserted ones
// have what the column has by default.
func TestRowsThatOthersChangedKeepTheirValuesOfADroppedColumn(t *testing.T) {
	t.Parallel()
	const free = "DROP RULE keep ON item; DROP TRIGGER touched ON item; DROP TRIGGER priced ON item"
	for others, sees := range map[string]map[string]string{
		"UPDATE item SET h = 'theirs', up = 1 WHERE id = 3": {
			"SELECT price || h || up FROM item WHERE id = 3": "3theirs1", "SELECT count(*) FROM item": "30"},
		"DELETE FROM item WHERE id > 20": {"SELECT sum(price) FROM item": "210"},
		"INSERT INTO item (id, h) VALUES (99, 'x'), (98, NULL)": {
			"SELECT string_agg(price::text, ' ') FROM item WHERE id > 90": "1.5 1.5",
			"SELECT price FROM item WHERE id = 5":                         "5"},
		"CREATE INDEX theirs ON item (code); ANALYZE item": {
			"SELECT count(*) FROM pg_class WHERE relname = 'theirs'": "1"},
		"CREATE VIEW theirs AS SELECT code FROM item WHERE id <> 3": {"SELECT count(*) FROM theirs": "29"},
	} {
		t.Run(others, func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			d := newDatabase(t, depot, free)
			s := d.exec("ALTER TABLE item DROP price CASCADE")
			s.apply()
			d.run(others)
			s.undo(activities.Restored)
			for query, want := range sees {
				require.Equal(t, want, d.value(query))
			}
		})
	}
}

// TestPrivilegesAreRevokedJustBeforeTheyAreGrantedAgain: a foreign key that an undo makes anew
// needs REFERENCES, a trigger TRIGGER.
func TestPrivilegesAreRevokedJustBeforeTheyAreGrantedAgain(t *testing.T) {
	t.Parallel()
	d := newDatabase(t,
		`CREATE TABLE node (id int PRIMARY KEY, label text, up int REFERENCES node); GRANT SELECT (label) ON node TO PUBLIC;
			INSERT INTO node VALUES (1, 'root', NULL), (2, 'leaf', 1)`)
	before := d.wholeDump()
	s := d.exec("ALTER TABLE node DROP label")
	s.apply()
	s.undo(activities.Restored)
	require.Equal(t, before, d.wholeDump())
}

// TestColumnsThatCannotComeBackAreNotDropped: nothing is changed, and the reason is said.
func TestColumnsThatCannotComeBackAreNotDropped(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, depot,
		`CREATE TABLE sums (id int PRIMARY KEY, a int, b int, twice int GENERATED ALWAYS AS (b * 2) STORED,
			n int GENERATED ALWAYS AS IDENTITY, c int);
		CREATE TABLE parent (id int PRIMARY KEY, v int); CREATE TABLE child (w int) INHERITS (parent);
		CREATE TABLE parted (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
		CREATE TABLE part1 PARTITION OF parted DEFAULT;
		CREATE TABLE shared (id int PRIMARY KEY, number int DEFAULT nextval('item_number_seq'));
		CREATE MATERIALIZED VIEW kept AS SELECT up FROM item;
		CREATE TABLE loud (id int PRIMARY KEY, v int); CREATE TRIGGER always BEFORE UPDATE ON loud FOR EACH ROW EXECUTE
		FUNCTION touch(); ALTER TABLE loud ENABLE ALWAYS TRIGGER always;
		CREATE TABLE tuned (id int PRIMARY KEY, v int, w int); ALTER TABLE tuned ALTER w SET (n_distinct = 5);
		CREATE TABLE loose (a int, b int); CREATE TABLE other (a int NOT NULL UNIQUE, b int, c int)`)
	before := d.wholeDump()
	for statement, why := range map[string]string{
		"ALTER TABLE sums DROP a": "a generated or identity column goes, or stands behind " +
			"one that goes",
		"ALTER TABLE sums DROP n":         "a generated or identity column goes",
		"ALTER TABLE sums DROP b CASCADE": "a generated or identity column goes",
		"ALTER TABLE child DROP w": "a column of a partition, or of a table that others " +
			"inherit from",
		"ALTER TABLE parent DROP v": "a column of a partition, or of a table that others " +
			"inherit from, cannot be put back",
		"ALTER TABLE parted DROP v": "a column of a partition, or of a table that others " +
			"inherit from, cannot be put back",
		"ALTER TABLE item DROP number CASCADE": "the column would leave: column public.shared",
		"ALTER TABLE item DROP up CASCADE":     "it has no exact inverse",
		// the materialized view needs what stands behind
		"ALTER TABLE item DROP q": "it has no exact inverse",
		"ALTER TABLE loud DROP v": "trigger always would run on the rows while an undo " +
			"fills them",
		"ALTER TABLE tuned DROP v":                              "n_distinct=5",
		"ALTER TABLE loose DROP b":                              "by which the values find their rows again",
		"ALTER TABLE other DROP b, DROP CONSTRAINT other_a_key": "by which the values find their rows again",
	} {
		d.exec(statement).refused(why)
	}
	require.Equal(t, before, d.wholeDump())
	d.exec("ALTER TABLE sums DROP c").plan()
}
