package command

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	containers "github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/activities/unit"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// task writes a task file with some steps.
func (s *site) task(steps string) string {
	return s.file("name: steps on " + s.name + "\nsteps:\n" + strings.ReplaceAll(strings.ReplaceAll(steps, "NAME", s.name), "ROOT", s.root))
}

// swing takes a checkpoint, breaks the page, and goes back.
const swing = `
- {id: before, uses: file.write, with: {path: ROOT/uploads/one, content: mine}}
- {id: keep, uses: environment.checkpoint, with: {environment: NAME, notes: before the swing, pinned: true}}
- {id: break, uses: file.write, with: {path: ROOT/code/page, content: bad}}
- {id: back, uses: environment.rollback, gate: none, with: {environment: NAME, to: "${{ steps.keep.outputs.checkpoint }}"}}
`

// fails is a last step that is refused when it is about to act.
const fails = `
- {id: last, uses: environment.rollback, gate: none, with: {environment: NAME, to: "${{ steps.keep.outputs.checkpoint }}0"}}
`

func TestATaskTakesCheckpointsAndGoesBack(t *testing.T) {
	s := newSite(t)
	s.apply()
	before := s.is()
	id := t.Name()
	out := s.ok("run", s.task(swing), "--id", id, "--watch")
	require.Contains(t, out, "checkpoint cp-")
	require.Equal(t, "mine\n", s.sh("cat uploads/one; echo"))
	require.Equal(t, "good\n", s.sh("cat code/page"))
	v := s.view()
	require.Len(t, v.Checkpoints, 2)
	safety, kept := v.Checkpoints[0], v.Checkpoints[1]
	require.Equal(t, environment.Agent, kept.Trigger)
	require.Equal(t, "before the swing", kept.Notes)
	require.True(t, kept.Pinned)
	require.True(t, kept.Quiesced)
	require.Equal(t, environment.PreRollback, safety.Trigger)
	for c, steps := range map[*environment.Checkpoint][]string{&safety: {"back"}, &kept: {"keep", "back"}} {
		require.Len(t, c.NeededBy, len(steps))
		for i, step := range steps {
			require.Equal(t, id, c.NeededBy[i].Task)
			require.Equal(t, step, c.NeededBy[i].ID)
		}
	}
	require.Contains(t, s.ok("env", "show", s.name), "needed by a step")
	refused := s.do("env", "delete", s.name, safety.ID)
	require.Equal(t, statusUsage, refused.status)
	require.Contains(t, refused.err, fmt.Sprintf("checkpoint %s is needed by step back of task %s", safety.ID, id))
	require.Contains(t, s.do("env", "remove", s.name).err, "unpin")

	// The undo goes forward again, then back to what was there before the task, and deletes its checkpoint.
	require.Contains(t, s.ok("rollback", id, "--watch"), "is as in checkpoint "+safety.ID+" again")
	require.Equal(t, before, s.is())
	v = s.view()
	require.Len(t, v.Checkpoints, 2, "the safety checkpoints of the rollback and of its undo")
	for _, c := range v.Checkpoints {
		require.Equal(t, environment.PreRollback, c.Trigger)
		require.Empty(t, c.NeededBy)
	}
	// What the step asks now comes too late, as a forward or as an undo.
	step := safety.NeededBy[0]
	for update, request := range map[string]any{
		environment.UpdateCheckpoint: environment.CheckpointRequest{ID: "cp-late", Trigger: environment.Agent, Step: &step},
		environment.UpdateRollback:   environment.RollbackRequest{To: safety.ID, Safety: "cp-late", Step: &step, Undoing: true},
	} {
		handle, err := s.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
			WorkflowID: environment.WorkflowID(s.name), UpdateName: update, Args: []any{request},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		})
		require.NoError(t, err)
		late, is := errors.AsType[*temporal.ApplicationError](handle.Get(t.Context(), nil))
		require.True(t, is, update)
		require.Equal(t, string(activities.Fenced), late.Type())
	}
	require.Equal(t, v.Checkpoints, s.view().Checkpoints)
	s.ok("redo", id, "--watch")
	require.Equal(t, "mine\n", s.sh("cat uploads/one; echo"))
	require.Equal(t, "good\n", s.sh("cat code/page"))
}

