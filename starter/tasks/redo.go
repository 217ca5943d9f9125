package tasks

import (
	"context"
	"time"

	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

const (
	// listLag is how far the server's lists may be behind what it has answered.
	listLag = 2 * time.Second
	// listAgain is the pause before a list is asked for once more.
	listAgain = 100 * time.Millisecond
)

// FindRollback finds the rollback to redo. That of a part of a task is found by a list, in which
// one that has just ended may still be missing.
func (c *Client) FindRollback(ctx context.Context, id string) (recovery.Run, error) {
	for began := time.Now(); ; pause(ctx, listAgain) {
		run, err := c.Recoveries().FindRollback(ctx, id)
		if recovery.WhyOf(err) != recovery.Ended || time.Since(began) > listLag {
			return run, err
		}
	}
}
