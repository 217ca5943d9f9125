package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// The wait between two tries of a check doubles, from the first to the last.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// DefaultCheckTimeout is how long one try of a check may take, unless the check says.
const DefaultCheckTimeout = time.Minute

// try looks once, for as long as a try may take.
func (c Check) try(ctx context.Context, scene Scene) error {
	limit := cmp.Or(c.Timeout, DefaultCheckTimeout)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := c.runCheck(limited, scene)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return Errorf(CheckFailed, "it did not answer within %s", limit)
	}
	return err
}

// await tries the check until it holds or its time is over, and then fails with its last answer.
func (c Check) await(ctx context.Context, scene Scene) error {
	if c.Within == 0 {
		return c.try(ctx, scene)
	}
	limited, cancel := context.WithTimeout(ctx, c.Within)
	defer cancel()
	var last error
	for tries, pause := 1, firstPause; ; tries, pause = tries+1, min(2*pause, lastPause) {
		err := c.try(limited, scene)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case limited.Err() != nil && last == nil:
			return Errorf(CheckFailed, "it did not answer within %s", c.Within)
		case limited.Err() == nil && TypeOf(err) != CheckFailed:
			return err
		case limited.Err() == nil:
			last = err
		}
		select {
		case <-time.After(pause):
		case <-limited.Done():
		}
		if limited.Err() != nil && ctx.Err() == nil {
			failed, _ := errors.AsType[*Error](last)
			return &Error{
				Type: CheckFailed,
				Message: fmt.Sprintf("it did not hold within %s (%s); at last: %s", c.Within, CountOf(tries, "try"),
					failed.Message), Output: failed.Output,
			}
		}
	}
}
