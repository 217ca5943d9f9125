package command

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/starter/mcp"
	"github.com/seed-62bf7108/unwind/worker/host"
)

func TestTheShellOfAnAgentIsTakenBack(t *testing.T) {
	d := newDesk(t)
	box := containertest.Start(t)
	d.stopWorker()
	d.startWorker(func(c *host.Config) {
		*c = c.With(&container.Settings{})
		state := c.State
		t.Cleanup(func() { d.stopWorker(); containertest.RemoveLayers(t, state) })
	})
	a := d.newAgent(nil)
	s := a.open()
	shell := func(command string, more arguments) (mcp.Outcome, bool) {
		t.Helper()
		in := arguments{"session": s, "container": box.Name, "command": command}
		maps.Copy(in, more)
		return a.call("shell", in)
	}
	before := containertest.Files(t, box)
	wrote, isError := shell("mkdir /srv/d; echo one >/srv/d/x; echo said; echo warned >&2", nil)
	require.False(t, isError, "%+v", wrote)
	require.Equal(t, &mcp.Shell{Stdout: "said\n", Stderr: "warned\n", Changed: []string{"+ /srv/d", "+ /srv/d/x"}},
		withoutParents(wrote.Shell))

	failed, isError := shell("rm /srv/d/x; echo why >&2; exit 3", nil)
	require.True(t, isError)
	require.Equal(t, &mcp.Shell{ExitStatus: 3, Output: "why", Undone: true}, failed.Shell)
	require.Equal(t, "rolled-back", failed.Steps[0].State)
	kept, isError := shell("rm /srv/d/x; exit 1", arguments{"on_failure": "continue"})
	require.True(t, isError)
	require.Equal(t, &mcp.Shell{ExitStatus: 1}, kept.Shell)
	look, isError := shell("ls /srv/d", nil)
	require.False(t, isError)
	require.Equal(t, &mcp.Shell{}, look.Shell, "the file is gone")

	back := a.does("rollback", arguments{"session": s, "step": kept.Steps[0].ID})
	require.Equal(t, "restored", back.Undone[0].Outcome)
	look, _ = shell("cat /srv/d/x", nil)
	require.Equal(t, "one\n", look.Shell.Stdout)
	a.does("abort", arguments{"session": s})
	require.Equal(t, before, containertest.Files(t, box))
}

// withoutParents leaves out the folders above, whose times have changed.
func withoutParents(s *mcp.Shell) *mcp.Shell {
	var changed []string
	for _, line := range s.Changed {
		if line[0] == '+' {
			changed = append(changed, line)
		}
	}
	s.Changed = changed
	return s
}
