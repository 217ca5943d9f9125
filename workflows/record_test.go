//go:build record

package workflows_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
)

// TestRecordHistories records the missing histories:
//
//	go test -tags record -run RecordHistories ./workflows
func TestRecordHistories(t *testing.T) {
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			recordHistory(t, name, func() (*live, string) {
				l := startLive(t, s.world())
				if s.act != nil {
					s.act(l)
				}
				_, _ = l.report()
				return l, l.run.GetID()
			})
		})
	}
	for name, s := range followUps {
		t.Run(name, func(t *testing.T) {
			recordHistory(t, name, func() (*live, string) {
				l := startLive(t, s.world())
				id := s.act(l)
				require.NoError(t, l.client.GetWorkflow(t.Context(), id, "").Get(t.Context(), nil))
				return l, id
			})
		})
	}
}

// recordHistory stores the history of the last run of a workflow, unless there is one already.
func recordHistory(t *testing.T, name string, play func() (*live, string)) {
	file := filepath.Join(histories, name+".json")
	if _, err := os.Stat(file); err == nil {
		return
	}
	l, id := play()
	raw, err := temporalproto.CustomJSONMarshalOptions{
		Indent: " "}.Marshal(&historypb.History{Events: l.eventsOf(t.Context(), id, "")})
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(histories, 0o755))
	require.NoError(t, os.WriteFile(file, []byte(strings.TrimSpace(string(raw))+"\n"), 0o644))
}
