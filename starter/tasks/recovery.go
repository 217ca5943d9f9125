package tasks

import (
	"context"

	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// Recoveries finds and starts recoveries, rollbacks and redos.
func (c *Client) Recoveries() recovery.Server {
	return recovery.Server{Client: c.Client, Namespace: c.Namespace, DataConverter: c.DataConverter()}
}

// nextCommands are the commands that deal with a refusal, by its reason; each takes the id of the
// workflow in the way.
var nextCommands = map[recovery.Why]string{
	recovery.Alive: "starter watch",
	recovery.Dead:  "starter recover",
	recovery.Ended: "starter show",
	recovery.Taken: "starter watch",
}

// WayOut is WithWayOut for a command about the workflow id, where what came after it may stand in
// the way: then the next command is the one that takes the last of that back.
func (c *Client) WayOut(ctx context.Context, id string, err error) error {
	switch recovery.WhyOf(err) {
	case recovery.Taken, recovery.Order:
	case recovery.Paused:
		return usage.Errorf("%w; `%s`", err, c.UnpauseCommand(id))
	default:
		return WithWayOut(err)
	}
	run, problem := c.Recoveries().Describe(ctx, id, "")
	if problem == nil && run.Task != id {
		run, problem = c.Recoveries().Describe(ctx, run.Task, "")
	}
	if problem != nil {
		return WithWayOut(err)
	}
	family, problem := c.Recoveries().Family(ctx, run)
	if problem != nil {
		return WithWayOut(err)
	}
	if next, problem := c.nextCommand(ctx, family, run); problem == nil && next != "" {
		return usage.Errorf("%w; `%s`", err, next)
	}
	return WithWayOut(err)
}

// WithWayOut adds the next command to a refusal, and marks it as bad input. Other errors stay as
// they are.
func WithWayOut(err error) error {
	refused, ok := err.(*recovery.Refusal) //nolint:errorlint // it is returned as it is
	if !ok {
		return err
	}
	if refused.Why == recovery.Unknown {
		return usage.Errorf("%w; `starter list` shows the tasks", err)
	}
	if verb := nextCommands[refused.Why]; verb != "" {
		return usage.Errorf("%w; `%s %s`", err, verb, terminal.ShellQuote(refused.ID))
	}
	return usage.Wrap(err)
}
