package recovery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestPausesAreAddedUpFromTheEnd(t *testing.T) {
	const other, paused, unpaused = enumspb.EVENT_TYPE_TIMER_FIRED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_PAUSED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UNPAUSED
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	type event struct {
		second int
		kind   enumspb.EventType
	}
	for name, c := range map[string]struct {
		events []event // in the order of the history
		want   int     // seconds since the 10th, at the 100th
	}{
		"none":                       {[]event{{1, other}, {20, other}}, 0},
		"one":                        {[]event{{1, other}, {20, paused}, {25, other}, {50, unpaused}}, 30},
		"two":                        {[]event{{20, paused}, {30, unpaused}, {40, other}, {60, paused}, {65, unpaused}}, 15},
		"one that goes on":           {[]event{{20, paused}, {30, unpaused}, {60, paused}}, 50},
		"one that began before":      {[]event{{1, other}, {5, paused}, {40, unpaused}}, 30},
		"one that was over before":   {[]event{{1, paused}, {9, unpaused}, {20, other}}, 0},
		"one that began long before": {[]event{{1, paused}, {5, other}, {40, unpaused}}, 30},
	} {
		p := pauses{since: at(10), until: at(100)}
		for i := len(c.events) - 1; i >= 0 && !p.over; i-- {
			p.add(&historypb.HistoryEvent{EventType: c.events[i].kind, EventTime: timestamppb.New(at(c.events[i].second))})
		}
		require.Equal(t, time.Duration(c.want)*time.Second, p.sum, name)
	}
}
