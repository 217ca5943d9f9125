package stream

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProgressTellsAddressesAndNoValues(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.WriteFile(file, []byte(`{"@message":"Terraform 1.9","type":"version"}
{"type":"refresh_start","hook":{"resource":{"addr":"a.b"},"id_key":"id","id_value":"hush"}}
{"type":"refresh_complete","hook":{"resource":{"addr":"a.b"},"id_key":"id","id_value":"hush"}}
{"type":"planned_change","change":{"resource":{"addr":"a.c"},"action":"create"}}
{"type":"change_summary","changes":{"add":1,"change":0,"remove":0,"operation":"plan"}}
{"type":"apply_start","hook":{"resource":{"addr":"a.c"},"action":"create"}}
{"type":"apply_progress","hook":{"resource":{"addr":"a.c"},"action":"create","elapsed_seconds":10}}
{"type":"provision_start","hook":{"resource":{"addr":"a.c"},"provisioner":"local-exec"}}
{"type":"apply_complete","hook":{"resource":{"addr":"a.c"},"action":"create","id_value":"hush"}}
{"type":"outputs","outputs":{"x":{"value":"hush"}}}
{"type":"apply_st`), 0o600))
	var lines []string
	require.NoError(t, ReadEvents(file, func(e Event) {
		if line := e.describe(); line != "" {
			lines = append(lines, line)
		}
	}))
	require.Equal(t, []string{
		"a.b: refreshing", "a.b: refreshed", "a.c: create planned", "plan: 1 to add, 0 to change, 0 to destroy",
		"a.c: create begun",
		"a.c: create goes on for 10 s", "a.c: provisioner local-exec runs", "a.c: create done",
	}, lines)
}
