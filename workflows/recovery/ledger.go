package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Ledger rebuilds the ledger of a run from histories alone: what the previous run handed to it or
// it took over, and what it scheduled, without what is undone or a pivot has committed. dc is the
// data converter that the task was run with.
func (s Server) Ledger(ctx context.Context, r protocol.LedgerRequest, dc converter.DataConverter) (protocol.Ledger,
	error) {
	l := ledgerReader{Server: s, dc: dc}
	ledger, err := l.readRun(ctx, r.WorkflowID, r.RunID, 0)
	if err != nil {
		return ledger, err
	}
	if ledger.Entries, err = l.selectPart(ctx, ledger.Entries, r); err != nil {
		return ledger, err
	}
	if err := ledger.Fit(); err != nil {
		return ledger,
			refusef(TooLarge, r.WorkflowID, "the ledger of run %s of %s cannot be handed over: %v", r.RunID, r.WorkflowID, err)
	}
	return ledger, nil
}

// Readable refuses a run that no recovery could unwind because its ledger cannot be read. A ledger
// that is Unreadable with dc may be readable with another data converter.
func (s Server) Readable(ctx context.Context, run Run, dc converter.DataConverter) error {
	_, err := s.Ledger(ctx, protocol.LedgerRequest{WorkflowID: run.WorkflowID, RunID: run.RunID}, dc)
	if WhyOf(err) != "" {
		return err
	}
	return nil // a server that does not answer has not refused
}

// maxDepth bounds how long a chain of recoveries of recoveries is followed.
const maxDepth = 50

// ledgerReader reads ledgers out of histories.
type ledgerReader struct {
	Server

	dc converter.DataConverter
}

// unreadableError says why a part of a history cannot be read.
type unreadableError struct{ error }

// readRun reads the complete ledger of a run. depth counts the recoveries of recoveries followed so
// far.
func (l ledgerReader) readRun(ctx context.Context, id, run string, depth int) (protocol.Ledger, error) {
	if depth > maxDepth {
		return protocol.Ledger{},
			refusef(TooLarge, id, "run %s of %s is one of more than %d recoveries of recoveries", run, id, maxDepth)
	}
	events, err := l.readEvents(ctx, id, run)
	if err != nil {
		return protocol.Ledger{}, err
	}
	if next := events[len(events)-1].GetWorkflowExecutionContinuedAsNewEventAttributes(); next != nil {
		return l.readRun(ctx, id, next.NewExecutionRunId, depth) // the last run of a chain holds all
	}
	ledger, err := l.readEnd(ctx, events, id, run, depth)
	if why, ok := errors.AsType[unreadableError](err); ok {
		return ledger, refusef(Unreadable, id, "run %s of %s: %v", run, id, why)
	}
	return ledger, err
}

// readEnd reads the ledger of a chain from the history of its last run.
func (l ledgerReader) readEnd(ctx context.Context, events []*historypb.HistoryEvent, id, run string,
	depth int) (protocol.Ledger, error) {
	r, err := l.readStart(ctx, events, id, depth)
	if err != nil {
		return protocol.Ledger{}, err
	}
	if r.wrongVersion != "" {
		return protocol.Ledger{}, refusef(OtherVersion, id, "run %s of %s was %s", run, id, r.wrongVersion)
	}
	r.workflow, r.known = id, map[string]bool{}
	compensations.AddDone(r.known, r.Entries, r.Done)
	committed := r.Committed
	// it was reset from another
	if original := events[0].GetWorkflowExecutionStartedEventAttributes().OriginalExecutionRunId; original != "" &&
		original != run {
		first, _, err := l.readOther(ctx, events, id, "", protocol.LedgerRequest{WorkflowID: id, RunID: original}, depth)
		switch {
		case WhyOf(err) == Gone: // only what both runs have in common is undone
			r.Unknown = true
		case err != nil:
			return protocol.Ledger{}, err
		}
		r.merge(first)
	}
	trace, err := activities.TraceOf(events, l.dc)
	if err != nil {
		return protocol.Ledger{}, unreadableError{err}
	}
	if mode := l.findUnwindMode(events); mode != task.UnwindLIFO {
		r.Unwind = mode
	}
	r.merge(protocol.Ledger{Entries: trace.Entries})
	if err := l.applyDecisions(&r, events, trace); err != nil {
		return protocol.Ledger{}, unreadableError{err}
	}
	r.applyTrace(trace, committed)
	r.Completed = r.Completed || events[len(events)-1].GetWorkflowExecutionCompletedEventAttributes() != nil
	return r.Ledger, nil
}

// selectPart returns the part of a ledger that r asks for. An entry that was undone since may still
// mark where a part begins.
func (l ledgerReader) selectPart(ctx context.Context, entries []activities.Entry,
	r protocol.LedgerRequest) ([]activities.Entry, error) {
	part, err := protocol.Part(entries, r.To, r.Step)
	if err != nil {
		return nil, refusef(NoSuchPart, r.WorkflowID, "run %s of %s: %v", r.RunID, r.WorkflowID, err)
	}
	return l.dropUndone(ctx, part, r.Without)
}

