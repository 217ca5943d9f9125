package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// journals implements recordkeeping.Journals.
type journals struct{ *world }

// eachJournal calls do for every database that has a journal.
func (w journals) eachJournal(ctx context.Context, do func(*connection) error) (problems []error) {
	return w.Databases.Each(ctx, server.RecordsName, func(to *server.Connection) error {
		c := &connection{to}
		if there, err := c.hasJournal(); err != nil || !there {
			return err
		}
		return do(c)
	})
}

// Records lists the rows of unwind.record.
func (w journals) Records(ctx context.Context) (all []activities.Record, problems []error, err error) {
	problems = w.eachJournal(ctx, func(c *connection) error {
		rows, err := c.Query(c.Ctx, `SELECT token, entry, owner, since, coalesce(committed, ''), coalesce(until, ''),
			CASE WHEN state IN ('undoing', 'undone') THEN coalesce(begun, since) ELSE '' END, coalesce(ended, ''),
			coalesce(released, ''), holders, bytes FROM unwind.record WHERE NOT forgotten`)
		if err != nil {
			return c.Explain(err)
		}
		var token, entry, owner, since, committed, until, begun, ended, released, holders string
		var bytes int64
		_, err = pgx.ForEachRow(rows,
			[]any{&token, &entry, &owner, &since, &committed, &until, &begun, &ended, &released, &holders, &bytes},
			func() error {
				r := activities.Record{Since: recordkeeping.ParseTime(since), Bytes: bytes}
				if err := errors.Join(json.Unmarshal([]byte(entry), &r.Entry), json.Unmarshal([]byte(owner), &r.Owner),
					json.Unmarshal([]byte(holders), &r.Holders)); err != nil {
					problems = append(problems, fmt.Errorf("token %s: %w", token, err))
					return nil
				}
				if r.Entry.Token != token {
					problems = append(problems, fmt.Errorf("token %s: its entry is that of token %s", token, r.Entry.Token))
					return nil
				}
				readTimes(committed, until, begun, ended, released).SetState(&r)
				all = append(all, r)
				return nil
			})
		return c.Explain(err)
	})
	return all, problems, nil
}

// Change stores what change makes of the row of a token, in whichever database that is.
func (w journals) Change(ctx context.Context, token string, change func(*recordkeeping.Record) (bool, error)) error {
	return errors.Join(w.eachJournal(ctx, func(c *connection) error {
		return c.InTransaction(func() error {
			r, there, err := c.lockKept(token)
			if err != nil || !there {
				return err
			}
			held := len(r.Holders)
			if changed, err := change(&r); err != nil || !changed {
				return err
			}
			if err := c.storeKept(token, r); err != nil || len(r.Holders) == held {
				return err
			}
			return c.markHeld(token, len(r.Holders) > 0)
		})
	})...)
}

// lockKept reads what recordkeeping.Record has of the row of a token, but for the outcome, and locks
// it until the transaction ends.
func (c *connection) lockKept(token string) (r recordkeeping.Record, there bool, err error) {
	var committed, until, begun, ended, released, holders string
	err = c.QueryRow(c.Ctx, `SELECT state, coalesce(committed, ''), coalesce(until, ''), coalesce(begun, ''),
		coalesce(ended, ''), coalesce(released, ''), holders, forgotten FROM unwind.record WHERE token = $1 FOR UPDATE`,
		token).Scan(&r.State, &committed, &until, &begun, &ended, &released, &holders, &r.Forgotten)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, false, nil
	}
	if err != nil {
		return r, false, c.Explain(err)
	}
	r.Times = readTimes(committed, until, begun, ended, released)
	if err := json.Unmarshal([]byte(holders), &r.Holders); err != nil {
		return r, false, c.damagedRow(token, err.Error())
	}
	return r, true, nil
}

// storeKept stores it.
func (c *connection) storeKept(token string, r recordkeeping.Record) error {
	holders, err := json.Marshal(r.Holders)
	if err != nil {
		return err
	}
	var outcome *string // nil: as it is
	if r.Outcome != nil {
		raw, err := json.Marshal(recordkeeping.KeptOutcome{Token: token, Undone: *r.Outcome})
		if err != nil {
			return err
		}
		text := string(raw)
		outcome = &text
	}
	if err := c.Run(`UPDATE unwind.record SET state = $2, committed = nullif($3, ''), until = nullif($4, ''),
		begun = nullif($5, ''), ended = nullif($6, ''), released = nullif($7, ''),
		holders = coalesce(nullif($8, 'null'), '[]'), outcome = coalesce($9, outcome), forgotten = $10 WHERE token = $1`,
		token, r.State,
		recordkeeping.FormatTime(r.Committed), recordkeeping.FormatTime(r.Until), recordkeeping.FormatTime(r.Begun),
		recordkeeping.FormatTime(r.Ended), recordkeeping.FormatTime(r.Released), string(holders), outcome,
		r.Forgotten); err != nil || !r.Forgotten {
		return err
	}
	return c.Run("UPDATE unwind.record SET entry = '{}', owner = '{}', outcome = NULL WHERE token = $1", token)
}

func readTimes(committed, until, begun, ended, released string) recordkeeping.Times {
	return recordkeeping.Times{
		Committed: recordkeeping.ParseTime(committed), Until: recordkeeping.ParseTime(until),
		Begun: recordkeeping.ParseTime(begun), Ended: recordkeeping.ParseTime(ended),
		Released: recordkeeping.ParseTime(released),
	}
}
