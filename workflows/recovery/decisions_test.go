package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

// told is the history of a run, as far as it tells of the parks of one entry.
type told struct {
	*testing.T
	entry    activities.Entry
	progress compensations.Progress
	events   []*historypb.HistoryEvent
	trace    activities.Trace
}

func (h *told) event(e *historypb.HistoryEvent) int64 {
	e.EventId = int64(len(h.events) + 1)
	h.events = append(h.events, e)
	return e.EventId
}

func (h *told) payloads(v any) *commonpb.Payloads {
	p, err := converter.GetDefaultDataConverter().ToPayloads(v)
	require.NoError(h, err)
	return p
}

// ends notes that an undo came to an end.
func (h *told) ends(a activities.Attempt) {
	a.Token, a.Event = h.entry.Token, h.event(&historypb.HistoryEvent{})
	h.trace.Attempts = append(h.trace.Attempts, a)
}

// parks tells of a park, and returns its digest.
func (h *told) parks(s compensations.UndoState, reason string, times int, u activities.Undone) activities.Digest {
	var l compensations.Progress
	l.State, l.Reason, l.Parks, l.Undone = s, reason, times, u
	d := l.Digest(h.entry)
	h.event(&historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
		ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
			ActivityType: &commonpb.ActivityType{Name: workflows.AlertActivity},
			Input:        h.payloads([]workflows.Alert{{Step: h.entry.Step, State: s, Reason: reason, Digest: d}}),
		}}})
	return d
}

func (h *told) resolves(d activities.Digest, do compensations.Do) {
	h.event(&historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowExecutionSignaledEventAttributes{
		WorkflowExecutionSignaledEventAttributes: &historypb.WorkflowExecutionSignaledEventAttributes{
			SignalName: compensations.SignalResolve,
			Input:      h.payloads(compensations.Resolution{Step: h.entry.Step, Digest: d, Do: do, Who: "eve"}),
		}}})
}

// known is what a recovery of the run knows of the entry.
func (h *told) known() compensations.Progress {
	k := reading{Ledger: workflows.Ledger{
		Entries: []activities.Entry{h.entry}, Progress: map[string]compensations.Progress{h.entry.Token: h.progress},
	}}
	require.NoError(h, ledgerReader{dc: converter.GetDefaultDataConverter()}.applyDecisions(&k, h.events, h.trace))
	return k.Progress[h.entry.Token]
}

func newTold(t *testing.T) *told {
	return &told{T: t, entry: activities.Entry{Step: "a", Token: "t"}}
}

var (
	failed  = activities.Undone{Outcome: activities.Failed}
	drifted = activities.Undone{Outcome: activities.Drifted, Drift: &activities.Drift{Digest: "sha256:theirs"}}
)

func TestADecisionThatWasActedOnIsNotActedOnAgain(t *testing.T) {
	for _, do := range []compensations.Do{compensations.Reset, compensations.Force, compensations.Retry} {
		h := newTold(t)
		h.ends(activities.Attempt{Undone: &drifted})
		h.resolves(h.parks(compensations.Parked, "changed", 1, drifted), do)
		require.Equal(t, "eve", h.known().Decision.Who, "it holds while its undo is under way")
		require.Equal(t, do == compensations.Reset, h.known().Reset)
		h.ends(activities.Attempt{})
		h.parks(compensations.Parked, "down", 2, failed)
		l := h.known()
		require.Equal(t, compensations.Pending, l.State)
		require.Zero(t, l.Decision)
		require.False(t, l.Reset, "it is undone, not reset again")
		require.Equal(t, do != compensations.Force, l.Alone, "what was said of a step that builds on it stays so")
	}
}

func TestADecisionHoldsWhileItsUndoWaitsForAHost(t *testing.T) {
	h := newTold(t)
	h.ends(activities.Attempt{Undone: &drifted})
	h.resolves(h.parks(compensations.Parked, "changed", 1, drifted), compensations.Reset)
	h.ends(activities.Attempt{Unserved: true})
	h.parks(compensations.Waiting, "waiting for host far", 2, drifted)
	l := h.known()
	require.Equal(t, compensations.Pending, l.State)
	require.True(t, l.Reset)
	require.Equal(t, "eve", l.Decision.Who)
}

func TestANewParkHasADigestOfItsOwnAlsoWhereTheOldOneWasShortened(t *testing.T) {
	h := newTold(t)
	h.progress.State, h.progress.Reason, h.progress.Parks, h.progress.Shown = compensations.Parked, "cha...", 1, "sha256:shown"
	h.resolves("sha256:shown", compensations.Retry)
	h.ends(activities.Attempt{})
	d := h.parks(compensations.Parked, "down", 2, failed)
	h.resolves("sha256:shown", compensations.Accept)
	require.Equal(t, compensations.Pending, h.known().State, "that was another park")
	h.resolves(d, compensations.Skip)
	require.Equal(t, compensations.Skipped, h.known().State)
}

// A run that is to continue as new takes back the undos that wait for a host: it asks nobody any more.
func TestAParkIsOverWhenItsUndoWasTakenBack(t *testing.T) {
	h := newTold(t)
	h.ends(activities.Attempt{Undone: &drifted})
	h.resolves(h.parks(compensations.Parked, "changed", 1, drifted), compensations.Retry)
	h.ends(activities.Attempt{Unserved: true})
	d := h.parks(compensations.Waiting, "waiting for host far", 2, drifted)
	h.ends(activities.Attempt{Canceled: true})
	h.resolves(d, compensations.Skip)
	require.Equal(t, compensations.Pending, h.known().State)
	d = h.parks(compensations.Waiting, "waiting for host far", 3, drifted) // no undo has found anything else since
	h.resolves(d, compensations.Accept)
	require.Equal(t, compensations.Accepted, h.known().State)
}
