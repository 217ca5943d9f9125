package tasks

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"go.temporal.io/sdk/client"
)

// askAgain is how long a client waits until it sends an update again.
const askAgain = 200 * time.Millisecond

// update sends an update, and waits for its result. A busy server may break that off, while what was
// asked for goes on: the update is sent again under its id then, and waits on for the same result.
func (c *Client) update(ctx context.Context, o client.UpdateWorkflowOptions, result any) error {
	o.UpdateID = rand.Text()
	for {
		handle, err := c.UpdateWorkflow(ctx, o)
		if err == nil {
			err = handle.Get(ctx, result)
		}
		if _, isBrokenOff := errors.AsType[*client.WorkflowUpdateServiceTimeoutOrCanceledError](err); !isBrokenOff {
			return err
		}
		if pause(ctx, askAgain); ctx.Err() != nil {
			return err
		}
	}
}
