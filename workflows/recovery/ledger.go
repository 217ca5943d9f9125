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
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Ledger rebuilds the ledger of a run from histories alone: what it was handed by the run before it or took over, and what
// it scheduled; without what is undone, and what a pivot keeps. dc is the data converter of who ran it.
func (s Server) Ledger(ctx context.Context, r workflows.LedgerRequest, dc converter.DataConverter) (workflows.Ledger, error) {
	l := ledgers{Server: s, dc: dc}
	ledger, err := l.of(ctx, r.WorkflowID, r.RunID, 0)
	if err != nil {
		return ledger, err
	}
	if ledger.Entries, err = l.part(ctx, ledger.Entries, r); err != nil {
		return ledger, err
	}
	ledger.Cut = r.To != "" || r.Step != ""
	if err := ledger.Fit(); err != nil {
		return ledger, refusef(TooLarge, r.WorkflowID, "the ledger of run %s of %s cannot be handed over: %v", r.RunID, r.WorkflowID, err)
	}
	return ledger, nil
}

// part is what of a ledger is wanted. What has been undone since still tells where a part begins.
func (l ledgers) part(ctx context.Context, entries []activities.Entry, r workflows.LedgerRequest) ([]activities.Entry, error) {
	part, err := workflows.Part(entries, r.To, r.Step)
	if err != nil {
		return nil, refusef(NoSuchPart, r.WorkflowID, "run %s of %s: %v", r.RunID, r.WorkflowID, err)
	}
	return l.without(ctx, part, r.Without)
}

// Readable refuses a run that no recovery could unwind, for its ledger cannot be read. That it is Unreadable says nothing of
// another data converter than dc.
func (s Server) Readable(ctx context.Context, run Run, dc converter.DataConverter) error {
	_, err := s.Ledger(ctx, workflows.LedgerRequest{WorkflowID: run.WorkflowID, RunID: run.RunID}, dc)
	if WhyOf(err) != "" {
		return err
	}
	return nil // a server that does not answer has not said no
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
		return none, refusef(TooLarge, id, "run %s of %s is one of more than %d recoveries of recoveries", run, id, maxDeep)
	}
	events, err := l.events(ctx, id, run)
	if err != nil {
		return none, err
	}
	if next := events[len(events)-1].GetWorkflowExecutionContinuedAsNewEventAttributes(); next != nil {
		return l.of(ctx, id, next.NewExecutionRunId, deep) // the last run of a chain holds all
	}
	started := events[0].GetWorkflowExecutionStartedEventAttributes()
	base, err := l.base(ctx, events, deep)
	if version := base.version; version > workflows.CarryVersion {
		return none, refusef(Newer, id, "run %s of %s was handed format %d by the run before it, and this version knows %d: upgrade, and recover it then",
			run, id, version, workflows.CarryVersion)
	}
	if cannot, ok := errors.AsType[unread](err); ok {
		return none, unreadable(id, run, cannot)
	}
	if err != nil {
		return none, err
	}
	kept := base.Kept
	if original := started.OriginalExecutionRunId; original != "" && original != run { // it was reset from another
		first, _, err := l.ofAnother(ctx, events, id, original, deep)
		switch {
		case WhyOf(err) == Gone: // what both have in common is undone
			base.Unknown = true
		case err != nil:
			return none, err
		}
		base.merge(first)
	}
	trace, err := activities.TraceOf(events, l.dc)
	if err != nil {
		return none, unreadable(id, run, err)
	}
	if mode := l.mode(events); mode != task.UnwindLIFO {
		base.Unwind = mode
	}
	base.merge(workflows.Ledger{Entries: trace.Entries})
	if err := l.decide(&base, events, trace); err != nil {
		return none, unreadable(id, run, err)
	}
	for token := range trace.Done {
		base.done[token] = true
	}
	for _, e := range base.Entries {
		if e.Pivot && base.done[e.Token] {
			base.Pivot = max(base.Pivot, e.Seq)
		}
	}
	base.Entries = slices.DeleteFunc(base.Entries, func(e activities.Entry) bool {
		if undone, settled := trace.Settled[e.Token]; settled {
			base.Past.Settle(e, undone)
			delete(base.Left, e.Token)
			return true
		}
		if left := base.Left[e.Token]; left.State == compensations.Accepted {
			base.Past.End(e, left)
			delete(base.Left, e.Token)
			return true
		}
		keep := e.Seq <= base.Pivot && base.done[e.Token]
		if keep {
			kept++
		}
		return keep
	})
	base.Kept = max(base.Kept, kept)
	return base.Ledger, nil
}

