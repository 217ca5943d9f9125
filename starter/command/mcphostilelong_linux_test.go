package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// hostileVariable says how long a proxy is tried by a hostile server; a plain run is short.
const hostileVariable = "UNWIND_TEST_HOSTILE_FOR"

func TestAProxySurvivesAHostileServer(t *testing.T) {
	lasts := 3 * time.Second
	if long, err := time.ParseDuration(os.Getenv(hostileVariable)); err == nil {
		lasts = long
	}
	n := newHostile(t)
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, "seed"), []byte("1"), 0o600))
	var c *exec.Cmd
	var client *sdk.ClientSession
	require.Eventually(t, func() (isConnected bool) {
		c = n.starter()
		var err error
		client, err = sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
			&sdk.CommandTransport{Command: c}, nil)
		return err == nil
	}, waitFor, tick, "a proxy does not start where the server does not list its tools")
	t.Cleanup(func() { _ = client.Close() })
	calls, answered := 0, 0
	for until := time.Now().Add(lasts); time.Now().Before(until) || answered == 0; {
		for _, tool := range []string{"get", "put", "make", "unwind_status"} {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			_, err := client.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: map[string]any{}})
			cancel()
			if calls++; err == nil && tool != "unwind_status" {
				answered++
			}
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
	require.NoError(t, err, "it has ended: %s", n.log.String())
	t.Logf("%d calls, %d answers, peak of memory: %s", calls, answered, regexp.MustCompile(`VmHWM:.*`).Find(status))
	_, err = client.CallTool(t.Context(), &sdk.CallToolParams{Name: "unwind_status"})
	require.NoError(t, err)
}
