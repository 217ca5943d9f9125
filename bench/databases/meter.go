package databases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
)

// meter is a database with a table that Unwind has prepared, and one that it has not.
type meter struct {
	conn   *pgx.Conn
	action activities.Action
	place  string
	tokens int
}

func newMeter(ctx context.Context, server *postgrestest.Server) (*meter, error) {
	dsn := server.Admin("postgres")
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	m := &meter{conn: conn}
	config := postgres.Config{
		Databases: map[string]postgres.Database{"main": {DSN: func() (string, error) { return dsn, nil }}}}
	for _, table := range []string{"bare", "ours"} {
		if err := fill(ctx, conn, table, tableRows); err != nil {
			return nil, err
		}
	}
	if err := fill(ctx, conn, "large", million); err != nil {
		return nil, err
	}
	ready, err := config.OpenPreparation(ctx, "main")
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	if _, err := ready.Apply([]string{"public.ours", "public.large"}); err != nil {
		return nil, err
	}
	world, err := postgres.New(config)
	if err != nil {
		return nil, err
	}
	m.place, err = world.Journal(ctx)
	m.action = world.Actions[0]
	return m, err
}

func (m *meter) close() { _ = m.conn.Close(context.Background()) }

// others measures writers that are not ours.
func (m *meter) others(ctx context.Context) (all []compared, err error) {
	at := 0
	for _, c := range []struct {
		what   string
		target float64
		times  int
		sql    string
	}{
		{"UPDATE of one row, by others", singleTarget, singles, "UPDATE %s SET balance = balance + 1 WHERE id = %[2]d"},
		{"INSERT of one row, by others", singleTarget, singles, "INSERT INTO %s VALUES (1000000 + %[2]d, 'new', 1)"},
		{"UPDATE of 10,000 rows, by others", bulkTarget, 1,
			"UPDATE %s SET balance = balance + 1 WHERE id %% 10 = %[2]d %% 10"},
		{"INSERT of 10,000 rows, by others", bulkTarget, 1,
			"INSERT INTO %s SELECT %[2]d * 100000 + 2000000 + g, 'new', g FROM generate_series(1, 10000) g"},
		{"DELETE of 10,000 rows, by others", bulkTarget, 1, "DELETE FROM %s WHERE id > 2000000 AND id %% 10 = %[2]d %% 10"},
	} {
		run := func(table string) func() (time.Duration, error) {
			n := at
			return func() (time.Duration, error) {
				return timed(func() error {
					for range c.times {
						n++
						if _, err := m.conn.Exec(ctx, fmt.Sprintf(c.sql, table, n)); err != nil {
							return err
						}
					}
					return nil
				})
			}
		}
		found, err := pairs(c.what, c.target, run("bare"), run("ours"))
		if err != nil {
			return all, err
		}
		all = append(all, found)
		at += (rounds + 1) * c.times
	}
	return all, nil
}

// steps measures a step of 10,000 rows against a bare transaction, and its undo against the step.
func (m *meter) steps(ctx context.Context) (all []compared, err error) {
	for _, c := range []struct {
		what, rows, sql string
		again           string // what makes the bare table ready for the next round
	}{
		{what: "UPDATE", rows: "10,000 rows", sql: "UPDATE %s SET balance = balance + 1 WHERE id %% 10 = %d"},
		{"DELETE", "10,000 rows", "DELETE FROM %s WHERE id <= 100000 AND id %% 10 = %d",
			fmt.Sprintf("INSERT INTO bare SELECT g, 'owner ' || g, g FROM generate_series(1, %d) g ON CONFLICT DO NOTHING",
				tableRows)},
		{"INSERT", "10,000 rows", "INSERT INTO %s SELECT 5000000 + g, 'new', %d FROM generate_series(1, 10000) g",
			"DELETE FROM bare WHERE id > 5000000"},
	} {
		n := 0
		var undos, forwards []time.Duration
		bare := func() (time.Duration, error) {
			return timed(func() error {
				tx, err := m.conn.Begin(ctx)
				if err != nil {
					return err
				}
				_, err = tx.Exec(ctx, fmt.Sprintf(c.sql, "bare", n%10))
				return errors.Join(err, tx.Commit(ctx))
			})
		}
		ours := func() (took time.Duration, err error) {
			took, undo, err := m.step(ctx, fmt.Sprintf(c.sql, "ours", n%10))
			forwards, undos = append(forwards, took), append(undos, undo)
			n++
			return took, err
		}
		if c.again != "" { // both begin with the same rows
			inner := bare
			bare = func() (time.Duration, error) {
				took, err := inner()
				if err == nil {
					_, err = m.conn.Exec(ctx, c.again)
				}
				return took, err
			}
		}
		step, err := pairs("a step: "+c.what+" of "+c.rows, stepTarget, bare, ours)
		if err != nil {
			return all, err
		}
		undo := compared{What: "its undo, against the step", Target: undoTarget}
		var f, u, ratios []float64
		for i := range undos[1:] {
			f, u, ratios = append(f, ms(forwards[i+1])), append(u, ms(undos[i+1])),
				append(ratios, ms(undos[i+1])/ms(forwards[i+1]))
		}
		undo.Bare, undo.Ours, undo.Ratio = median(f), median(u), median(ratios)
		all = append(all, step, undo)
	}
	return all, nil
}