func TestATaskThatFailsUndoesItsCheckpointAndRollback(t *testing.T) {
	s := newSite(t)
	s.apply()
	before := s.is()
	id := t.Name()
	r := s.do("run", s.task(swing+fails), "--id", id, "--watch")
	require.Equal(t, statusFailed, r.status, "%s%s", r.out, r.err)
	require.Contains(t, r.out, "has no checkpoint")
	require.Equal(t, before, s.is())
	require.Equal(t, compensations.Unwound, s.reportOf(id).Status)
	for _, c := range s.view().Checkpoints {
		require.Equal(t, environment.PreRollback, c.Trigger)
		require.Empty(t, c.NeededBy)
	}
}

// reportOf waits for the end of a task, whatever that is.
func (s *site) reportOf(id string) compensations.Report {
	s.Helper()
	var r compensations.Report
	_ = s.client.GetWorkflow(s.Context(), id, "").Get(s.Context(), &r) // the report tells
	return *s.state(id).Report
}

func TestWhatOthersHaveDoneSinceStopsTheWayForward(t *testing.T) {
	s := newSite(t)
	s.apply()
	id := t.Name()
	s.ok("run", s.task(swing), "--id", id, "--watch")
	s.sh("echo theirs >uploads/two")
	s.ok("rollback", id)
	back := s.idOf("rollback", id)
	digest := s.drifted(back, "back", "")
	shown := s.ok("show", back)
	require.Contains(t, shown, "part uploads: 2 differences from checkpoint cp-")
	require.Contains(t, shown, "two")
	require.Equal(t, "theirs\n", s.sh("cat uploads/two"))
	s.sh("echo others >uploads/two") // the same path is named, and its size is the same
	s.do("resolve", back, "back", "--do", "force", "--digest", digest)
	digest = s.drifted(back, "back", digest)
	require.Equal(t, "others\n", s.sh("cat uploads/two"), "what was not shown is not overwritten")
	s.ok("resolve", back, "back", "--do", "force", "--digest", digest)
	require.Equal(t, compensations.Unwound, s.reportOf(back).Status)
	s.sh("! test -e uploads/two")
	// What was overwritten is in the safety checkpoint of the way forward.
	taken := s.view().Checkpoints[0]
	s.rollBack(taken.ID)
	require.Equal(t, "others\n", s.sh("cat uploads/two"))
}

// drifted waits until the undo of a step waits for a person, and returns the digest of what it shows.
func (s *site) drifted(id, step string, other string) (digest string) {
	s.Helper()
	s.until(id, func(state protocol.State) bool {
		return state.Report != nil && slices.ContainsFunc(state.Report.Steps, func(r compensations.StepReport) bool {
			digest = string(r.Digest)
			return r.Step == step && r.State == string(compensations.Parked) && digest != other
		})
	})
	return digest
}

func TestARollbackAsksAndSaysWhatItPutsBack(t *testing.T) {
	s := newSite(t)
	s.apply()
	first := s.checkpoint()
	later := s.checkpoint()
	wrote := func(name string) (id string) {
		id = name + "-" + s.name
		s.ok("run", s.task("- {id: write, uses: file.write, with: {path: ROOT/uploads/"+name+", content: more}}\n"), "--id", id,
			"--watch")
		return id
	}
	before := wrote("before")
	s.sh("echo bad >code/page")
	file := s.task(`
- {id: back, uses: environment.rollback, with: {environment: NAME, to: ` + first.ID + `}}
`)
	plan := s.ok("plan", file)
	for _, said := range []string{"part", "~ code (git " + s.root + "/code) is put back, exactly",
		"the unit app is stopped meanwhile", "newer than that: " + later.ID, "starter env diff " + s.name + " " + first.ID,
		"- what task " + before + " has changed is taken back: uploads, last at "} {
		require.Contains(t, plan, said)
	}
	id := t.Name()
	s.ok("run", file, "--id", id)
	s.until(id, atGate)
	require.Equal(t, "bad\n", s.sh("cat code/page"))
	// A checkpoint that is taken meanwhile voids an approval.
	third := s.checkpoint()
	digest := s.state(id).Gates[0].Digest
	s.do("approve", id, "back", "--digest", string(digest), "--yes")
	s.until(id, func(state protocol.State) bool { return atGate(state) && state.Gates[0].Digest != digest })
	require.Contains(t, s.state(id).Gates[0].Change.Diff, third.ID)
	// So does a task whose changes would be taken back as well.
	meanwhile := wrote("meanwhile")
	digest = s.state(id).Gates[0].Digest
	s.do("approve", id, "back", "--digest", string(digest), "--yes")
	s.until(id, func(state protocol.State) bool { return atGate(state) && state.Gates[0].Digest != digest })
	require.Contains(t, s.state(id).Gates[0].Change.Diff, "- what task "+meanwhile+" has changed is taken back: uploads")
	s.ok("approve", id, "back", "--digest", string(s.state(id).Gates[0].Digest), "--yes")
	require.Equal(t, compensations.Committed, s.reportOf(id).Status)
	require.Equal(t, "good\n", s.sh("cat code/page"))
}

