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

// TestRecordHistories records the histories that are missing:
//
//	go test -tags record -run RecordHistories ./workflows
func TestRecordHistories(t *testing.T) {
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(histories, name+".json")
			if _, err := os.Stat(file); err == nil {
				return
			}
			l := startLive(t, s.world())
			if s.act != nil {
				s.act(l)
			}
			_, _ = l.report()
			raw, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(&historypb.History{Events: l.events(t.Context(), "")})
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(histories, 0o755))
			require.NoError(t, os.WriteFile(file, []byte(strings.TrimSpace(string(raw))+"\n"), 0o644))
		})
	}
}
