package command

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/starter/local"
)

// startDev runs `starter dev` as a person without any server would, in a state folder of the test's
// own.
func startDev(t *testing.T, d *desk, args ...string) *running {
	t.Helper()
	r := d.begin(append([]string{"dev", "--port", "0", "--ui-port", "0"}, args...)...)
	select {
	case e := <-r.end:
		require.FailNow(t, "dev ended", e.err+e.out)
	default:
	}
	require.Eventually(t, func() bool { return strings.Contains(r.out.String(), "Ctrl-C stops it") || len(r.end) > 0 },
		devLimit, tick)
	require.Contains(t, r.out.String(), "Ctrl-C stops it")
	return r
}

func TestDevServesEverythingAndItsTasksSurviveARestart(t *testing.T) {
	state := t.TempDir()
	t.Setenv("TEMPORAL_ADDRESS", "")
	t.Setenv("UNWIND_STATE", state)
	t.Setenv("UNWIND_HOST", "here")
	config := filepath.Join(t.TempDir(), "worker.yaml")
	require.NoError(t, os.WriteFile(config, []byte("stopTimeout: 1s\n"), 0o600))
	d := &desk{T: t, world: newFakeWorld(), folder: t.TempDir()}

	dev := startDev(t, d, "--config", config)
	require.Contains(t, dev.out.String(), "worker    host here serves fake, wait on queues unwind and unwind@here")
	out := d.ok("run", d.file(good), "--id", "first", "--watch")
	require.Contains(t, out, "see  http://127.0.0.1:")
	require.Contains(t, out, "committed: every step is done and stays")
	second := d.do("dev", "--port", "0", "--ui-port", "0")
	require.Equal(t, statusFailed, second.status)
	require.Contains(t, second.err, "starter dev is already running on "+state)

	dev.stop()
	e := d.ended(dev)
	require.Equal(t, statusOK, e.status, e.err)
	require.NoFileExists(t, filepath.Join(state, local.DevFileName))

	dev = startDev(t, d, "--config", config)
	require.Contains(t, d.ok("show", "first"), "committed: every step is done and stays")
	require.Contains(t, d.ok("list"), "first")
	dev.stop()
	require.Equal(t, statusOK, d.ended(dev).status)
}

func TestDevOnANamedServerStartsAWorkerOnly(t *testing.T) {
	d := newLoneDesk(t)
	d.stopWorker()
	t.Setenv("UNWIND_STATE", t.TempDir())
	dev := startDev(t, d)
	d.ok("run", d.file(good), "--watch")
	dev.stop()
	require.Equal(t, statusOK, d.ended(dev).status)
}

func TestDevRefusesAPortThatIsTaken(t *testing.T) {
	d := newLoneDesk(t)
	_, port, _ := strings.Cut(os.Getenv("TEMPORAL_ADDRESS"), ":")
	t.Setenv("TEMPORAL_ADDRESS", "")
	t.Setenv("UNWIND_STATE", t.TempDir())
	r := d.do("dev", "--port", port)
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, "port "+port+" is already in use")
}

func TestDevInterruptedWhileItStarts(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "")
	t.Setenv("UNWIND_STATE", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := do(ctx, Options{}, "dev", "--port", "0", "--ui-port", "0")
	require.Equal(t, statusInterrupted, r.status, r.err)
}