func TestStepsOnEnvironmentsAreRefusedBeforeAnythingIsTouched(t *testing.T) {
	s := newSite(t)
	s.apply()
	for steps, said := range map[string]string{
		"{id: a, uses: environment.checkpoint, with: {environment: nothing}}":                                       `environment: there is no "nothing"`,
		"{id: a, uses: environment.checkpoint, with: {environment: other}}":                                         `steps may not use "other" on this worker; environment.names in its config has ` + s.name,
		"{id: a, uses: environment.checkpoint, with: {environment: NAME, notes: " + strings.Repeat("x", 501) + "}}": "notes: they have 501 bytes, more than 500",
		"{id: a, uses: environment.rollback, gate: none, with: {environment: NAME, to: cp-none}}":                   `has no checkpoint "cp-none"; `,
	} {
		r := s.do("run", s.task("- "+steps), "--watch")
		require.NotEqual(t, statusOK, r.status, "%s: %s%s", steps, r.out, r.err)
		require.Contains(t, r.out+r.err, said)
	}
	require.Empty(t, s.view().Checkpoints)
}

func TestABusyEnvironmentIsAskedAgain(t *testing.T) {
	s := newSite(t)
	s.apply()
	s.sh("touch hold")
	taking := s.begin("env", "checkpoint", s.name)
	require.Eventually(t, func() bool { return s.view().Doing != nil }, waitFor, tick)
	r := s.do("run", s.task("- {id: keep, uses: environment.checkpoint, with: {environment: NAME}, retry: {attempts: 1}}"), "--watch")
	require.Equal(t, statusFailed, r.status)
	require.Contains(t, r.out+r.err, "is busy since")
	require.Contains(t, r.out+r.err, "wait until that is over")
	id := t.Name()
	s.ok("run", s.task("- {id: keep, uses: environment.checkpoint, with: {environment: NAME}, retry: {attempts: 100}}"), "--id", id)
	require.Eventually(t, func() bool {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), id, "")
		return err == nil && strings.Contains(fmt.Sprint(d.GetPendingActivities()), "is busy since")
	}, waitFor, tick)
	s.sh("rm hold")
	require.Equal(t, statusOK, s.ended(taking).status)
	require.Equal(t, compensations.Committed, s.reportOf(id).Status)
	require.Len(t, s.view().Checkpoints, 2)
}

// TestAnUndoEndsWhatIsUnderWay cancels a task whose rollback waits for the unit to stop.
func TestAnUndoEndsWhatIsUnderWay(t *testing.T) {
	s := newSite(t)
	s.apply()
	first := s.checkpoint()
	s.sh("echo bad >code/page; touch hold")
	broken := s.is()
	id := t.Name()
	s.ok("run", s.task("- {id: back, uses: environment.rollback, gate: none, with: {environment: NAME, to: "+first.ID+"}}"), "--id", id)
	require.Eventually(t, func() bool {
		v := s.view()
		return v.Doing != nil && v.Doing.Task != ""
	}, waitFor, tick)
	s.sh("while test -e running; do sleep 0.02; done")
	s.ok("cancel", id)
	s.sh("rm hold")
	require.Equal(t, compensations.Unwound, s.reportOf(id).Status)
	require.Equal(t, broken, s.is())
	require.Empty(t, s.view().Checkpoints[0].NeededBy)
}

// TestASessionTakesACheckpoint has an agent use both actions over MCP, and take its steps back.
func TestASessionTakesACheckpoint(t *testing.T) {
	s := newSite(t)
	s.apply()
	before := s.is()
	a := s.newAgent(nil)
	session := a.open()
	kept := a.does("environment_checkpoint", arguments{"session": session, "id": "keep",
		"with": arguments{"environment": s.name}})
	require.Contains(t, fmt.Sprint(kept), "cp-")
	a.does("file_write", arguments{"session": session,
		"with": arguments{"path": filepath.Join(s.root, "code", "page"), "content": "bad\n"}})
	require.Equal(t, "bad\n", s.sh("cat code/page"))
	a.does("rollback", arguments{"session": session, "step": "keep"})
	require.Empty(t, s.view().Checkpoints)
	a.does("abort", arguments{"session": session})
	require.Equal(t, before, s.is())
}

