package activities_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
)

// scheduledEvent returns the event that schedules an activity with these arguments.
func scheduledEvent(t *testing.T, dc converter.DataConverter, activity string,
	arguments ...any) *historypb.HistoryEvent {
	p, err := dc.ToPayloads(arguments...)
	require.NoError(t, err)
	return &historypb.HistoryEvent{EventId: 5, Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
		ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
			ActivityType: &commonpb.ActivityType{Name: activity}, Input: p,
		}}}
}

func TestTheLedgerIsRebuiltFromAHistoryAlone(t *testing.T) {
	dc := converter.GetDefaultDataConverter()
	a, b := forwardOfThisRun(`{}`), forwardOfThisRun(`{}`)
	a.Entry.Token, a.Entry.Seq, b.Entry.Token, b.Entry.Seq = "a", 1, "b", 2
	got, err := activities.TraceOf([]*historypb.HistoryEvent{
		{EventId: 1},
		scheduledEvent(t, dc, "task.compile", json.RawMessage(`{"name": "x"}`)),
		scheduledEvent(t, dc, "own.text", "text"), scheduledEvent(t, dc, "own.list", []int{1}), scheduledEvent(t, dc,
			"own.bytes", []byte("bytes")),
		scheduledEvent(t, dc, "own.nothing", nil), scheduledEvent(t, dc, "own.proto", &commonpb.ActivityType{Name: "x"}),
		scheduledEvent(t, dc, "echo.say.plan", a), scheduledEvent(t, dc, "echo.say", a), scheduledEvent(t, dc, "echo.say", b),
		scheduledEvent(t, dc, "echo.say.undo", activities.Backward{Entry: b.Entry}),
	}, dc)
	require.NoError(t, err)
	require.Equal(t, []activities.Entry{a.Entry, b.Entry}, got.Entries)
}

// The forward of a library's user may have any arguments and any result.
func TestAForwardIsRecognizedByTheEntryAmongItsArguments(t *testing.T) {
	dc := converter.GetDefaultDataConverter()
	f := forwardOfThisRun(`{}`)
	// with a step it would be an Action's
	f.Entry.Token, f.Entry.UndoType, f.Step = "t", "echo.say.undo", activities.Step{}
	for what, arguments := range map[string][]any{
		"a Forward":             {f},
		"a Forward and another": {f, "Rome"},
		"another and a Forward": {map[string]string{"token": "x", "undo": "y"}, f},
		"the Entry":             {f.Entry},
		"the Entry and another": {f.Entry, 7},
		"a type with a Forward in it": {struct {
			activities.Forward
			City string
		}{f, "Rome"}},
	} {
		result, err := dc.ToPayloads("booked")
		require.NoError(t, err)
		trace, err := activities.TraceOf([]*historypb.HistoryEvent{
			scheduledEvent(t, dc, "echo.say.observe", f.Entry), scheduledEvent(t, dc, "other", arguments...),
			scheduledEvent(t, dc, "echo.say", arguments...),
			{EventId: 6, Attributes: &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{
				ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{ScheduledEventId: 5,
					Result: result}}},
		}, dc)
		require.NoError(t, err, what)
		require.Equal(t, []activities.Entry{f.Entry}, trace.Entries, what)
		require.Contains(t, trace.Done, "t", what)
	}
}

func TestEveryEndOfAnUndoIsInTheTrace(t *testing.T) {
	dc := converter.GetDefaultDataConverter()
	e := forwardOfThisRun(`{}`).Entry
	undo := scheduledEvent(t, dc, e.UndoType, activities.Backward{Entry: e})
	unserved := &failurepb.Failure{FailureInfo: &failurepb.Failure_TimeoutFailureInfo{
		TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{TimeoutType: enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START}}}
	done, err := dc.ToPayloads(activities.Undone{Outcome: activities.Restored})
	require.NoError(t, err)
	trace, err := activities.TraceOf([]*historypb.HistoryEvent{
		undo,
		{EventId: 6, Attributes: &historypb.HistoryEvent_ActivityTaskFailedEventAttributes{
			ActivityTaskFailedEventAttributes: &historypb.ActivityTaskFailedEventAttributes{ScheduledEventId: 5,
				Failure: &failurepb.Failure{FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
					ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: string(activities.Unproved)}}}}}},
		{EventId: 7, Attributes: &historypb.HistoryEvent_ActivityTaskTimedOutEventAttributes{
			ActivityTaskTimedOutEventAttributes: &historypb.ActivityTaskTimedOutEventAttributes{ScheduledEventId: 5,
				Failure: unserved}}},
		{EventId: 8, Attributes: &historypb.HistoryEvent_ActivityTaskCanceledEventAttributes{
			ActivityTaskCanceledEventAttributes: &historypb.ActivityTaskCanceledEventAttributes{ScheduledEventId: 5}}},
		{EventId: 9, Attributes: &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{
			ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{ScheduledEventId: 5,
				Result: done}}},
	}, dc)
	require.NoError(t, err)
	restored := activities.Undone{Outcome: activities.Restored}
	require.Equal(t, []activities.Attempt{
		{Event: 6, Token: e.Token, Unproved: true}, {Event: 7, Token: e.Token, Unserved: true},
		{Event: 8, Token: e.Token, Canceled: true}, {Event: 9, Token: e.Token, Undone: &restored},
	}, trace.Attempts)
	require.Equal(t, map[string]activities.Undone{e.Token: restored}, trace.Settled)
}

// encryptingCodec is a codec that hides the content of payloads.
type encryptingCodec struct{ encoding string }

func (s encryptingCodec) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	for i, p := range payloads {
		payloads[i] = &commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(s.encoding)},
			Data: p.Data}
	}
	return payloads, nil
}

func (s encryptingCodec) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return encryptingCodec{converter.MetadataEncodingJSON}.Encode(payloads)
}

func TestAnUnreadableLedgerIsAnError(t *testing.T) {
	plain := converter.GetDefaultDataConverter()
	codec := converter.NewCodecDataConverter(plain, encryptingCodec{"binary/encrypted"})
	history := []*historypb.HistoryEvent{scheduledEvent(t, codec, "echo.say", forwardOfThisRun(`{}`))}

	_, err := activities.TraceOf(history, plain)
	require.ErrorContains(t, err,
		"event 5, argument of echo.say: it cannot be read; the data converter must be that of the worker")
	got, err := activities.TraceOf(history, codec)
	require.NoError(t, err)
	require.Equal(t, []activities.Entry{forwardOfThisRun(`{}`).Entry}, got.Entries)

	_, err = activities.TraceOf([]*historypb.HistoryEvent{
		scheduledEvent(t, plain, "echo.say", map[string]any{"entry": map[string]any{"seq": "one"}, "originalRunId": "r"}),
	}, plain)
	require.ErrorContains(t, err, "event 5, argument of echo.say: it has the form of a step's call")
}

func TestWhatUndosWereToOverwriteIsInTheTrace(t *testing.T) {
	dc := converter.GetDefaultDataConverter()
	e := forwardOfThisRun(`{}`).Entry
	force := func(d activities.Digest) *historypb.HistoryEvent {
		return scheduledEvent(t, dc, e.UndoType, activities.Backward{Entry: e, Decision: activities.Decision{Force: d}})
	}
	trace, err := activities.TraceOf([]*historypb.HistoryEvent{force(""), force("one"), force("two")}, dc)
	require.NoError(t, err)
	require.Equal(t, map[string][]activities.Digest{e.Token: {"one", "two"}}, trace.Forced)
}