// unread is what keeps a part of a history from being read.
type unread struct{ error }

func unreadable(id, run string, err error) error {
	return refusef(Unreadable, id, "run %s of %s: %v", run, id, err)
}

// ofAnother is the ledger of a run that this one has to do with. Told says that this one has read it, and that it is from its
// own history: however long that of the other is kept.
func (l ledgers) ofAnother(ctx context.Context, events []*historypb.HistoryEvent, id, run string, deep int) (ledger workflows.Ledger, told bool, err error) {
	asked := map[int64]bool{}
	for _, e := range events {
		if s := e.GetActivityTaskScheduledEventAttributes(); s.GetActivityType().GetName() == workflows.LedgerActivity {
			var r workflows.LedgerRequest
			if err := l.dc.FromPayloads(s.Input, &r); err != nil {
				return ledger, false, unread{fmt.Errorf("event %d, a request for a ledger: %w", e.EventId, err)}
			}
			asked[e.EventId] = r.WorkflowID == id && r.RunID == run
		}
		if c := e.GetActivityTaskCompletedEventAttributes(); asked[c.GetScheduledEventId()] {
			if err := l.dc.FromPayloads(c.Result, &ledger); err != nil {
				return ledger, false, unread{fmt.Errorf("event %d, a ledger: %w", e.EventId, err)}
			}
			told = true
		}
	}
	if !told {
		ledger, err = l.of(ctx, id, run, deep+1)
	}
	return ledger, told, err
}

// base is what a run begins with.
func (l ledgers) base(ctx context.Context, events []*historypb.HistoryEvent, deep int) (k known, err error) {
	k.done = map[string]bool{}
	started := events[0].GetWorkflowExecutionStartedEventAttributes()
	arguments := started.Input.GetPayloads()
	if len(arguments) == 2 && !isNull(l.dc, arguments[1]) {
		var carry workflows.Carry
		if err := l.dc.FromPayload(arguments[1], &carry); err != nil {
			return k, unread{fmt.Errorf("what it was handed by the run before it: %w", err)}
		}
		k.version = carry.Version
		k.Unwind = carry.Compiled.Unwind
		k.Entries, k.Left, k.Past = carry.Saga.Entries, carry.Saga.Left, carry.Saga.Past
		k.Redoable, k.Unknown, k.Kept, k.Pivot = carry.Redoable, carry.Unknown, carry.Kept, carry.Pivot
		open := map[string]bool{} // and what a pivot has kept is not among the entries
		for _, v := range carry.Past {
			open[v.ID] = v.State != workflows.Done
		}
		for _, e := range k.Entries {
			s, carried := carry.Steps[e.Step]
			k.done[e.Token] = e.Seq > carry.Pivot && (s.State == workflows.Done || !carried && !open[e.Step])
		}
		return k, nil
	}
	switch started.WorkflowType.GetName() {
	case workflows.RecoverType:
		var r workflows.RecoverRequest
		if err := l.dc.FromPayload(arguments[0], &r); err != nil {
			return k, unread{err}
		}
		k.Ledger, _, err = l.ofAnother(ctx, events, r.WorkflowID, r.RunID, deep)
		return k, err
	case workflows.RollbackType:
		var r workflows.RollbackRequest
		if err := l.dc.FromPayload(arguments[0], &r); err != nil {
			return k, unread{err}
		}
		ledger, told, err := l.ofAnother(ctx, events, r.WorkflowID, r.RunID, deep)
		k.Unwind, k.Entries = ledger.Unwind, ledger.Entries
		switch {
		case err != nil:
		case !told:
			k.Entries, err = l.part(ctx, ledger.Entries, r.Ledger())
		case !ledger.Cut:
			k.Entries, err = workflows.Part(ledger.Entries, r.To, r.Step)
		}
		k.Redoable = true // what the task itself had undone is no part of this
		return k, err
	case workflows.LateSweepType:
		var r workflows.LateSweepRequest
		if err := l.dc.FromPayload(arguments[0], &r); err != nil {
			return k, unread{err}
		}
		for _, again := range r.Again {
			k.Entries = append(k.Entries, again.Entry)
		}
	}
	return k, nil
}

