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

// scheduled is the event of an activity with these arguments.
func scheduled(t *testing.T, dc converter.DataConverter, activity string, arguments ...any) *historypb.HistoryEvent {
	p, err := dc.ToPayloads(arguments...)
	require.NoError(t, err)
	return &historypb.HistoryEvent{EventId: 5, Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
		ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
			ActivityType: &commonpb.ActivityType{Name: activity}, Input: p,
		}}}
}

func TestTheLedgerIsRebuiltFromAHistoryAlone(t *testing.T) {
	dc := converter.GetDefaultDataConverter()
	a, b := ofThisRun(`{}`), ofThisRun(`{}`)
	a.Entry.Token, a.Entry.Seq, b.Entry.Token, b.Entry.Seq = "a", 1, "b", 2
	got, err := activities.EntriesIn([]*historypb.HistoryEvent{
		{EventId: 1},
		scheduled(t, dc, "task.compile", json.RawMessage(`{"name": "x"}`)),
		scheduled(t, dc, "own.text", "text"), scheduled(t, dc, "own.list", []int{1}), scheduled(t, dc, "own.bytes", []byte("bytes")),
		scheduled(t, dc, "own.nothing", nil), scheduled(t, dc, "own.proto", &commonpb.ActivityType{Name: "x"}),
		scheduled(t, dc, "echo.say.plan", a), scheduled(t, dc, "echo.say", a), scheduled(t, dc, "echo.say", b),
		scheduled(t, dc, "echo.say.undo", activities.Backward{Entry: b.Entry}),
	}, dc)
	require.NoError(t, err)
	require.Equal(t, []activities.Entry{a.Entry, b.Entry}, got)
}

// A library's forward has what arguments it likes, and returns what it likes.
func TestAForwardIsToldByTheEntryAmongItsArguments(t *testing.T) {
	dc := converter.GetDefaultDataConverter()
	f := ofThisRun(`{}`)
	f.Entry.Token, f.Entry.UndoType, f.Step = "t", "echo.say.undo", activities.Step{} // with a step in it, it is an Action's
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
			scheduled(t, dc, "echo.say.observe", f.Entry), scheduled(t, dc, "other", arguments...),
			scheduled(t, dc, "echo.say", arguments...),
			{EventId: 6, Attributes: &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{
				ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{ScheduledEventId: 5, Result: result}}},
		}, dc)
		require.NoError(t, err, what)
		require.Equal(t, []activities.Entry{f.Entry}, trace.Entries, what)
		require.Contains(t, trace.Done, "t", what)
	}
}

func TestEveryEndOfAnUndoIsTold(t *testing.T) {
	dc := converter.GetDefaultDataConverter()
	e := ofThisRun(`{}`).Entry
	undo := scheduled(t, dc, e.UndoType, activities.Backward{Entry: e})
	unserved := &failurepb.Failure{FailureInfo: &failurepb.Failure_TimeoutFailureInfo{
		TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{TimeoutType: enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START}}}
	done, err := dc.ToPayloads(activities.Undone{Outcome: activities.Restored})
	require.NoError(t, err)
	trace, err := activities.TraceOf([]*historypb.HistoryEvent{
		undo,
		{EventId: 6, Attributes: &historypb.HistoryEvent_ActivityTaskFailedEventAttributes{
			ActivityTaskFailedEventAttributes: &historypb.ActivityTaskFailedEventAttributes{ScheduledEventId: 5}}},
		{EventId: 7, Attributes: &historypb.HistoryEvent_ActivityTaskTimedOutEventAttributes{
			ActivityTaskTimedOutEventAttributes: &historypb.ActivityTaskTimedOutEventAttributes{ScheduledEventId: 5, Failure: unserved}}},
		{EventId: 8, Attributes: &historypb.HistoryEvent_ActivityTaskCanceledEventAttributes{
			ActivityTaskCanceledEventAttributes: &historypb.ActivityTaskCanceledEventAttributes{ScheduledEventId: 5}}},
		{EventId: 9, Attributes: &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{
			ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{ScheduledEventId: 5, Result: done}}},
	}, dc)
	require.NoError(t, err)
	restored := activities.Undone{Outcome: activities.Restored}
	require.Equal(t, []activities.Attempt{
		{Event: 6, Token: e.Token}, {Event: 7, Token: e.Token, Unserved: true},
		{Event: 8, Token: e.Token, Canceled: true}, {Event: 9, Token: e.Token, Undone: &restored},
	}, trace.Attempts)
	require.Equal(t, map[string]activities.Undone{e.Token: restored}, trace.Settled)
}

// sealed is a codec that hides what a payload holds.
type sealed struct{ encoding string }

func (s sealed) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	for i, p := range payloads {
		payloads[i] = &commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(s.encoding)}, Data: p.Data}
	}
	return payloads, nil
}

func (s sealed) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return sealed{converter.MetadataEncodingJSON}.Encode(payloads)
}

func TestALedgerThatCannotBeReadIsNotEmpty(t *testing.T) {
	plain := converter.GetDefaultDataConverter()
	codec := converter.NewCodecDataConverter(plain, sealed{"binary/encrypted"})
	history := []*historypb.HistoryEvent{scheduled(t, codec, "echo.say", ofThisRun(`{}`))}

	_, err := activities.EntriesIn(history, plain)
	require.ErrorContains(t, err, "event 5, argument of echo.say: it cannot be read; the data converter must be that of the worker")
	got, err := activities.EntriesIn(history, codec)
	require.NoError(t, err)
	require.Equal(t, []activities.Entry{ofThisRun(`{}`).Entry}, got)

	_, err = activities.EntriesIn([]*historypb.HistoryEvent{
		scheduled(t, plain, "echo.say", map[string]any{"entry": map[string]any{"seq": "one"}, "originalRunId": "r"}),
	}, plain)
	require.ErrorContains(t, err, "event 5, argument of echo.say: it has the form of a step's call")
}
