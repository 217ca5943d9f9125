package tasks

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

func TestAHistoryIsReadThroughTheCodecServerOfTheProfile(t *testing.T) {
	codec := converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true})
	dc := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), codec)
	compiled, err := dc.ToPayloads(task.Compiled{Name: "release", Steps: []task.Step{{ID: "a", Uses: "file.write"}}})
	require.NoError(t, err)
	raw, err := json.Marshal(compiled)
	require.NoError(t, err)
	require.False(t, bytes.Contains(raw, []byte("file.write")))
	events := []*historypb.HistoryEvent{{EventId: 1, EventType: enumspb.EVENT_TYPE_MARKER_RECORDED,
		Attributes: &historypb.HistoryEvent_MarkerRecordedEventAttributes{
			MarkerRecordedEventAttributes: &historypb.MarkerRecordedEventAttributes{
				MarkerName: "LocalActivity", Details: map[string]*commonpb.Payloads{"result": compiled},
			},
		}}}

	t.Setenv("TEMPORAL_CODEC_ENDPOINT", servertest.Codec(t, codec, "the key"))
	t.Setenv("TEMPORAL_CODEC_AUTH", "the key")
	options, _, err := devserver.Configured(envconfig.ToClientOptionsRequest{IncludeRemoteCodec: true})
	require.NoError(t, err)
	read := func(dc converter.DataConverter) (protocol.State, error) {
		c := &Client{Client: keptRuns{events: map[string][]*historypb.HistoryEvent{"the only one": events}}, converter: dc}
		return c.readHistory(t.Context(), Run{ID: "release", RunID: "the only one"})
	}
	state, err := read(options.DataConverter)
	require.NoError(t, err)
	require.Equal(t, []protocol.StepView{{ID: "a", Uses: "file.write", State: protocol.NotStarted}}, state.Steps)
	_, err = read(nil)
	require.ErrorContains(t, err, "history of task release: a payload cannot be read")
	require.ErrorContains(t, err, "TEMPORAL_CODEC_ENDPOINT")
}
