package recovery

import (
	"context"
	"fmt"
	"slices"

	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// RedoInput reads what the workflow id needs to redo a rolled-back task: its document, the tokens
// of the undone steps, and the outputs of the others.
func (s Server) RedoInput(ctx context.Context, id string, r protocol.RedoRequest,
	dc converter.DataConverter) (protocol.RedoInput, error) {
	l := ledgerReader{Server: s, dc: dc}
	input := protocol.RedoInput{Outputs: map[string]map[string]any{}, Tokens: map[string]string{},
		Places: map[string]activities.Place{}}
	if err := s.checkRedo(ctx, id, r); err != nil {
		return input, err
	}
	undone, err := l.findUndone(ctx, r.Rollback)
	if err != nil {
		return input, err
	}
	if err := l.readDone(ctx, r.Task, undone, &input, 0); err != nil {
		return input, err
	}
	if _, err := input.MarshalJSON(); err != nil {
		return input,
			refusef(TooLarge, r.Task.WorkflowID, "what task %s was cannot be handed over: %v", r.Task.WorkflowID, err)
	}
	return input, nil
}

// findUndone finds the tokens that a rollback has undone, or a recovery of it.
func (l ledgerReader) findUndone(ctx context.Context, rollback protocol.Chain) (map[string]bool, error) {
	undone := map[string]bool{}
	for range maxDepth {
		runs, err := l.readChain(ctx, rollback)
		if err != nil {
			return nil, err
		}
		for _, run := range runs {
			trace, err := activities.TraceOf(run, l.dc)
			if err != nil {
				return nil, fmt.Errorf("rollback %s: %w", rollback.WorkflowID, err)
			}
			for token := range trace.Settled {
				undone[token] = true
			}
		}
		recovery, err := l.Describe(ctx, protocol.RecoverID(rollback), "")
		if WhyOf(err) == Unknown {
			return undone, nil
		}
		if err != nil {
			return nil, err
		}
		rollback = recovery.Chain
	}
	return undone, nil
}

// readDone reads what a task has done, and its document. The document of a redo is that of the task
// that it repeats.
func (l ledgerReader) readDone(ctx context.Context, c protocol.Chain, undone map[string]bool, input *protocol.RedoInput,
	depth int) error {
	runs, err := l.readChain(ctx, c)
	if err != nil {
		return err
	}
	started := runs[0][0].GetWorkflowExecutionStartedEventAttributes()
	first := started.Input.GetPayloads()[0]
	if started.WorkflowType.GetName() == protocol.RedoType && depth < maxDepth {
		var r protocol.RedoRequest
		if err := l.dc.FromPayload(first, &r); err != nil {
			return fmt.Errorf("redo %s: %w", c.WorkflowID, err)
		}
		if err := l.readDone(ctx, r.Task, undone, input, depth+1); err != nil {
			return err
		}
	} else if err := l.dc.FromPayload(first, &input.Document); err != nil {
		return fmt.Errorf("task %s: its document: %w", c.WorkflowID, err)
	}
	for _, run := range runs {
		trace, err := activities.TraceOf(run, l.dc)
		if err != nil {
			return fmt.Errorf("task %s: %w", c.WorkflowID, err)
		}
		for _, e := range trace.Entries {
			if undone[e.Token] && e.Corrected {
				return refusef(Corrected, c.WorkflowID,
					"step %s of task %s ran with other parameters than its document has, because a person corrected it: run a "+
						"corrected task file instead",
					e.Step, c.WorkflowID)
			}
			if undone[e.Token] {
				input.Tokens[e.Step], input.Places[e.Step] = e.Token, e.Place
				delete(input.Outputs, e.Step)
			} else if result, done := trace.Done[e.Token]; done {
				input.Outputs[e.Step] = result.Outputs
			}
		}
	}
	return nil
}

// readChain reads the histories of a chain, the first run first.
func (l ledgerReader) readChain(ctx context.Context, c protocol.Chain) (runs [][]*historypb.HistoryEvent, err error) {
	for id := c.RunID; id != ""; {
		events, err := l.readEvents(ctx, c.WorkflowID, id)
		if err != nil {
			return nil, err
		}
		runs = append(runs, events)
		id = events[0].GetWorkflowExecutionStartedEventAttributes().ContinuedExecutionRunId
	}
	slices.Reverse(runs)
	return runs, nil
}