func TestAStepRunsOnTheHostOfItsEnvironment(t *testing.T) {
	s := newSite(t)
	s.apply()
	first := s.checkpoint()
	c := host.Config{Host: "there", Queue: s.queue, State: t.TempDir(), Schedules: "off"}
	other, err := host.Start(t.Context(), c.With(&host.EnvironmentSettings{Names: []string{"*"}}),
		host.Options{Client: s.client, Namespace: s.server.Namespace})
	require.NoError(t, err)
	defer other.Stop()
	for _, step := range []string{
		"{id: a, on: there, uses: environment.checkpoint, with: {environment: NAME}}",
		"{id: a, on: there, gate: none, uses: environment.rollback, with: {environment: NAME, to: " + first.ID + "}}",
	} {
		r := s.do("run", s.task("- "+step), "--watch")
		require.Equal(t, statusFailed, r.status, "%s%s", r.out, r.err)
		require.Contains(t, r.out+r.err, s.name+" is on host here, and the step on there; write `on: here` into the step")
	}
	require.Len(t, s.view().Checkpoints, 1)
}

func TestAnUnpinGivesUpAnUndo(t *testing.T) {
	s := newSite(t)
	s.apply()
	id := t.Name()
	s.ok("run", s.task(swing), "--id", id, "--watch")
	left := s.is()
	safety := s.view().Checkpoints[0]
	s.ok("env", "unpin", s.name, safety.ID)
	s.ok("env", "delete", s.name, safety.ID)
	s.ok("rollback", id)
	back := s.idOf("rollback", id)
	s.until(back, parked)
	require.Contains(t, s.ok("show", back), "its safety checkpoint "+safety.ID+" is gone")
	require.Equal(t, left, s.is())
}

func TestACheckpointThatSomebodyHasPinnedStays(t *testing.T) {
	s := newSite(t)
	s.apply()
	id := t.Name()
	s.ok("run", s.task("- {id: keep, uses: environment.checkpoint, with: {environment: NAME}}"), "--id", id, "--watch")
	kept := s.view().Checkpoints[0]
	s.ok("env", "pin", s.name, kept.ID)
	s.ok("rollback", id)
	back := s.idOf("rollback", id)
	digest := s.drifted(back, "keep", "")
	require.Contains(t, s.ok("show", back), "somebody has pinned checkpoint "+kept.ID+" since")
	require.Len(t, s.view().Checkpoints, 1)
	s.ok("resolve", back, "keep", "--do", "force", "--digest", digest)
	require.Equal(t, compensations.Unwound, s.reportOf(back).Status)
	require.Empty(t, s.view().Checkpoints)
}

// TestATaskDoesNotWaitForItself has a task ask for a checkpoint of a container in which it has a
// step itself.
func TestATaskDoesNotWaitForItself(t *testing.T) {
	containertest.NeedFiles(t)
	box := containertest.Start(t, func(c *container.Config, _ *container.HostConfig, _ *network.NetworkingConfig) {
		c.StopTimeout = new(int)
	})
	s := newSite(t)
	s.stopWorker()
	s.startWorker(s.worlds, func(c *host.Config) {
		*c = c.With(&folder.Settings{Roots: []string{s.root}, Engine: containertest.Socket}).With(
			&unit.Settings{Units: map[string]unit.Unit{"app": {Container: box.Name}}}).With(
			&containers.Settings{Engine: containertest.Socket})
	})
	t.Cleanup(func() {
		containertest.ClearJournal(t, filepath.Join(s.worker.Config.State, "folder", "journal"))
	})
	s.write("environment.yaml", "name: "+s.name+"\nunit: app\nparts:\n  web: {container: "+box.Name+"}\n")
	s.apply()
	id := t.Name()
	r := s.do("run", s.task(`
- {id: touch, uses: container.exec, with: {container: `+box.Name+`, argv: [touch, /srv/mine]}}
- {id: keep, uses: environment.checkpoint, with: {environment: NAME}}
`), "--id", id, "--watch")
	require.Equal(t, statusFailed, r.status, "%s%s", r.out, r.err)
	require.Contains(t, r.out+r.err, "steps of a task that has not ended have changed "+box.Name)
	require.Equal(t, compensations.Unwound, s.reportOf(id).Status)
	require.Empty(t, s.view().Checkpoints)
}
