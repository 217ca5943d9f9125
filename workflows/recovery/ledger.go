package recovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows"
)

// Ledger rebuilds the ledger of a run from histories alone: what it was handed by the run before it or took over, and what
// it scheduled; without what is undone, and what a pivot keeps. dc is the data converter of who ran it.
func (s Server) Ledger(ctx context.Context, r workflows.LedgerRequest, dc converter.DataConverter) (workflows.Ledger, error) {
	l := ledgers{Server: s, dc: dc}
	return l.of(ctx, r.WorkflowID, r.RunID, 0)
}

// maxDeep bounds how many dead recoveries of recoveries are looked through.
const maxDeep = 50

type ledgers struct {
	Server
	dc converter.DataConverter
}

func (l ledgers) of(ctx context.Context, id, run string, deep int) (workflows.Ledger, error) {
	var none workflows.Ledger
	if deep > maxDeep {
		return none, fmt.Errorf("run %s of %s: more than %d recoveries of recoveries", run, id, maxDeep)
	}
	events, err := l.events(ctx, id, run)
	if err != nil {
		return none, err
	}
	started := events[0].GetWorkflowExecutionStartedEventAttributes()
	base, err := l.base(ctx, started, deep)
	if err != nil {
		return none, fmt.Errorf("run %s of %s: %w", run, id, err)
	}
	if original := started.OriginalExecutionRunId; original != "" && original != run { // it was reset from another
		first, err := l.of(ctx, id, original, deep+1)
		if err != nil {
			return none, err
		}
		base.merge(first)
	}
	trace, err := activities.TraceOf(events, l.dc)
	if err != nil {
		return none, fmt.Errorf("run %s of %s: %w", run, id, err)
	}
	base.merge(workflows.Ledger{Entries: trace.Entries})
	for token := range trace.Done {
		base.Done[token] = true
	}
	pivot := 0
	for _, e := range base.Entries {
		if e.Pivot && base.Done[e.Token] {
			pivot = max(pivot, e.Seq)
		}
	}
	base.Entries = slices.DeleteFunc(base.Entries, func(e activities.Entry) bool {
		_, settled := trace.Settled[e.Token]
		return settled || e.Seq <= pivot && base.Done[e.Token]
	})
	return base.Ledger, nil
}

// base is what a run begins with.
func (l ledgers) base(ctx context.Context, started *historypb.WorkflowExecutionStartedEventAttributes, deep int) (known, error) {
	k := known{Done: map[string]bool{}}
	arguments := started.Input.GetPayloads()
	if len(arguments) == 2 && !isNull(l.dc, arguments[1]) {
		var carry workflows.Carry
		if err := l.dc.FromPayload(arguments[1], &carry); err != nil {
			return k, fmt.Errorf("what it was handed by the run before it: %w", err)
		}
		if carry.Version > workflows.CarryVersion {
			return k, fmt.Errorf("it was handed format %d by the run before it, newer than %d: upgrade", carry.Version, workflows.CarryVersion)
		}
		k.Entries, k.Redoable = carry.Saga.Entries, carry.Redoable
		for _, e := range k.Entries {
			if s, open := carry.Steps[e.Step]; !open || s.State == workflows.Done {
				k.Done[e.Token] = true
			}
		}
		return k, nil
	}
	switch started.WorkflowType.GetName() {
	case workflows.RecoverType:
		var r workflows.RecoverRequest
		if err := l.dc.FromPayload(arguments[0], &r); err != nil {
			return k, err
		}
		ledger, err := l.of(ctx, r.WorkflowID, r.RunID, deep+1)
		k.Ledger = ledger
		return k, err
	case workflows.RollbackType:
		var r workflows.RollbackRequest
		if err := l.dc.FromPayload(arguments[0], &r); err != nil {
			return k, err
		}
		ledger, err := l.of(ctx, r.WorkflowID, r.RunID, deep+1)
		if err == nil {
			ledger.Entries, err = workflows.Part(ledger.Entries, r.To, r.Step)
		}
		k.Ledger, k.Redoable = ledger, true
		return k, err
	case workflows.LateSweepType:
		var r workflows.LateSweepRequest
		if err := l.dc.FromPayload(arguments[0], &r); err != nil {
			return k, err
		}
		for _, again := range r.Again {
			k.Entries = append(k.Entries, again.Entry)
		}
	}
	return k, nil
}

