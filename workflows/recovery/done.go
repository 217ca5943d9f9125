package recovery

import (
	"context"
	"fmt"

	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// Done reads the steps that a finished task has done, in the order in which they ended.
func (s Server) Done(ctx context.Context, id string, dc converter.DataConverter) (done []environment.Done, err error) {
	run, err := s.Describe(ctx, id, "")
	if err != nil {
		return nil, err
	}
	l := ledgerReader{Server: s, dc: dc}
	runs, err := l.readChain(ctx, run.Chain)
	if err != nil {
		return nil, err
	}
	for _, events := range runs {
		trace, err := activities.TraceOf(events, dc)
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", id, err)
		}
		for _, e := range trace.Entries {
			result, isDone := trace.Done[e.Token]
			if !isDone {
				continue
			}
			_, undone := trace.Settled[e.Token]
			at := trace.Times[e.Token]
			done = append(done, environment.Done{Entry: e, Result: result, Settled: undone, Began: at.Began, Ended: at.Ended})
		}
	}
	return done, nil
}
