package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	updatepb "go.temporal.io/api/update/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// parkHistory is the part of a run's history that is about the parks of one entry.
type parkHistory struct {
	*testing.T
	entry    activities.Entry
	progress compensations.Progress
	events   []*historypb.HistoryEvent
	trace    activities.Trace
}

func (h *parkHistory) event(e *historypb.HistoryEvent) int64 {
	e.EventId = int64(len(h.events) + 1)
	h.events = append(h.events, e)
	return e.EventId
}

func (h *parkHistory) payloads(v any) *commonpb.Payloads {
	p, err := converter.GetDefaultDataConverter().ToPayloads(v)
	require.NoError(h, err)
	return p
}

// addEnd records the end of an undo.
func (h *parkHistory) addEnd(a activities.Attempt) {
	a.Token, a.Event = h.entry.Token, h.event(&historypb.HistoryEvent{})
	h.trace.Attempts = append(h.trace.Attempts, a)
}

// addPark records the alert about a park, and returns the park's digest.
func (h *parkHistory) addPark(s compensations.UndoState, reason string, times int,
	u activities.Undone) activities.Digest {
	var l compensations.Progress
	l.State, l.Reason, l.Parks, l.Undone = s, reason, times, u
	d := l.Digest(h.entry)
	h.event(&historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
		ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
			ActivityType: &commonpb.ActivityType{Name: protocol.AlertActivity},
			Input:        h.payloads([]protocol.Alert{{Step: h.entry.Step, State: s, Reason: reason, Digest: d}}),
		}}})
	return d
}

func (h *parkHistory) resolves(d activities.Digest, do compensations.Do) {
	h.event(&historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowExecutionSignaledEventAttributes{
		WorkflowExecutionSignaledEventAttributes: &historypb.WorkflowExecutionSignaledEventAttributes{
			SignalName: compensations.SignalResolve,
			Input:      h.payloads(compensations.Resolution{Step: h.entry.Step, Digest: d, Do: do, Who: "eve"}),
		}}})
}

// updates is resolves by an update.
func (h *parkHistory) updates(d activities.Digest, do compensations.Do) {
	h.event(&historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowExecutionUpdateAcceptedEventAttributes{
		WorkflowExecutionUpdateAcceptedEventAttributes: &historypb.WorkflowExecutionUpdateAcceptedEventAttributes{
			AcceptedRequest: &updatepb.Request{Input: &updatepb.Input{
				Name: protocol.UpdateResolve,
				Args: h.payloads(compensations.Resolution{Step: h.entry.Step, Digest: d, Do: do, Who: "eve"}),
			}},
		}}})
}

// recoverProgress returns what a recovery of the run knows about the entry.
func (h *parkHistory) recoverProgress() compensations.Progress {
	k := reading{Ledger: protocol.Ledger{
		Entries: []activities.Entry{h.entry}, Progress: map[string]compensations.Progress{h.entry.Token: h.progress},
	}, workflow: "dead"}
	require.NoError(h, ledgerReader{dc: converter.GetDefaultDataConverter()}.applyDecisions(&k, h.events, h.trace))
	return k.Progress[h.entry.Token]
}

func newTold(t *testing.T) *parkHistory {
	return &parkHistory{T: t, entry: activities.Entry{Step: "a", Token: "t"}}
}

var (
	failed  = activities.Undone{Outcome: activities.Failed}
	drifted = activities.Undone{Outcome: activities.Drifted, Drift: &activities.Drift{Digest: "sha256:theirs"}}
)

func TestADecisionIsCarriedOutOnce(t *testing.T) {
	for _, do := range []compensations.Do{compensations.Reset, compensations.Force, compensations.Retry} {
		h := newTold(t)
		h.addEnd(activities.Attempt{Undone: &drifted})
		h.resolves(h.addPark(compensations.Parked, "changed", 1, drifted), do)
		require.Equal(t, "eve", h.recoverProgress().Decision.Who, "it holds while its undo is under way")
		require.Equal(t, do == compensations.Reset, h.recoverProgress().Reset)
		h.addEnd(activities.Attempt{})
		h.addPark(compensations.Parked, "down", 2, failed)
		l := h.recoverProgress()
		require.Equal(t, compensations.Pending, l.State)
		require.Zero(t, l.Decision)
		require.False(t, l.Reset, "it is undone, not reset again")
		require.Equal(t, do != compensations.Force, l.Alone, "what was said of a step that builds on it stays so")
	}
}

func TestADecisionByAnUpdateHoldsToo(t *testing.T) {
	h := newTold(t)
	h.addEnd(activities.Attempt{Undone: &drifted})
	h.updates(h.addPark(compensations.Parked, "changed", 1, drifted), compensations.Force)
	require.Equal(t, activities.Decision{Force: "sha256:theirs", Who: "eve"}, h.recoverProgress().Decision)
	require.Equal(t, drifted.Drift, h.recoverProgress().ForcedDrift)
}