func isNull(dc converter.DataConverter, p *commonpb.Payload) bool {
	var raw json.RawMessage
	return dc.FromPayload(p, &raw) == nil && (len(raw) == 0 || string(raw) == "null")
}

// known is a ledger, and which of its steps are done.
type known struct {
	workflows.Ledger
	Done map[string]bool
}

func (k *known) merge(l workflows.Ledger) {
	seen := map[string]bool{}
	for _, e := range k.Entries {
		seen[e.Token] = true
	}
	for _, e := range l.Entries {
		if !seen[e.Token] {
			k.Entries = append(k.Entries, e)
		}
	}
	slices.SortStableFunc(k.Entries, func(a, b activities.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
}

// events is the whole history of a run.
func (s Server) events(ctx context.Context, id, run string) ([]*historypb.HistoryEvent, error) {
	var events []*historypb.HistoryEvent
	history := s.Client.GetWorkflowHistory(ctx, id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		if _, missing := errors.AsType[*serviceerror.NotFound](err); missing {
			return nil, refusef(Unknown, id, "the history of run %s of %s is gone: %v", run, id, err)
		}
		if err != nil {
			return nil, fmt.Errorf("history of run %s of %s: %w", run, id, err)
		}
		events = append(events, event)
	}
	if len(events) == 0 {
		return nil, refusef(Unknown, id, "the history of run %s of %s is empty", run, id)
	}
	return events, nil
}

// Before reads what a rolled back task was, for doing it again: its document, and the outputs of all its steps.
func (s Server) Before(ctx context.Context, r workflows.RedoRequest, dc converter.DataConverter) (workflows.Redoable, error) {
	l := ledgers{Server: s, dc: dc}
	none := workflows.Redoable{}
	before := workflows.Redoable{Outputs: map[string]map[string]any{}, Tokens: map[string]string{}, Places: map[string]activities.Place{}}

	// What the rollback has undone.
	rolledBack, err := l.runs(ctx, r.Rollback)
	if err != nil {
		return none, err
	}
	undone := map[string]bool{}
	for _, run := range rolledBack {
		trace, err := activities.TraceOf(run, dc)
		if err != nil {
			return none, fmt.Errorf("rollback %s: %w", r.Rollback.WorkflowID, err)
		}
		for token := range trace.Settled {
			undone[token] = true
		}
	}
	runs, err := l.runs(ctx, r.Task)
	if err != nil {
		return none, err
	}
	for _, run := range runs {
		trace, err := activities.TraceOf(run, dc)
		if err != nil {
			return none, fmt.Errorf("task %s: %w", r.Task.WorkflowID, err)
		}
		for _, e := range trace.Entries {
			if undone[e.Token] {
				before.Tokens[e.Step], before.Places[e.Step] = e.Token, e.Place
			} else if result, done := trace.Done[e.Token]; done {
				before.Outputs[e.Step] = result.Outputs
			}
		}
	}
	started := runs[0][0].GetWorkflowExecutionStartedEventAttributes()
	if err := dc.FromPayload(started.Input.GetPayloads()[0], &before.Document); err != nil {
		return none, fmt.Errorf("task %s: its document: %w", r.Task.WorkflowID, err)
	}
	return before, nil
}

// runs are the histories of a chain, the first run first.
func (l ledgers) runs(ctx context.Context, c workflows.Chain) (runs [][]*historypb.HistoryEvent, err error) {
	for id := c.RunID; id != ""; {
		events, err := l.events(ctx, c.WorkflowID, id)
		if err != nil {
			return nil, err
		}
		runs = append(runs, events)
		id = events[0].GetWorkflowExecutionStartedEventAttributes().ContinuedExecutionRunId
	}
	slices.Reverse(runs)
	return runs, nil
}
