package command

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/examples"
	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/examples/stage"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestDemoPlaysASessionAndFindsWhatItShouldLeave(t *testing.T) {
	th := newTheater(t)
	r := th.do("demo", "--exit", "--example", "session")
	require.Equal(t, statusOK, r.status, r.out+r.err)
	th.cleared(r.out)
	told := 0
	for _, line := range []string{
		"agent: savepoint clean: ",
		"agent: step sources: ",
		"sources          container.exec           done: ",
		"agent: step build: ",
		"build            container.exec           failed and was rolled back: ",
		`| "cowsay": executable file not found`,
		"agent: step patch: ",
		"patch            container.exec           done: ",
		"agent: step try: ",
		"try              container.exec           failed and was rolled back: ",
		"agent: rollback to clean: ",
		"patch            container.exec           rolled back\n",
		"agent: step build-again: ",
		"agent: step go-live: ",
		"gate: step go-live waits for a person",
		`the demo approves step go-live itself, with the signal "approve"`,
		"agent: finish",
		"committed: what was not undone on the way stays",
		"independent check, against what the task should leave:",
		" ✓  files      paths: 12, ",
		" ✓  container  ",
	} {
		at := strings.Index(r.out[told:], line)
		require.GreaterOrEqual(t, at, 0, "%q is not told, or too early:\n%s", line, r.out)
		told += at
	}
}

// What the demo's agent does, done by a client of the protocol that knows nothing but the tools.
func TestAClientOfTheProtocolDoesTheSame(t *testing.T) {
	newTheater(t) // or the parts are missing
	t.Setenv("TEMPORAL_ADDRESS", "")
	s, err := stage.Set(t.Context(), stage.Options{Log: t.Output()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	d := newLoneDesk(t)
	d.stopWorker()
	d.startWorker(func(c *host.Config) {
		on := s.Config()
		c.State, c.Worlds = on.State, on.Without("sqlite").Without("stripe").Without("terraform").Worlds
	})
	before, err := found.Look(t.Context(), s.Place())
	require.NoError(t, err)
	e, err := examples.Named("session")
	require.NoError(t, err)
	file := string(e.Source)
	for name, value := range e.Values(s.Vars()) {
		file = strings.Replace(file, name+": "+map[string]string{"site": "/srv/site", "container": "app"}[name],
			name+": "+value.(string), 1)
	}

	a := d.newAgent(nil, "--session", d.file(file), "--wait", "100ms")
	handle := a.open()
	for i, act := range e.Acts {
		switch {
		case act.Savepoint != "":
			a.does("savepoint", arguments{"session": handle, "name": act.Savepoint})
		case act.Rollback != "":
			a.does("rollback", arguments{"session": handle, "to": act.Rollback})
		default:
			var step arguments
			require.NoError(t, json.Unmarshal(act.Step, &step))
			tool := strings.ReplaceAll(step["uses"].(string), ".", "_")
			delete(step, "uses")
			step["session"], step["request"] = handle, act.ID()
			if gate, asks := step["gate"].(map[string]any); asks {
				step["gate"] = gate["mode"]
			}
			o, isError := a.call(tool, step)
			if o.Pending {
				d.ok("approve", idIn(handle), act.ID(), "--yes")
				require.Eventually(t, func() bool {
					o = a.does("status", arguments{"session": handle, "request": act.ID()})
					return !o.Pending
				}, waitFor, tick)
			}
			require.Equal(t, act.Ends != protocol.Done, isError, "act %d: %+v", i+1, o)
			require.Equal(t, string(act.Ends), o.Steps[0].State)
		}
	}
	require.Equal(t, "committed", a.does("finish", arguments{"session": handle}).Report.Status)
	now, err := found.Look(t.Context(), s.Place())
	require.NoError(t, err)
	for _, f := range before.Compare(now, s.Committed(e.Name), nil) {
		require.True(t, f.OK, "%+v", f)
	}
}

// An act that does not end as the example says ends the session, and with it the demo.
func TestADemoWhoseAgentIsSurprisedFailsAndLeavesNothing(t *testing.T) {
	th := newTheater(t)
	e, err := examples.Named("session")
	require.NoError(t, err)
	e.Acts[2].Ends = protocol.Done
	out := &strings.Builder{}
	p := &program{options: th.options(), worker: thisMachine,
		streams: Streams{In: strings.NewReader(""), Out: lockWriter(out), Err: lockWriter(t.Output())}}
	err = p.playExample(th.Context(), e, false)
	require.ErrorContains(t, err, "the agent, act 3: step build is rolled-back, not done: ")
	require.Contains(t, out.String(), "unwinding, last in first out")
	require.Contains(t, out.String(), "sources          container.exec           undo: restored")
	th.cleared(out.String())
}
