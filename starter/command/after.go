package command

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// after finds and starts what happens to tasks after their end.
func (c *connection) after() recovery.Server {
	return recovery.Server{Client: c.Client, Namespace: c.Namespace}
}

// payloads reads what other starters and workers have written.
func payloads() converter.DataConverter { return converter.GetDefaultDataConverter() }

// wayOut says what to do about a refusal, by its reason; the verb goes before the workflow that stands in the way.
var wayOut = map[recovery.Why]string{
	recovery.Alive: "starter watch",
	recovery.Dead:  "starter recover",
	recovery.Ended: "starter show",
	recovery.Taken: "starter watch",
}

// refusal is err with the way out, as bad input where nothing was started.
func refusal(err error) error {
	refused, ok := err.(*recovery.Refused) //nolint:errorlint // it is returned as it is
	if !ok {
		return err
	}
	if refused.Why == recovery.Unknown {
		return usagef("%w; `starter list` shows the tasks", err)
	}
	if verb := wayOut[refused.Why]; verb != "" {
		return usagef("%w; `%s %s`", err, verb, quoted(refused.ID))
	}
	return usageError{err}
}

// started says what was started, and follows it where that is wanted.
func (p *program) started(ctx context.Context, c *connection, run recovery.Run, what string, watch bool) error {
	p.printf("%s\n", what)
	if link := c.link(run.WorkflowID, run.RunID); link != "" {
		p.printf("see %s\n", link)
	}
	t, err := c.describe(ctx, run.WorkflowID)
	if err != nil {
		return err
	}
	if watch {
		return p.follow(ctx, c, t)
	}
	if !c.polled(ctx, t.Queue) {
		fmt.Fprintf(p.streams.Err, "it is started, but waits: %s\n", noWorkerFor(t))
	}
	p.printf("follow it: starter watch %s\n", quoted(t.ID))
	return nil
}
