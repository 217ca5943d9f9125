package tasks

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// Cancel has a task stop and unwind.
func (c *Client) Cancel(ctx context.Context, t Run) error {
	switch {
	case t.Closed():
		return usage.Errorf("task %s is closed: there is nothing to cancel; see it with `starter show %s`", t.ID,
			terminal.ShellQuote(t.ID))
	case !t.CanCancel():
		return usage.Errorf("%s undoes a task and cannot be cancelled: it ends when everything is undone", t.ID)
	}
	if err := c.CheckTakesDecisions(ctx, t); err != nil {
		return err
	}
	if err := c.CancelWorkflow(ctx, t.ID, t.RunID); err != nil {
		return fmt.Errorf("cancel task %s: %w", t.ID, err)
	}
	return nil
}

// CanCancel says that the run goes on, and goes forward: what undoes ends when all is undone.
func (t Run) CanCancel() bool {
	return !t.Closed() && t.Type != protocol.RecoverType && t.Type != protocol.RollbackType
}

// RollBack starts the rollback of what a task has done, or of a part of it: of the newest of its
// redos where it was redone. It returns the rollback, and what that undoes.
func (c *Client) RollBack(ctx context.Context, id string, part recovery.Part, who, why string) (by, done recovery.Run,
	err error) {
	if done, err = c.Recoveries().FindDone(ctx, id); err != nil {
		return by, done, c.WayOut(ctx, id, err)
	}
	done, rest, err := c.Recoveries().FindNewest(ctx, done, part)
	if err != nil {
		return by, done, err
	}
	by, err = c.Recoveries().Rollback(ctx, done, rest, who, why, c.DataConverter())
	return by, done, c.WayOut(ctx, id, err)
}

// Redo starts the redo of a rollback, and returns both.
func (c *Client) Redo(ctx context.Context, id, who string) (by, rollback recovery.Run, err error) {
	if rollback, err = c.findRollback(ctx, id); err != nil {
		return by, rollback, c.WayOut(ctx, id, err)
	}
	by, err = c.Recoveries().Redo(ctx, rollback, who, c.DataConverter())
	return by, rollback, c.WayOut(ctx, id, err)
}

const (
	// listLag is how far the server's lists may be behind what it has answered.
	listLag = 2 * time.Second
	// listAgain is the pause before a list is asked for once more.
	listAgain = 100 * time.Millisecond
)

// findRollback finds the rollback to redo. That of a part of a task is found by a list, in which
// one that has just ended may still be missing.
func (c *Client) findRollback(ctx context.Context, id string) (recovery.Run, error) {
	for began := time.Now(); ; pause(ctx, listAgain) {
		run, err := c.Recoveries().FindRollback(ctx, id)
		if recovery.WhyOf(err) != recovery.Ended || time.Since(began) > listLag {
			return run, err
		}
	}
}

// Recover starts the recovery of a task that ended without unwinding, and returns both. With
// takeOver a task that still runs is terminated first.
func (c *Client) Recover(ctx context.Context, id string, takeOver bool, who string) (by, dead recovery.Run, err error) {
	find := c.Recoveries().Find
	if takeOver {
		find = func(ctx context.Context, id string) (recovery.Run, error) {
			return c.Recoveries().TakeOver(ctx, id, who, c.DataConverter())
		}
	}
	dead, err = find(ctx, id)
	takeOverCommand := fmt.Sprintf("`starter recover %s --take-over`", terminal.ShellQuote(id))
	switch {
	case recovery.WhyOf(err) == recovery.Alive && !takeOver:
		return by, dead, usage.Errorf("%w: `starter cancel %s`, or %s", err, terminal.ShellQuote(id), takeOverCommand)
	case recovery.WhyOf(err) == recovery.Paused:
		return by, dead, usage.Errorf("%w: `%s`, or %s", err, c.UnpauseCommand(id), takeOverCommand)
	case err != nil:
		return by, dead, c.WayOut(ctx, id, err)
	}
	// Whether the workers' data converter can read it is for the worker that recovers it to find out.
	if err := c.Recoveries().Readable(ctx, dead, c.DataConverter()); err != nil &&
		recovery.WhyOf(err) != recovery.Unreadable {
		return by, dead, c.WayOut(ctx, id, err)
	}
	by, err = c.Recoveries().Recover(ctx, dead, who)
	return by, dead, c.WayOut(ctx, id, err)
}