// step runs a step, and undoes it.
func (m *meter) step(ctx context.Context, sql string) (forward, undo time.Duration, err error) {
	with, err := json.Marshal(map[string]any{"database": "main", "sql": sql})
	if err != nil {
		return 0, 0, err
	}
	params, err := m.action.Spec().EntryParams(with)
	if err != nil {
		return 0, 0, err
	}
	m.tokens++
	e := activities.Entry{
		Version: activities.EntryVersion, Seq: 1, Step: "step", Action: "postgres.exec", UndoType: "postgres.exec.undo",
		Params: params,
		Token:  activities.NewToken("bench", "step", m.tokens), Place: activities.Place{Queue: "bench", Journal: m.place},
	}
	if forward, err = timed(func() error {
		_, err := m.action.Apply(ctx, e, activities.Step{ID: "step", With: with}, "")
		return err
	}); err != nil {
		return 0, 0, err
	}
	undo, err = timed(func() error {
		u, err := m.action.Undo(ctx, e, activities.Decision{Done: true})
		if err == nil && u.Outcome != activities.Restored {
			err = fmt.Errorf("the undo is %s: %s", u.Outcome, u.Observed)
		}
		return err
	})
	return forward, undo, errors.Join(err, m.action.Release(ctx, e))
}

// small measures steps whose statement is cheap: what counts is what a step adds.
func (m *meter) small(ctx context.Context) (all []compared, err error) {
	tables := 0
	for _, c := range []struct {
		what, sql    string
		tables       int
		target, more float64
	}{
		{"a step: UPDATE of one row", "UPDATE %s SET balance = balance + 1 WHERE id = 7", 0, 1, 25},
		{"a step: CREATE TABLE beside 100 tables", "CREATE TABLE %s_new (id int PRIMARY KEY)", 100, 1.5, 100},
		{"a step: CREATE TABLE beside 2,000 tables", "CREATE TABLE %s_new (id int PRIMARY KEY)", 2000, 1.5, 300},
	} {
		for ; tables < c.tables; tables++ {
			if _, err := m.conn.Exec(ctx,
				fmt.Sprintf(
					"CREATE TABLE beside_%d (id int PRIMARY KEY, name text NOT NULL DEFAULT 'new', n numeric CHECK (n > 0), at "+
						"timestamptz)", tables)); err != nil {
				return all, err
			}
		}
		found, err := pairs(c.what, c.target, func() (time.Duration, error) {
			took, err := timed(func() error {
				_, err := m.conn.Exec(ctx, fmt.Sprintf(c.sql, "bare"))
				return err
			})
			_, dropped := m.conn.Exec(ctx, "DROP TABLE IF EXISTS bare_new")
			return took, errors.Join(err, dropped)
		}, func() (time.Duration, error) {
			took, _, err := m.step(ctx, fmt.Sprintf(c.sql, "ours"))
			return took, err
		})
		if err != nil {
			return all, err
		}
		found.More = c.more
		all = append(all, found)
	}
	return all, nil
}

// million runs and undoes a step of a million rows.
func (m *meter) million(ctx context.Context, f *figures) (err error) {
	f.MillionMemory, err = peak(func() error {
		forward, undo, err := m.step(ctx, "UPDATE large SET balance = balance + 1")
		f.MillionStep, f.MillionUndo = ms(forward), ms(undo)
		return err
	})
	return err
}
