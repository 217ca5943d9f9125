package command

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// TestWhatIsRetriedSaysWhy: each kind of call that fails before its first heartbeat shows its
// attempt and why the last one failed.
func TestWhatIsRetriedSaysWhy(t *testing.T) {
	d := newDesk(t)
	d.stopWorker()
	d.world.journal = fakeRecords{fakeWorld: d.world}
	d.startWorker()
	id, back := t.Name(), ""
	file := d.file(`name: far away
steps:
  - {id: one, name: Set it there, uses: fake.remote, with: {key: a, value: x}, gate: ask, retry: {attempts: 1000, backoff: 1s, max: 1s}}
`)
	watch := func(id string) *running { return d.begin("watch", id, "--wait") }
	var watched *running
	for _, each := range []struct {
		call, what, step string
		begin            func() (id string)
	}{
		{"plan", "plan one: Set it there", "one", func() string {
			d.ok("run", file, "--id", id)
			watched = watch(id)
			return id
		}},
		{"apply", "one: Set it there", "one", func() string {
			d.until(id, atGate)
			d.ok("approve", id, "one", "--yes")
			return id
		}},
		{"look", "probe one", "one", func() string { return id }},
		{"commit", "make durable what 1 step did", "", func() string { return id }},
		{"hold", "hold 1 record of the world fake", "", func() string {
			require.Equal(t, statusOK, d.ended(watched).status)
			d.ok("rollback", id)
			back = d.idOf("rollback", id)
			watched = watch(back)
			return back
		}},
		{"undo", "undo one", "one", func() string { return back }},
	} {
		t.Run(each.call, func(t *testing.T) {
			d.world.lose(each.call)
			id := each.begin()
			reason := fmt.Sprintf("ActionFailed: no answer to %s by ***", each.call)
			var found protocol.Trouble
			require.Eventually(t, func() bool {
				troubles := d.shown(id).Troubles
				i := slices.IndexFunc(troubles, func(o protocol.Trouble) bool { return o.What == each.what })
				if i >= 0 {
					found = troubles[i]
				}
				return found.Attempt > 1
			}, waitFor, tick)
			require.Equal(t, each.step, found.Step)
			require.Equal(t, reason, found.Reason)
			require.NotZero(t, found.Since)
			pending, err := d.client.DescribeWorkflowExecution(t.Context(), id, "")
			require.NoError(t, err)
			require.Len(t, pending.GetPendingActivities(), 1)
			require.Nil(t, pending.GetPendingActivities()[0].GetHeartbeatDetails(), "it has told nothing of itself")
			line := fmt.Sprintf(`trouble: %s, attempt \d+: %s\n`, regexp.QuoteMeta(each.what), regexp.QuoteMeta(reason))
			require.Regexp(t, `(?m)^`+line, d.ok("show", id))
			require.Eventually(t, func() bool { return regexp.MustCompile(`s  ` + line).MatchString(watched.out.String()) },
				waitFor, tick)
			if each.step != "" && id != back {
				require.Regexp(t, `(?m)^ +trouble +`+line[len("trouble: "):], d.ok("show", id, each.step))
			}
		})
	}
	d.world.lose("")
	require.Equal(t, statusOK, d.ended(watched).status)
	require.Empty(t, d.world.get("a"))
	require.Empty(t, d.shown(back).Troubles)
}