// localActivity is the name of the markers that a history has for local activities. A task has one: it was compiled.
const localActivity = "LocalActivity"

// mode is the order in which the task wants to be undone that a run has compiled.
func (l ledgers) mode(events []*historypb.HistoryEvent) task.UnwindMode {
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

// known is a ledger, and which of its steps are done.
type known struct {
	workflows.Ledger
	done    map[string]bool
	version int // of what it was handed by the run before
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
	k.Past.Join(l.Past)
	k.Unknown = k.Unknown || l.Unknown
	k.Kept, k.Pivot = max(k.Kept, l.Kept), max(k.Pivot, l.Pivot)
	for token, left := range l.Left {
		if k.Left == nil {
			k.Left = map[string]compensations.Left{}
		}
		k.Left[token] = left
	}
}

// events is the whole history of a run.
func (s Server) events(ctx context.Context, id, run string) ([]*historypb.HistoryEvent, error) {
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

// Before reads what a rolled back task was, for doing it again: its document, and the outputs of all its steps.
func (s Server) Before(ctx context.Context, r workflows.RedoRequest, dc converter.DataConverter) (workflows.Redoable, error) {
	l := ledgers{Server: s, dc: dc}
	before := workflows.Redoable{Outputs: map[string]map[string]any{}, Tokens: map[string]string{}, Places: map[string]activities.Place{}}
	undone, err := l.undone(ctx, r.Rollback)
	if err != nil {
		return before, err
	}
	if err := l.done(ctx, r.Task, undone, &before, 0); err != nil {
		return before, err
	}
	if _, err := before.MarshalJSON(); err != nil {
		return before, refusef(TooLarge, r.Task.WorkflowID, "what task %s was cannot be handed over: %v", r.Task.WorkflowID, err)
	}
	return before, nil
}

// undone are the tokens that a rollback has undone, or a recovery of it.
func (l ledgers) undone(ctx context.Context, rollback workflows.Chain) (map[string]bool, error) {
	undone := map[string]bool{}
	for range maxDeep {
		runs, err := l.runs(ctx, rollback)
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
		recovery, err := l.Describe(ctx, workflows.RecoverID(rollback), "")
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

// done reads what a task has done, and its document: that of a redo is the document of the task that it does again.
func (l ledgers) done(ctx context.Context, c workflows.Chain, undone map[string]bool, before *workflows.Redoable, deep int) error {
	runs, err := l.runs(ctx, c)
	if err != nil {
		return err
	}
	started := runs[0][0].GetWorkflowExecutionStartedEventAttributes()
	first := started.Input.GetPayloads()[0]
	if started.WorkflowType.GetName() == workflows.RedoType && deep < maxDeep {
		var r workflows.RedoRequest
		if err := l.dc.FromPayload(first, &r); err != nil {
			return fmt.Errorf("redo %s: %w", c.WorkflowID, err)
		}
		if err := l.done(ctx, r.Task, undone, before, deep+1); err != nil {
			return err
		}
	} else if err := l.dc.FromPayload(first, &before.Document); err != nil {
		return fmt.Errorf("task %s: its document: %w", c.WorkflowID, err)
	}
	for _, run := range runs {
		trace, err := activities.TraceOf(run, l.dc)
		if err != nil {
			return fmt.Errorf("task %s: %w", c.WorkflowID, err)
		}
		for _, e := range trace.Entries {
			if undone[e.Token] {
				before.Tokens[e.Step], before.Places[e.Step] = e.Token, e.Place
				delete(before.Outputs, e.Step)
			} else if result, done := trace.Done[e.Token]; done {
				before.Outputs[e.Step] = result.Outputs
			}
		}
	}
	return nil
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
