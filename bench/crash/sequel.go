package crash

import (
	"context"
	"errors"

	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// sequel is what is done with a task that has committed.
type sequel string

const (
	stays      sequel = ""
	rolledBack sequel = "rolled back"
	redone     sequel = "rolled back and redone"
)

// acts are the workflows of a sequel, in order; each begins when the one before it has ended as it
// should.
func (s sequel) acts() []act {
	switch s {
	case rolledBack:
		return []act{rollBack}
	case redone:
		return []act{rollBack, redo}
	case stays:
	}
	return nil
}

// act starts a workflow on the outcome of a task.
type act func(ctx context.Context, s recovery.Server, task string) (recovery.Run, error)

func rollBack(ctx context.Context, s recovery.Server, task string) (recovery.Run, error) {
	done, err := s.FindDone(ctx, task)
	if err != nil {
		return done, err
	}
	return s.Rollback(ctx, done, recovery.Part{}, "crash", "as a test", converter.GetDefaultDataConverter())
}

func redo(ctx context.Context, s recovery.Server, task string) (recovery.Run, error) {
	rollback, err := s.FindRollback(ctx, task)
	if err != nil {
		return rollback, err
	}
	return s.Redo(ctx, rollback, "crash", converter.GetDefaultDataConverter())
}

// playSequel starts an act, however often the server goes away meanwhile. Its only error is a
// refusal.
func (d *driver) playSequel(ctx context.Context, do act) error {
	server := recovery.Server{Client: d.client, Namespace: d.server.Namespace}
	for ; ctx.Err() == nil; pause(ctx, again) {
		run, err := do(ctx, server, d.plan.ID)
		if refused, ok := errors.AsType[*recovery.Refusal](err); ok {
			if refused.Why != recovery.Taken {
				return err
			}
			run, err = server.Describe(ctx, refused.ID, "") // by an attempt whose answer was lost
		}
		if err == nil {
			d.chains = append(d.chains, run.FirstRunID)
			d.own(ctx, run.Chain)
			return nil
		}
	}
	return ctx.Err()
}
