package command

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/testrun"
)

// sit types a command at a terminal, and reads what it says line by line.
func (th theater) sit(args ...string) *running {
	in := newTTY(th.T, 100, 40).program
	ctx, stop := context.WithCancel(th.Context())
	r := &running{out: &testrun.Buffer{}, end: make(chan typed, 1), stop: stop}
	go func() {
		var err bytes.Buffer
		status := Run(ctx, th.options(), args, Streams{In: in, Out: r.out, Err: &err})
		r.end <- typed{status, r.out.String(), err.String()}
	}()
	return r
}

func patience(t *testing.T, d time.Duration) {
	before := gatePatience
	gatePatience = d
	t.Cleanup(func() { gatePatience = before })
}

func TestAtATerminalTheDemoWaitsForThePersonAndCtrlCClearsEverythingAway(t *testing.T) {
	th := newTheater(t)
	r := th.sit("demo")
	th.prints(r, "decide it from another terminal; in 1m0s the demo approves it itself")
	id := regexp.MustCompile(`task (\S+), publish-release`).FindStringSubmatch(r.out.String())[1]
	th.ok("approve", id, "infrastructure", "--yes")
	th.prints(r, "gate: step go-live waits for a person")
	require.NotContains(t, r.out.String(), "itself, with the signal")
	r.stop()
	e := th.ended(r)
	require.Equal(t, statusInterrupted, e.status)
	require.Contains(t, e.err, "interrupted: the task is canceled and unwinds")
	th.cleared(e.out)
	require.Contains(t, th.ok("list"), "unwound")
}

func TestDemoIsAFailureWhereTheWorldIsFoundOtherwise(t *testing.T) {
	th := newTheater(t)
	patience(t, 2*time.Second)
	r := th.sit("demo", "--example", "publish-rejected")
	th.prints(r, "decide it from another terminal")
	require.NoError(t, os.WriteFile(filepath.Join(th.input(r.out.String()), "site", "status.json"), []byte("{}"), 0o600))
	th.prints(r, `nobody has decided for 2s: the demo rejects step go-live itself, with the signal "reject"`)
	th.prints(r, "Ctrl-C ends the demo and removes everything it made")
	r.stop()
	e := th.ended(r)
	require.Equal(t, statusFailed, e.status)
	require.Contains(t, e.out, " !  files")
	require.Contains(t, e.out, "differs: ~ status.json: sha256")
	require.Contains(t, e.err, "the world is not as it was before")
	th.cleared(e.out)
}