// What a force has overwritten may be nowhere but in the history of the run that forced it.
func TestWhatAForceOverwroteIsKnownAfterARecovery(t *testing.T) {
	h := newTold(t) // by the step's policy: nobody has decided anything
	h.addEnd(activities.Attempt{Undone: &drifted})
	h.trace.Forced = map[string][]activities.Digest{h.entry.Token: {"sha256:theirs"}}
	for what, end := range map[string]activities.Attempt{"under way": {Canceled: true}, "failed": {},
		"done": {Undone: &activities.Undone{Outcome: activities.Restored}}} {
		h.addEnd(end)
		known := h.recoverProgress()
		require.Equal(t, compensations.Pending, known.State, what)
		require.Equal(t, drifted.Drift, known.ForcedDrift, what)
	}
	h.trace.Settled = map[string]activities.Undone{h.entry.Token: {Outcome: activities.Restored}}
	k := reading{Ledger: protocol.Ledger{Entries: []activities.Entry{h.entry}}, done: map[string]bool{},
		known: map[string]bool{}}
	require.NoError(t, ledgerReader{dc: converter.GetDefaultDataConverter()}.applyDecisions(&k, h.events, h.trace))
	k.applyTrace(h.trace, 0)
	require.Empty(t, k.Entries)
	require.Len(t, k.Past.Steps, 1, "it is told though it is clean")
	require.Equal(t, drifted.Drift, k.Past.Steps[0].Drift)
}

func TestADecisionHoldsWhileItsUndoWaitsForAHost(t *testing.T) {
	h := newTold(t)
	h.addEnd(activities.Attempt{Undone: &drifted})
	h.resolves(h.addPark(compensations.Parked, "changed", 1, drifted), compensations.Reset)
	h.addEnd(activities.Attempt{Unserved: true})
	h.addPark(compensations.Waiting, "waiting for host far", 2, drifted)
	l := h.recoverProgress()
	require.Equal(t, compensations.Pending, l.State)
	require.True(t, l.Reset)
	require.Equal(t, "eve", l.Decision.Who)
}

func TestANewParkHasItsOwnDigestEvenAfterAShortenedOne(t *testing.T) {
	h := newTold(t)
	h.progress.State, h.progress.Reason, h.progress.Parks, h.progress.Shown = compensations.Parked, "cha...", 1,
		"sha256:shown"
	h.resolves("sha256:shown", compensations.Retry)
	h.addEnd(activities.Attempt{})
	d := h.addPark(compensations.Parked, "down", 2, failed)
	h.resolves("sha256:shown", compensations.Accept)
	require.Equal(t, compensations.Pending, h.recoverProgress().State, "that was another park")
	h.resolves(d, compensations.Skip)
	require.Equal(t, compensations.Skipped, h.recoverProgress().State)
}

// A run that is about to continue as new recalls the undos that wait for a host, and so ends their
// parks.
func TestAParkEndsWhenItsUndoIsRecalled(t *testing.T) {
	h := newTold(t)
	h.addEnd(activities.Attempt{Undone: &drifted})
	h.resolves(h.addPark(compensations.Parked, "changed", 1, drifted), compensations.Retry)
	h.addEnd(activities.Attempt{Unserved: true})
	d := h.addPark(compensations.Waiting, "waiting for host far", 2, drifted)
	h.addEnd(activities.Attempt{Canceled: true})
	h.resolves(d, compensations.Skip)
	require.Equal(t, compensations.Pending, h.recoverProgress().State)
	d = h.addPark(compensations.Waiting, "waiting for host far", 3, drifted) // no undo has found anything different since
	h.resolves(d, compensations.Accept)
	require.Equal(t, compensations.Accepted, h.recoverProgress().State)
}

// What a run has ignored, because its worker takes only signed decisions, decides nothing in its recovery.
func TestABareDecisionAfterAnUnprovedOneIsIgnoredByARecoveryToo(t *testing.T) {
	h := newTold(t)
	h.addEnd(activities.Attempt{Undone: &drifted})
	h.resolves(h.addPark(compensations.Parked, "changed", 1, drifted), compensations.Force)
	h.addEnd(activities.Attempt{Unproved: true})
	d := h.addPark(compensations.Parked, "not signed", 2, drifted)
	h.resolves(d, compensations.Accept)
	known := h.recoverProgress()
	require.Equal(t, compensations.Pending, known.State)
	require.True(t, known.Signed)
	require.Equal(t, drifted, known.Undone, "what was shown is shown again")
}

func TestASignedForceIsForTheDeadRunsTask(t *testing.T) {
	h := newTold(t)
	h.addEnd(activities.Attempt{Undone: &drifted})
	d := h.addPark(compensations.Parked, "changed", 1, drifted)
	h.event(&historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowExecutionSignaledEventAttributes{
		WorkflowExecutionSignaledEventAttributes: &historypb.WorkflowExecutionSignaledEventAttributes{
			SignalName: compensations.SignalResolve, Input: h.payloads(compensations.Resolution{Step: h.entry.Step, Digest: d,
				Do: compensations.Force, Who: "ann", Signature: "hers"}),
		}}})
	signing := h.recoverProgress().Decision.Signing
	require.NotNil(t, signing)
	require.Equal(t, "dead", signing.Task)
}
