package tasks

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// newCodecServer serves a codec as organizations do that encrypt their payloads, to whom has the key.
func newCodecServer(t *testing.T, codec converter.PayloadCodec) string {
	handler := converter.NewPayloadCodecHTTPHandler(codec)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "the key" {
			http.Error(w, "who are you", http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestAHistoryIsReadThroughTheCodecServerOfTheProfile(t *testing.T) {
	codec := converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true})
	dc := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), codec)
	compiled, err := dc.ToPayloads(task.Compiled{Name: "release", Steps: []task.Step{{ID: "a", Uses: "file.write"}}})
	require.NoError(t, err)
	raw, err := json.Marshal(compiled)
	require.NoError(t, err)
	require.False(t, bytes.Contains(raw, []byte("file.write")))
	events := []*historypb.HistoryEvent{{EventId: 1, EventType: enumspb.EVENT_TYPE_MARKER_RECORDED, Attributes: &historypb.HistoryEvent_MarkerRecordedEventAttributes{
		MarkerRecordedEventAttributes: &historypb.MarkerRecordedEventAttributes{
			MarkerName: "LocalActivity", Details: map[string]*commonpb.Payloads{"result": compiled},
		},
	}}}

	t.Setenv("TEMPORAL_CODEC_ENDPOINT", newCodecServer(t, codec))
	t.Setenv("TEMPORAL_CODEC_AUTH", "the key")
	options, _, err := devserver.Configured(envconfig.ToClientOptionsRequest{IncludeRemoteCodec: true})
	require.NoError(t, err)
	for name, test := range map[string]struct {
		converter converter.DataConverter
		want      []workflows.StepView
	}{
		"with it":    {options.DataConverter, []workflows.StepView{{ID: "a", Uses: "file.write", State: workflows.NotStarted}}},
		"without it": {nil, []workflows.StepView{}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Client{Client: keptRuns{events: map[string][]*historypb.HistoryEvent{"the only one": events}}, converter: test.converter}
			state, err := c.readHistory(t.Context(), Run{ID: "release", RunID: "the only one"})
			require.NoError(t, err)
			require.Equal(t, test.want, state.Steps)
		})
	}
}