// readOther reads the ledger of a run that the workflow own unwinds or was reset from. If own has
// read that ledger itself, it is taken from own's history (isRead), because the other history may
// be gone. Otherwise own must have a right to it.
func (l ledgerReader) readOther(
	ctx context.Context, events []*historypb.HistoryEvent, own, workflowType string, of protocol.LedgerRequest, depth int,
) (ledger protocol.Ledger, isRead bool, err error) {
	isAsked := map[int64]bool{}
	for _, e := range events {
		if s := e.GetActivityTaskScheduledEventAttributes(); s.GetActivityType().GetName() == protocol.LedgerActivity {
			var r protocol.LedgerRequest
			if err := l.dc.FromPayloads(s.Input, &r); err != nil {
				return ledger, false, unreadableError{fmt.Errorf("event %d, a request for a ledger: %w", e.EventId, err)}
			}
			isAsked[e.EventId] = r.WorkflowID == of.WorkflowID && r.RunID == of.RunID
		}
		if c := e.GetActivityTaskCompletedEventAttributes(); isAsked[c.GetScheduledEventId()] {
			if err := l.dc.FromPayloads(c.Result, &ledger); err != nil {
				return ledger, false, unreadableError{fmt.Errorf("event %d, a ledger: %w", e.EventId, err)}
			}
			isRead = true
		}
	}
	if isRead {
		return ledger, true, nil
	}
	if err := l.checkRight(ctx, own, workflowType, of); err != nil {
		return ledger, false, err
	}
	ledger, err = l.readRun(ctx, of.WorkflowID, of.RunID, depth+1)
	return ledger, false, err
}

// readStart reads what a run begins with.
func (l ledgerReader) readStart(ctx context.Context, events []*historypb.HistoryEvent, own string,
	depth int) (k reading, err error) {
	k.done = map[string]bool{}
	started := events[0].GetWorkflowExecutionStartedEventAttributes()
	arguments := started.Input.GetPayloads()
	// otherwise a client made it up, and the run refused it
	if started.ContinuedExecutionRunId != "" && len(arguments) == 2 && !isNull(l.dc, arguments[1]) {
		var carry protocol.Carry
		if err := l.dc.FromPayload(arguments[1], &carry); err != nil {
			return k, unreadableError{fmt.Errorf("what it was handed by the run before it: %w", err)}
		}
		if k.wrongVersion = carry.WrongVersion(); k.wrongVersion != "" {
			return k, nil
		}
		k.Unwind = carry.Compiled.Unwind
		k.Entries, k.Progress, k.Past, k.Done = carry.Saga.Entries, carry.Saga.Progress, carry.Saga.Past, carry.Saga.Done
		k.Results = carry.Saga.Results
		k.Redoable, k.Unknown, k.Committed, k.Pivot = carry.Redoable, carry.Unknown, carry.Committed, carry.Pivot
		isOpen := map[string]bool{} // steps that ended in an earlier run without being done
		for _, v := range carry.Past {
			isOpen[v.ID] = v.State != protocol.Done
		}
		for _, e := range k.Entries {
			s, carried := carry.Steps[e.Step]
			k.done[e.Token] = e.Seq > carry.Pivot && (s.State == protocol.Done || !carried && !isOpen[e.Step])
		}
		return k, nil
	}
	switch started.WorkflowType.GetName() {
	case protocol.RecoverType:
		var r protocol.RecoverRequest
		if err := l.dc.FromPayload(arguments[0], &r); err != nil {
			return k, unreadableError{err}
		}
		k.Ledger, _, err = l.readOther(ctx, events, own, protocol.RecoverType,
			protocol.LedgerRequest{WorkflowID: r.WorkflowID, RunID: r.RunID}, depth)
		return k, err
	case protocol.RollbackType:
		var r protocol.RollbackRequest
		if err := l.dc.FromPayload(arguments[0], &r); err != nil {
			return k, unreadableError{err}
		}
		ledger, isPart, err := l.readOther(ctx, events, own, protocol.RollbackType, r.Ledger(), depth)
		k.Unwind, k.Entries, k.Done, k.Results = ledger.Unwind, ledger.Entries, ledger.Done, ledger.Results
		if err == nil && !isPart { // a ledger that it has read itself is already the part
			k.Entries, err = l.selectPart(ctx, ledger.Entries, r.Ledger())
		}
		k.Redoable = true // the task's own undos are not included
		return k, err
	case protocol.LateSweepType:
		var r protocol.LateSweepRequest
		if err := l.dc.FromPayload(arguments[0], &r); err != nil {
			return k, unreadableError{err}
		}
		if started.GetParentWorkflowExecution().GetWorkflowId() != r.Task { // a client made it up, and the run refused it
			return k, nil
		}
		for _, again := range r.Rechecks {
			k.Entries = append(k.Entries, again.Entry)
		}
	}
	return k, nil
}

// localActivity is the marker name of local activities in a history. A task has one, for its
// compilation.
const localActivity = "LocalActivity"

// findUnwindMode returns the order in which the task that a run compiled is to be undone.
func (l ledgerReader) findUnwindMode(events []*historypb.HistoryEvent) task.UnwindMode {
	for _, e := range events {
		marker := e.GetMarkerRecordedEventAttributes()
		var compiled task.Compiled
		if marker.GetMarkerName() == localActivity && l.dc.FromPayloads(marker.GetDetails()["result"], &compiled) == nil {
			return compiled.Unwind
		}
	}
	return task.UnwindLIFO
}

func isNull(dc converter.DataConverter, p *commonpb.Payload) bool {
	var raw json.RawMessage
	return dc.FromPayload(p, &raw) == nil && (len(raw) == 0 || string(raw) == "null")
}

// readEvents reads the whole history of a run.
func (s Server) readEvents(ctx context.Context, id, run string) ([]*historypb.HistoryEvent, error) {
	var events []*historypb.HistoryEvent
	history := s.Client.GetWorkflowHistory(ctx, id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		if _, missing := errors.AsType[*serviceerror.NotFound](err); missing {
			return nil, refusef(Gone, id, "the history of run %s of %s is gone: %v", run, id, err)
		}
		if err != nil {
			return nil, fmt.Errorf("history of run %s of %s: %w", run, id, err)
		}
		events = append(events, event)
	}
	if len(events) == 0 {
		return nil, refusef(Gone, id, "the history of run %s of %s is empty", run, id)
	}
	return events, nil
}
