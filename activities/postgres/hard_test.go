package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

// TestWhatPostgresCanDoToRows undoes each way in which rows change that a simple capture would
// miss.
//
//nolint:dupword // SQL
func TestWhatPostgresCanDoToRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		schema     string
		statements []string
	}{
		"insert on conflict": {
			"CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'one')",
			[]string{"INSERT INTO t VALUES (1, 'uno'), (2, 'dos') ON CONFLICT (id) DO UPDATE SET v = excluded.v",
				"INSERT INTO t VALUES (2, 'x') ON CONFLICT DO NOTHING"},
		},
		"merge": {
			"CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM generate_series(1, 5) g",
			[]string{"MERGE INTO t USING generate_series(4, 7) g ON g = id WHEN MATCHED AND id = 4 THEN DELETE WHEN MATCHED " +
				"THEN UPDATE SET v = 0 WHEN NOT MATCHED THEN INSERT VALUES (g, g)"},
		},
		"writable CTE": {
			"CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE old (id int PRIMARY KEY, v int); INSERT INTO t SELECT " +
				"g, g FROM generate_series(1, 5) g",
			[]string{"WITH gone AS (DELETE FROM t WHERE id < 3 RETURNING *), moved AS (INSERT INTO old SELECT * FROM gone " +
				"RETURNING id) SELECT count(*) FROM moved"},
		},
		"cascades": {
			`CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a ON DELETE CASCADE ON
				UPDATE CASCADE);
			CREATE TABLE c (id int PRIMARY KEY, b int REFERENCES b ON DELETE SET NULL, a int DEFAULT 3 REFERENCES a ON DELETE
			SET DEFAULT ON UPDATE CASCADE);
			INSERT INTO a VALUES (1), (2), (3); INSERT INTO b VALUES (1, 1), (2, 2); INSERT INTO c VALUES (1, 1, 1), (2, 2, 2)`,
			[]string{"DELETE FROM a WHERE id = 1", "UPDATE a SET id = 20 WHERE id = 2"},
		},
		"a row changed many times": {
			"CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)",
			[]string{"UPDATE t SET v = 10", "DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (1, 3)",
				"INSERT INTO t VALUES (5, 5)", "DELETE FROM t WHERE id = 5", "UPDATE t SET id = 7 WHERE id = 2",
				"UPDATE t SET id = 2 WHERE id = 7"},
		},
		"keys swapped and shifted": {
			"CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, k int NOT NULL UNIQUE, v text); INSERT INTO t SELECT g, g, 'v' " +
				"|| g FROM generate_series(1, 20) g",
			[]string{"UPDATE t SET k = -k; UPDATE t SET k = 1 - k", "UPDATE t SET id = 21 - id"},
		},
		"triggers write elsewhere and on the same table": {
			`CREATE TABLE t (id int PRIMARY KEY, v int, changed int NOT NULL DEFAULT 0);
				CREATE TABLE audit (n bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, what text);
			INSERT INTO t VALUES (1, 1), (2, 2), (3, 3);
			CREATE FUNCTION before() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.changed := OLD.changed + 1; RETURN NEW;
			END $$;
			CREATE TRIGGER b BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION before();
			CREATE FUNCTION after() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit (what) VALUES (NEW::text);
				IF pg_trigger_depth() = 1 THEN UPDATE t SET v = v + 100 WHERE id > NEW.id; END IF; RETURN NULL; END $$;
			CREATE TRIGGER "  first" AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION after()`,
			[]string{"UPDATE t SET v = v * 2"},
		},
		"columns that were dropped, added with a default, and named like what captures them": {
			`CREATE TABLE t (gone int, id int PRIMARY KEY, q text, key text, also int, place int, image text, o text, n text,
				r text, tg_op text, tg_relid int, old_rows text, record int);
			INSERT INTO t (id, q, key, r) SELECT g, 'q', 'k', g FROM generate_series(1, 5) g; ALTER TABLE t DROP gone, DROP also;
			ALTER TABLE t ADD later text NOT NULL DEFAULT 'since'; ALTER TABLE t ADD "%s" text, ADD made text GENERATED ALWAYS
			AS (q || key) STORED`,
			[]string{"UPDATE t SET q = r WHERE id > 1", "DELETE FROM t WHERE id = 3",
				"INSERT INTO t (id, record) VALUES (9, 9)"},
		},
		"a row that one statement changes twice, by two keys": {
			`CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE t (id int PRIMARY KEY, x int REFERENCES a ON
				UPDATE CASCADE, y int REFERENCES a ON UPDATE CASCADE, up int REFERENCES t ON UPDATE CASCADE ON DELETE CASCADE);
			INSERT INTO a VALUES (1), (2); INSERT INTO t VALUES (1, 1, 2, NULL), (2, 1, 1, 1), (3, 2, 2, 3), (4, 2, 1, 2)`,
			[]string{"UPDATE a SET id = id + 10", "UPDATE t SET id = 101 WHERE id = 1", "DELETE FROM t WHERE id = 101"},
		},
		"a set that cascades into its own table": {
			`CREATE TABLE t (id int PRIMARY KEY, up int DEFAULT 1 REFERENCES t ON UPDATE SET DEFAULT ON DELETE SET NULL);
				INSERT INTO t SELECT g, nullif(g - 1, 0) FROM generate_series(1, 20) g`,
			[]string{"DELETE FROM t WHERE id % 3 = 2", "UPDATE t SET id = id + 1000 WHERE id > 1"},
		},
		"a trigger deletes what the same statement inserted": {
			`CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (9, 9);
			CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM t WHERE id = NEW.id + 1; RETURN NULL;
			END $$;
			CREATE TRIGGER " f" AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()`,
			[]string{"INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (8, 8)"},
		},
		"a trigger that is deferred to the commit": {
			`CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE audit (n int PRIMARY KEY); INSERT INTO t VALUES (1, 1);
			CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit VALUES (NEW.v); RETURN NULL;
			END $$;
			CREATE CONSTRAINT TRIGGER f AFTER UPDATE ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION f()`,
			[]string{"UPDATE t SET v = 2"},
		},
		"deferred foreign keys in a circle": {
			`CREATE TABLE a (id int PRIMARY KEY, b int NOT NULL); CREATE TABLE b (id int PRIMARY KEY, a int NOT NULL REFERENCES
				a DEFERRABLE INITIALLY DEFERRED);
			ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b DEFERRABLE INITIALLY DEFERRED;
			BEGIN; INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (1, 1); COMMIT`,
			[]string{"INSERT INTO a VALUES (2, 2)", "INSERT INTO b VALUES (2, 2)", "DELETE FROM a WHERE id = 1",
				"DELETE FROM b WHERE id = 1"},
		},
		"a foreign key to the same table": {
			"CREATE TABLE t (id int PRIMARY KEY, up int REFERENCES t ON DELETE CASCADE); INSERT INTO t VALUES (1, NULL), " +
				"(2, 1), (3, 2), (4, 3)",
			[]string{"DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (9, 1), (8, 9)"},
		},
		"partitions, and rows that move": {
			`CREATE TABLE p (id int, at int, v text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
				CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
			CREATE TABLE p2 (v text, at int NOT NULL, id int NOT NULL);
			ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
			CREATE TABLE f (id int PRIMARY KEY, p int, at int, FOREIGN KEY (p, at) REFERENCES p ON UPDATE CASCADE);
			INSERT INTO p SELECT g, g, 'v' FROM generate_series(1, 15) g; INSERT INTO f VALUES (1, 3, 3), (2, 12, 12)`,
			[]string{"UPDATE p SET at = at + 8 WHERE at BETWEEN 2 AND 9", "DELETE FROM p WHERE id = 14",
				"INSERT INTO p VALUES (99, 1, 'new')"},
		},
		"inheritance": {
			`CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, extra bytea) INHERITS (a);
			INSERT INTO a VALUES (1, 'a'); INSERT INTO b VALUES (1, 'b', '\x00ff')`,
			[]string{"UPDATE a SET v = v || '!'", "DELETE FROM a WHERE id = 1"},
		},
		"types": {
			`CREATE TYPE pair AS (a int, b text[]); CREATE DOMAIN positive AS int CHECK (value > 0);
				CREATE TYPE mood AS ENUM ('ok', 'so so');
			CREATE TABLE t (id uuid PRIMARY KEY, p pair, ps pair[], d positive, m mood, j jsonb, jj json, b bytea, x xml,
			n numeric, f float8, r float4, ts timestamptz, i interval, h int4range, c char(5), "money" money, bits bit varying,
			tz timetz, net inet, q "char", arr text[][]);
			INSERT INTO t SELECT gen_random_uuid(), (g, ARRAY['x,"y"', NULL, '\'])::pair, ARRAY[(1, NULL)::pair, NULL], g,
			'so so', '{"a": [1, 1.0, null, "\"("]}', '{ "b" :  1, "b": 2}', '\x00275c22', '<a>&lt;</a>',
				1e-20, 'NaN', 0.1, '0044-03-15 12:00:00.123456+05:53:28 BC', '-1 mon +3 days 04:05:06.7', '[1,5)', 'a', 1.5,
				B'101', '10:00+02', '::1', 'z', '{{a,b},{"",NULL}}' FROM generate_series(1, 3) g`,
			[]string{"UPDATE t SET n = n + 1, x = NULL, p = NULL, f = '-0', j = '1', b = NULL, arr = NULL WHERE d < 3",
				"DELETE FROM t WHERE d = 3"},
		},
		"generated and identity columns, and wide values": {
			`CREATE TABLE t (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, v text,
				n int GENERATED ALWAYS AS (length(v)) STORED); ALTER TABLE t ADD gone int; ALTER TABLE t DROP gone;
				ALTER TABLE t ADD late int DEFAULT 7;
			INSERT INTO t (v) SELECT string_agg(md5(i::text), '') FROM generate_series(1, 2000) i;
			INSERT INTO t (v) VALUES ('short')`,
			[]string{"UPDATE t SET v = v || '.'", "DELETE FROM t WHERE id = 1", "INSERT INTO t (v) VALUES ('new')"},
		},
		"names": {
			`CREATE SCHEMA "New"; CREATE SCHEMA "old"; CREATE TABLE "New"."user" ("old" int PRIMARY KEY, "new" text, t text,
				q text, e text, "with space" text, "a""b" text, r int, "(x).y" int);
			CREATE TABLE "old"."user" (t text PRIMARY KEY, v int); CREATE TABLE "t" ("t" int PRIMARY KEY, "o" int, "n" int,
			"record" int, "Up" text DEFAULT 'é'); CREATE TABLE q (q int PRIMARY KEY, e int UNIQUE);
			INSERT INTO "New"."user" VALUES (1, 'n', 't', 'q', 'e', 's', 'ab', 1, 1); INSERT INTO "old"."user" VALUES ('x', 1);
			INSERT INTO t VALUES (1, 1, 1, 1); INSERT INTO q VALUES (1, 1)`,
			[]string{`UPDATE "New"."user" SET "new" = 'x', "with space" = 'y', "a""b" = 'z'`, `DELETE FROM "old"."user"`,
				`UPDATE t SET t = 2, o = 3`, `UPDATE q SET e = 2`, `INSERT INTO q VALUES (7, 7)`},
		},
		"views, rules and INSTEAD OF": {
			`CREATE TABLE t (id int PRIMARY KEY, v int); CREATE TABLE log (id int PRIMARY KEY);
				CREATE VIEW w AS SELECT * FROM t; CREATE VIEW i AS SELECT id FROM t;
			CREATE RULE r AS ON UPDATE TO t DO ALSO INSERT INTO log VALUES (NEW.id);
			CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (NEW.id, 0); RETURN NEW;
			END $$;
			CREATE TRIGGER f INSTEAD OF INSERT ON i FOR EACH ROW EXECUTE FUNCTION f(); INSERT INTO t VALUES (1, 1), (2, 2)`,
			[]string{"UPDATE w SET v = 3 WHERE id = 1", "INSERT INTO i VALUES (5)", "DELETE FROM w WHERE id = 2"},
		},
		"functions that write, in blocks with exceptions": {
			`CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1);
			CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN UPDATE t SET v = 2; BEGIN INSERT INTO t VALUES (2, 2);
			EXCEPTION WHEN division_by_zero THEN NULL; END; RETURN 1; END $$;
			CREATE PROCEDURE p() LANGUAGE sql AS $$ INSERT INTO t VALUES (3, 3) $$`,
			[]string{"SELECT f()", "CALL p()", "DO $$ BEGIN DELETE FROM t WHERE id = 1; END $$"},
		},
		"equal keys that are written in two ways": {
			"CREATE TABLE t (id numeric PRIMARY KEY, v int); INSERT INTO t VALUES (1.0, 1), (2.00, 2)",
			[]string{"UPDATE t SET id = 1.000, v = 5 WHERE id = 1", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (2, 3)"},
		},
		"a key that is a unique index": {
			"CREATE TABLE t (a text NOT NULL, b text NOT NULL, v int); CREATE UNIQUE INDEX ON t (b, a); INSERT INTO t " +
				"VALUES ('a', 'b', 1), ('b', 'a', 2)",
			[]string{"UPDATE t SET v = 3 WHERE a = 'a'", "DELETE FROM t WHERE a = 'b'"},
		},
		"nothing": {"CREATE TABLE t (id int PRIMARY KEY)", []string{"DELETE FROM t"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, c.schema)
			before := d.dump()
			s := d.exec(c.statements...)
			planned := s.plan()
			require.Equal(t, before, d.dump(), "after the plan")
			_, err := s.action.Apply(t.Context(), s.entry, s.with, planned.Digest)
			require.NoError(t, err)
			if name != "nothing" {
				require.NotEqual(t, before, d.dump())
			}
			seen, err := s.action.Observe(t.Context(), s.entry)
			require.NoError(t, err)
			require.Equal(t, activities.AsLeft, seen.State, seen.Detail)
			s.undo(activities.Restored)
			require.Equal(t, before, d.dump())
		})
	}
}
