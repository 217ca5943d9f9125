package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
)

// records implements activities.Records over the journals of all databases.
type records struct{ *world }

// eachJournal calls do for every database that has a journal.
func (w records) eachJournal(ctx context.Context, do func(*connection) error) (problems []error) {
	return w.Databases.Each(ctx, server.RecordsName, func(to *server.Connection) error {
		c := &connection{to}
		if there, err := c.hasJournal(); err != nil || !there {
			return err
		}
		return do(c)
	})
}

// Records lists the rows of unwind.record.
func (w records) Records(ctx context.Context) (all []activities.Record, problems []error, err error) {
	problems = w.eachJournal(ctx, func(c *connection) error {
		rows, err := c.Query(c.Ctx,
			"SELECT token, state, entry, owner, since, coalesce(committed, ''), coalesce(until, ''), coalesce(begun, "+
				"since), coalesce(ended, ''), coalesce(released, ''), holders, bytes FROM unwind.record WHERE NOT forgotten")
		if err != nil {
			return c.Explain(err)
		}
		var token, state, entry, owner, since, committed, until, begun, ended, gone, holders string
		var bytes int64
		_, err = pgx.ForEachRow(rows,
			[]any{&token, &state, &entry, &owner, &since, &committed, &until, &begun, &ended, &gone, &holders, &bytes},
			func() error {
				r := activities.Record{State: activities.RecordOpen, Bytes: bytes}
				if err := errors.Join(json.Unmarshal([]byte(entry), &r.Entry), json.Unmarshal([]byte(owner), &r.Owner),
					json.Unmarshal([]byte(holders), &r.Holders)); err != nil {
					problems = append(problems, fmt.Errorf("token %s: %w", token, err))
					return nil
				}
				if r.Entry.Token != token {
					problems = append(problems, fmt.Errorf("token %s: its entry is that of token %s", token, r.Entry.Token))
					return nil
				}
				r.Since = parseTime(since)
				switch {
				case gone != "":
					r.State, r.Ended = activities.RecordReleased, parseTime(gone)
				case state == undoing, state == undone:
					r.State, r.Ended = activities.RecordUndone, parseTime(ended)
					r.Until = parseTime(cmp.Or(ended, begun)).Add(cmp.Or(r.Entry.Keep, activities.DefaultKeep))
				case committed != "":
					r.State, r.Ended, r.Until = activities.RecordCommitted, parseTime(committed), parseTime(until)
				}
				all = append(all, r)
				return nil
			})
		return c.Explain(err)
	})
	return all, problems, nil
}

func parseTime(text string) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, text) // empty: zero
	return at
}

// update runs a statement on the row of a token, in whichever database it is.
func (w records) update(ctx context.Context, sql string, args ...any) error {
	return errors.Join(w.eachJournal(ctx, func(c *connection) error { return c.Run(sql, args...) })...)
}

// Commit marks an open token.
func (w records) Commit(ctx context.Context, token string, until time.Time) error {
	return w.update(ctx,
		"UPDATE unwind.record SET committed = $2, until = $3 WHERE token = $1 AND state = 'applied' AND committed IS NULL",
		token, timestamp(time.Now()), timestamp(until))
}

// Hold keeps a record from being released.
func (w records) Hold(ctx context.Context, token string, holder activities.Owner) (held bool, err error) {
	held = true
	err = w.amendHolders(ctx, token, func(r *record) bool {
		held = r.State != released
		if !held || r.State != applied || slices.Contains(r.Holders, holder) {
			return false
		}
		r.Holders = append(r.Holders, holder)
		return true
	})
	return held && err == nil, err
}

// EndHold ends a hold.
func (w records) EndHold(ctx context.Context, token string, holder activities.Owner) error {
	return w.amendHolders(ctx, token, func(r *record) bool {
		before := len(r.Holders)
		r.Holders = slices.DeleteFunc(r.Holders, func(o activities.Owner) bool { return o == holder })
		return len(r.Holders) < before
	})
}

// amendHolders stores the holders of a record, if change says that it has changed them.
func (w records) amendHolders(ctx context.Context, token string, change func(*record) bool) error {
	return errors.Join(w.eachJournal(ctx, func(c *connection) error {
		return c.InTransaction(func() error {
			r, err := c.lockRecord(token)
			if err != nil || r == nil || !change(r) {
				return err
			}
			raw, err := json.Marshal(r.Holders)
			if err != nil {
				return err
			}
			return errors.Join(c.Run("UPDATE unwind.record SET holders = $2 WHERE n = $1", r.N, string(raw)),
				c.markHeld(token, len(r.Holders) > 0))
		})
	})...)
}

// Claim has nothing to do: the row of a token names its owner even if another part of it is
// damaged.
func (w records) Claim(context.Context, activities.Entry) error { return nil }

// Abandon gives up an undo that has begun.
func (w records) Abandon(ctx context.Context, token string) error {
	raw, err := json.Marshal(keptOutcome{token, activities.Abandoned})
	if err != nil {
		return err
	}
	return w.update(ctx,
		"UPDATE unwind.record SET state = 'undone', outcome = $2, ended = $3 WHERE token = $1 AND state = 'undoing'", token,
		string(raw), timestamp(time.Now()))
}

// Forget leaves the fence of a released token, and nothing else.
func (w records) Forget(ctx context.Context, token string) error {
	return errors.Join(w.eachJournal(ctx, func(c *connection) error {
		tag, err := c.Exec(c.Ctx,
			`UPDATE unwind.record SET forgotten = true, entry = '{}', owner = '{}', state = CASE
				WHEN released IS NULL THEN state ELSE 'released' END
			WHERE token = $1 AND released IS NOT NULL`, token)
		if err != nil || tag.RowsAffected() > 0 {
			return c.Explain(err)
		}
		var needed bool
		if err := c.Scan("SELECT EXISTS (SELECT FROM unwind.record WHERE token = $1)", []any{token}, &needed); err != nil ||
			!needed {
			return err
		}
		return fmt.Errorf("token %s is not released: it is still needed", token)
	})...)
}
