package command

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestASessionFromTheCommandLine(t *testing.T) {
	d := newDesk(t)
	answer := func(r typed) (a protocol.Answer) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(r.out), &a), r.err)
		return a
	}
	id := t.Name()
	d.ok("session", "open", d.file("name: live\nsession: {}\nsteps: []\n"), "--id", id)
	one := d.file("{uses: fake.set, with: {key: a, value: x}}")
	d.ok("session", "step", id, one, "--request", "one")
	require.Equal(t, "x", d.world.get("a"))
	same := answer(typed{out: d.ok("session", "step", id, one, "--request", "one")})
	require.Equal(t, "s1", same.Steps[0].ID)
	d.ok("session", "savepoint", id, "half")
	d.ok("session", "step", id,
		d.file("- {uses: fake.set, with: {key: a, value: y}}\n- {uses: fake.set, with: {key: b, value: z}}\n"))
	require.Equal(t, "z", d.world.get("b"))

	failed := d.do("session", "step", id, d.file("{uses: fake.set, with: {key: c, value: y, fail: true}}"))
	require.Equal(t, statusFailed, failed.status)
	require.Equal(t, protocol.RolledBack, answer(failed).Steps[0].State)
	wrong := d.do("session", "step", id, d.file("{uses: fake.sett}"))
	require.Equal(t, statusUsage, wrong.status)
	require.Contains(t, wrong.err, "did you mean fake.set?")
	require.Equal(t, statusUsage, d.do("session", "rollback", id).status)

	d.ok("session", "rollback", id, "--to", "half")
	require.Equal(t, []string{"x", ""}, []string{d.world.get("a"), d.world.get("b")})
	again := answer(typed{out: d.ok("session", "redo", id, "--to", "half", "--why", "it was right")})
	require.Equal(t, []string{"y", "z"}, []string{d.world.get("a"), d.world.get("b")})
	require.Equal(t, 2, again.Steps[0].Try)
	none := d.do("session", "redo", id)
	require.Equal(t, statusUsage, none.status)
	require.Contains(t, none.err, "nothing was rolled back that is not done again")
	require.Equal(t, statusUsage, d.do("session", "redo", id, "--to", "half", "--step", "s1").status)

	aside := answer(typed{out: d.ok("session", "rollback", id, "--to", "half", "--branch", "first", "--score", "0.4",
		"--note", "y was a guess")})
	require.Len(t, aside.Undone, 2)
	d.ok("session", "step", id, d.file("{uses: fake.set, with: {key: a, value: v}}"))
	d.ok("session", "note", id, "The second is better.")
	busy := d.do("session", "redo", id, "--branch", "first")
	require.Equal(t, statusUsage, busy.status)
	require.Contains(t, busy.err, "SessionBusy: branch first begins at savepoint half, and s5 came after that")
	d.ok("session", "rollback", id, "--to", "half", "--branch", "second", "--score", "0.9")
	shown := d.ok("show", id)
	require.Contains(t, shown, "branch first, from savepoint half, score 0.4: 2 steps: y was a guess")
	require.Contains(t, shown, "branch second, from savepoint half, score 0.9: 1 step")
	require.Contains(t, shown, "the agent noted after step s5: The second is better.")
	d.ok("session", "redo", id, "--branch", "second")
	require.Equal(t, []string{"v", ""}, []string{d.world.get("a"), d.world.get("b")})
	for text, args := range map[string][]string{
		"give one of --branch, --to and --step":      {"redo", id, "--to", "half", "--branch", "first"},
		"--score and --note are about a branch":      {"rollback", id, "--to", "half", "--score", "1"},
		"branch: give to as well":                    {"rollback", id, "--step", "s5", "--branch", "x"},
		"give --savepoint or --branch, and not both": {"context", id, "--savepoint", "half", "--branch", "first"},
		`branch "first" has no context`:              {"context", id, "--branch", "first"},
		"TEXT is empty":                              {"note", id, ""},
	} {
		wrong := d.do(append([]string{"session"}, args...)...)
		require.Equal(t, statusUsage, wrong.status, args)
		require.Contains(t, wrong.err, text)
	}
	end := answer(typed{out: d.ok("session", "finish", id)})
	require.Equal(t, []string{"the agent noted after step s5: The second is better."}, end.Report.Notes)
	require.Equal(t, compensations.Committed, end.Report.Status)
	late := d.do("session", "abort", id)
	require.Equal(t, statusUsage, late.status)
	require.Contains(t, late.err, "SessionOver")
	require.Contains(t, d.do("session", "open", d.file(gated)).err, "is no session")
}

// What only a person may say is refused by the session, so no door is wider than another.
func TestWhatOnlyAPersonMaySayIsRefusedAtEveryDoor(t *testing.T) {
	d := newDesk(t)
	a := d.newAgent(nil)
	handle := a.open()
	for field, want := range map[string]string{
		`gate: none`:               `steps[0].gate: an agent may only say ask, found "none"`,
		`gate: {mode: none}`:       `steps[0].gate.mode: an agent may only say ask, found "none"`,
		`pivot: true`:              `steps[0].pivot: only a person may say this, found true`,
		`undo: {drift: force}`:     `steps[0].undo.drift: only a person may say this, found "force"`,
		`undo: {criticality: low}`: `steps[0].undo.criticality: only a person may say this, found "low"`,
	} {
		written := "{uses: fake.set, with: {key: a, value: x}, " + field + "}"
		typed := d.do("session", "step", idIn(handle), d.file(written))
		require.Equal(t, statusUsage, typed.status)
		require.Contains(t, typed.err, want)
		var step map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(written), &step))
		refused := a.isRefused("steps", arguments{"session": handle, "steps": []any{step}})
		require.Equal(t, "BadRequest", refused.Type)
		require.Contains(t, refused.Text, want)
		require.Contains(t, refused.Text, "leave it out, or have a person write the step into the file of the session")
	}
	require.Empty(t, d.world.get("a"))
	require.Empty(t, d.state(idIn(handle)).Steps)
	a.does("abort", arguments{"session": handle})
}
