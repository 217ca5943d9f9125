package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/postgres/alteration"
	"github.com/seed-62bf7108/unwind/activities/postgres/drift"
	"github.com/seed-62bf7108/unwind/activities/postgres/server"
	"github.com/seed-62bf7108/unwind/activities/recordkeeping"
)

// Observe compares the rows with what the step left.
func (a *execAction) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	c, err := a.openEntry(ctx, e, server.LookName)
	if err != nil {
		return activities.Observation{}, err
	}
	defer c.Close()
	there, err := c.hasJournal()
	if err != nil {
		return activities.Observation{}, err
	}
	var r *record
	if there {
		if r, err = c.readRecord(e.Token); err != nil {
			return activities.Observation{}, err
		}
	}
	if there && r == nil {
		if err := c.checkUnmarked(e.Token); err != nil {
			return activities.Observation{}, err
		}
	}
	switch {
	case r == nil || r.State == recordkeeping.Undoing && r.Tables == nil:
		return activities.Observation{State: activities.AsBefore, Detail: "no transaction of the step was committed"}, nil
	case r.State == recordkeeping.Undone && r.Outcome.Outcome.Clean():
		return activities.Observation{State: activities.AsBefore, Detail: r.Outcome.Observed}, nil
	case r.State == recordkeeping.Undone, r.State == recordkeeping.Released, r.Forgotten:
		return activities.Observation{State: activities.Unseen,
			Detail: "what the step changed is no longer known: it was released"}, nil
	}
	if err := c.Run("BEGIN READ ONLY"); err != nil {
		return activities.Observation{}, err
	}
	defer c.Rollback()
	var strayed *drift.Error
	if problem, err := c.findMisfit(r); err != nil {
		return activities.Observation{}, err
	} else if problem != "" {
		altered := drift.New(problem)
		strayed = &altered
	} else if strayed, err = c.findDrift(r); err != nil {
		return activities.Observation{}, err
	}
	if strayed != nil {
		return activities.Observation{State: activities.Elsewise, Detail: strayed.Undone().Observed, Drift: &strayed.Drift},
			nil
	}
	return activities.Observation{State: activities.AsLeft,
		Detail: activities.CountOf(r.Rows, "row") + " changed by the step, and nothing since"}, nil
}

// Release drops the rows as they were. The record's row stays: no later forward or undo acts.
func (a *execAction) Release(ctx context.Context, e activities.Entry) error {
	c, err := a.openEntry(ctx, e, server.LookName)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.ensureJournal(); err != nil {
		return err
	}
	return c.waiting(e.Token, func() error {
		return c.InTransaction(func() error {
			if _, _, err := c.insertRecord(e, recordkeeping.Released); err != nil {
				return err
			}
			r, err := c.lockRecord(e.Token)
			if err != nil {
				return err
			}
			if r == nil || r.State == recordkeeping.Undoing {
				return activities.Errorf(activities.Fenced, "token %s is being undone: its record is still needed", e.Token)
			}
			if len(r.Holders) > 0 && r.State == recordkeeping.Applied {
				return activities.Errorf(activities.Fenced, "token %s is held by %s: its record is still needed", e.Token,
					r.Holders[0].Workflow)
			}
			state := r.State
			if state == recordkeeping.Applied {
				if err := c.checkUnheld(e.Token); err != nil {
					return err
				}
				state = recordkeeping.Released
			}
			if err := errors.Join(c.Run("DELETE FROM unwind.change WHERE record = $1", r.N), c.dropMark(e.Token)); err != nil {
				return err
			}
			if err := alteration.DropHeld(c.Connection, r.N); err != nil {
				return err
			}
			return c.Run(
				"UPDATE unwind.record SET state = $2, rows = 0, bytes = 0, tables = NULL, alterations = NULL, result = NULL, "+
					"released = coalesce(released, $3) WHERE n = $1",
				r.N, state, recordkeeping.FormatTime(time.Now()))
		})
	})
}
