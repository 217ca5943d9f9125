package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// open opens a session whose savepoints are checkpoints of the environment.
func (s *site) open(settings string) (id string) {
	s.Helper()
	id = s.Name()
	s.ok("session", "open", s.file("name: swings\nsession: {environment: "+s.name+settings+"}\nsteps: []\n"), "--id", id)
	return id
}

// asks sends a request to a session.
func (s *site) asks(status int, args ...string) (a protocol.Answer) {
	s.Helper()
	r := s.do(append([]string{"session"}, args...)...)
	require.Equal(s, status, r.status, "%s%s", r.out, r.err)
	require.NoError(s, json.Unmarshal([]byte(r.out), &a))
	return a
}

// writes has a session write a file.
func (s *site) writes(id, path, content string) {
	s.Helper()
	s.asks(statusOK, "step", id, s.file("{uses: file.write, with: {path: "+filepath.Join(s.root, path)+", content: "+
		content+"}}"))
}

// files are those of the environment, without what git does when it looks.
func (s *site) files() string { return s.sh("grep . code/page uploads/*; ls running") }

func TestASavepointIsACheckpoint(t *testing.T) {
	s := newSite(t)
	s.apply()
	before := s.files()
	id := s.open("")
	s.writes(id, "uploads/one", "mine")
	made := s.asks(statusOK, "savepoint", id, "start")
	require.Equal(t, "start", made.Savepoint)
	kept := s.view().Checkpoints
	require.Len(t, kept, 1)
	require.Equal(t, kept[0].ID, made.Steps[0].Outputs["checkpoint"])
	require.Equal(t, "savepoint start of session "+id, kept[0].Notes)
	require.Equal(t, id, kept[0].NeededBy[0].Task)
	at := s.files()

	// What the session has done since is undone as such, and nothing is left to put back.
	s.writes(id, "code/page", "bad")
	s.writes(id, "uploads/two", "mine")
	back := s.asks(statusOK, "rollback", id, "--to", "start")
	require.Len(t, back.Undone, 2)
	require.Len(t, back.Steps, 1)
	require.Contains(t, back.Steps[0].Summary, "is as in checkpoint "+kept[0].ID+" already")
	require.Equal(t, at, s.files())
	require.Len(t, s.view().Checkpoints, 1, "nothing was stopped")

	// What others have done is put back once a person has let it.
	s.writes(id, "code/page", "bad")
	s.sh("echo theirs >uploads/three")
	asked := s.asks(statusNeedsPerson, "rollback", id, "--to", "start")
	require.Equal(t, "good\n", s.sh("cat code/page"))
	require.Equal(t, "theirs\n", s.sh("cat uploads/three"))
	step := asked.Steps[0]
	require.Contains(t, step.Gate.Change.Summary, "put environment "+s.name+" back to checkpoint "+kept[0].ID)
	s.ok("approve", id, step.ID, "--yes")
	require.Equal(t, protocol.Done, s.asks(statusOK, "await", id, asked.Request).Steps[0].State)
	require.Equal(t, at, s.files())
	require.Len(t, s.view().Checkpoints, 2)

	// The savepoint stands behind that: going back to it again does not bring back what others have done.
	s.writes(id, "uploads/one", "more")
	back = s.asks(statusOK, "rollback", id, "--to", "start")
	require.Len(t, back.Undone, 1)
	require.Equal(t, at, s.files())

	// The end of the session takes back all of it: the work of others is there again.
	s.asks(statusOK, "abort", id)
	require.Equal(t, compensations.Unwound, s.reportOf(id).Status)
	require.Equal(t, "theirs\n", s.sh("cat uploads/three; rm uploads/three"))
	require.Equal(t, before, s.files())
	for _, c := range s.view().Checkpoints {
		require.Equal(t, environment.PreRollback, c.Trigger)
		require.Empty(t, c.NeededBy)
	}
}

func TestAnAgentPutsItsEnvironmentBackAndGoesOn(t *testing.T) {
	s := newSite(t)
	s.apply()
	id := s.open(", restores: agent")
	s.asks(statusOK, "savepoint", id, "start")
	s.writes(id, "uploads/one", "mine")
	s.asks(statusOK, "savepoint", id, "middle")
	s.writes(id, "code/page", "bad")
	s.sh("echo theirs >uploads/two")
	s.asks(statusOK, "rollback", id, "--to", "middle")
	require.Equal(t, "mine\n", s.sh("cat uploads/one; echo; ! test -e uploads/two"))
	require.Equal(t, "good\n", s.sh("cat code/page"))
	later := s.view().Checkpoints
	require.Len(t, later, 3)

	// Past the savepoint its checkpoint goes, and comes anew with a redo.
	s.asks(statusOK, "rollback", id, "--to", "start", "--branch", "tried")
	require.Equal(t, "first\n", s.sh("cat uploads/one"))
	require.Equal(t, []string{"start"}, s.state(id).Session.Savepoints)
	s.asks(statusOK, "redo", id, "--branch", "tried")
	require.Equal(t, "mine\n", s.sh("cat uploads/one; echo"))
	s.sh("echo theirs >uploads/three")
	s.asks(statusOK, "rollback", id, "--to", "middle")
	require.Equal(t, "mine\n", s.sh("cat uploads/one; echo; ! test -e uploads/three"))
	s.asks(statusOK, "finish", id)
	require.Equal(t, compensations.Committed, s.reportOf(id).Status)
}

func TestASavepointWithoutItsCheckpointIsNone(t *testing.T) {
	s := newSite(t)
	r := s.do("session", "open", s.file("name: none\nsession: {environment: nothing}\nsteps: []\n"))
	require.NotEqual(t, statusOK, r.status)
	require.Contains(t, r.out+r.err, `session.environment: there is no "nothing"`)
	r = s.do("session", "open", s.file("name: none\nsession: {restores: agent}\nsteps: []\n"))
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, "it is about an environment, and the session has none")

	s.apply()
	id := s.open("")
	s.sh("mv code away")
	failed := s.asks(statusFailed, "savepoint", id, "start")
	require.Empty(t, failed.Savepoint)
	require.Equal(t, protocol.RolledBack, failed.Steps[0].State)
	require.Empty(t, s.view().Checkpoints)
	require.Contains(t, s.do("session", "rollback", id, "--to", "start").err, `there is no savepoint "start"`)
	s.sh("mv away code")
	require.Equal(t, "start", s.asks(statusOK, "savepoint", id, "start").Savepoint)
	require.Contains(t, s.do("session", "step", id, s.file("{savepoint: here, uses: file.write, with: {path: "+
		s.root+"/uploads/two, content: x}}")).err, "a savepoint of this session is a checkpoint of environment "+s.name)
	s.asks(statusOK, "abort", id)
	require.Empty(t, s.view().Checkpoints)
}

func TestAnEnvironmentKnowsTheTasksThatHaveChangedIt(t *testing.T) {
	s := newSite(t)
	s.apply()
	first := s.checkpoint()
	const write = "- {id: write, uses: file.write, with: {path: ROOT/uploads/two, content: more}}\n"
	s.ok("run", s.task(write), "--id", "committed-"+s.name, "--watch")
	s.do("run", s.task(strings.ReplaceAll(write, "two", "three")+
		"- {id: last, uses: environment.rollback, gate: none, with: {environment: NAME, to: cp-none}}\n"),
		"--id", "unwound-"+s.name, "--watch")
	s.ok("run", s.task("- {id: keep, uses: environment.checkpoint, with: {environment: NAME}}"), "--id", "looks-"+s.name,
		"--watch")
	shown := s.ok("env", "show", s.name)
	require.Contains(t, shown, "changed by task committed-"+s.name+", ended")
	require.NotContains(t, shown, "unwound-"+s.name)
	require.NotContains(t, shown, "changed by task looks-"+s.name)
	require.NotContains(t, shown, "changed by task environment-"+s.name)

	// A task that has not ended keeps others from going back, before anything stops.
	id := s.open(", restores: agent")
	s.asks(statusOK, "savepoint", id, "start")
	s.writes(id, "code/page", "bad")
	r := s.do("env", "rollback", s.name, first.ID)
	require.Equal(t, statusUsage, r.status)
	require.Contains(t, r.err, "task "+id+" has not ended, and has changed code")
	require.Len(t, s.view().Checkpoints, 3)
	s.sh("echo theirs >uploads/four")
	s.asks(statusOK, "rollback", id, "--to", "start") // its own steps do not
	s.asks(statusOK, "finish", id)

	done := s.rollBack(first.ID)
	require.Equal(t, []string{"committed-" + s.name}, tasksIn(done.Past, "committed-"+s.name))
	require.Equal(t, done.Past, s.view().Checkpoints[0].Past)

	// The task says so, until somebody goes forward again.
	committed := "committed-" + s.name
	const said = "has taken back what it had changed in uploads"
	want := []environment.TakenBack{{Environment: s.name, Checkpoint: first.ID, Safety: done.Safety.ID,
		Parts: []string{"uploads"}, At: done.Safety.Created}}
	require.Equal(t, want, s.standing(committed).TakenBack)
	require.Equal(t, want, s.listed(committed).TakenBack)
	require.Contains(t, s.ok("show", committed), said)
	require.Contains(t, s.ok("list", "--limit", "1000"), "taken back in")
	require.Contains(t, s.ok("env", "show", s.name), "; taken back in uploads by the rollback to "+first.ID)
	require.Empty(t, s.standing("unwound-"+s.name).TakenBack)
	forward := s.rollBack(done.Safety.ID)
	require.Empty(t, forward.Past, "the way forward takes nothing back")
	require.Empty(t, s.standing(committed).TakenBack)
	require.Empty(t, s.listed(committed).TakenBack)
	require.NotContains(t, s.ok("show", committed), said)
	s.rollBack(forward.Safety.ID)
	require.Equal(t, want, s.standing(committed).TakenBack, "what the rollback has led to is there again")

	// Without a worker nobody tells, which is said.
	s.stopWorker()
	require.Contains(t, s.do("list", "--limit", "1000").err, "what rollbacks of environment "+s.name+" have taken back is not known")
	require.Contains(t, s.ok("show", committed), "what rollbacks of environment "+s.name+" have taken back is not known")
}

// TestWhatATaskHasTakenBackItselfIsNotMarked by a later rollback to the same checkpoint.
func TestWhatATaskHasTakenBackItselfIsNotMarked(t *testing.T) {
	s := newSite(t)
	s.apply()
	first := s.checkpoint()
	id := "own-" + s.name
	s.ok("run", s.task("- {id: write, uses: file.write, with: {path: ROOT/uploads/two, content: more}}\n"+
		"- {id: back, uses: environment.rollback, gate: none, with: {environment: NAME, to: "+first.ID+"}}\n"),
		"--id", id, "--watch")
	own := s.view().Checkpoints[0]
	require.Empty(t, own.Past)
	require.Equal(t, id, own.Own.Task)
	again := s.rollBack(first.ID)
	require.Empty(t, s.standing(id).TakenBack)

	s.rollBack(own.ID)
	later := s.rollBack(first.ID)
	require.Equal(t, []environment.TakenBack{{Environment: s.name, Checkpoint: first.ID, Safety: later.Safety.ID,
		Parts: []string{"code", "uploads"}, At: later.Safety.Created}}, s.standing(id).TakenBack)
	s.rollBack(again.Safety.ID)
	require.Empty(t, s.standing(id).TakenBack, "the task had taken it back before that")
}

// standing is how a task stands, as show tells.
func (s *site) standing(id string) (t tasks.Standing) {
	s.Helper()
	require.NoError(s, json.Unmarshal([]byte(s.ok("show", id, "-o", "json")), &t))
	return t
}

// listed is how list tells of a task.
func (s *site) listed(id string) tasks.Listed {
	s.Helper()
	var all []tasks.Listed
	require.NoError(s, json.Unmarshal([]byte(s.ok("list", "--limit", "1000", "-o", "json")), &all))
	i := slices.IndexFunc(all, func(t tasks.Listed) bool { return t.ID == id })
	require.GreaterOrEqual(s, i, 0)
	return all[i]
}

// TestATaskThatBeginsWhileARollbackVerifiesKeepsItFromStoppingAnything has it begin after the first
// look for such tasks.
func TestATaskThatBeginsWhileARollbackVerifiesKeepsItFromStoppingAnything(t *testing.T) {
	s := newSite(t)
	s.apply()
	first := s.checkpoint()
	id := s.open("")
	rolled := make(chan typed, 1)
	begin := func() { // until it asks the unit whether it is healthy
		t.Helper()
		s.sh("rm asked; touch wait")
		go func() { rolled <- s.do("env", "rollback", s.name, first.ID) }()
		require.Eventually(t, func() bool {
			_, err := os.Stat(filepath.Join(s.root, "asked"))
			return err == nil
		}, time.Minute, 20*time.Millisecond)
	}
	begin()
	s.writes(id, "code/page", "bad")
	s.sh("rm wait")
	r := <-rolled
	require.Equal(t, statusFailed, r.status, "%s%s", r.out, r.err)
	require.Contains(t, r.err, "task "+id+" has not ended, and has changed code")
	require.Contains(t, r.out, "stop             unit.stop          never ran")
	require.Equal(t, "bad", s.sh("cat code/page; ls running >/dev/null"))
	require.Equal(t, []string{first.ID}, idsOf(s.view().Checkpoints))

	// One that has also ended by then is named.
	s.asks(statusOK, "abort", id)
	begin()
	s.ok("run", s.task("- {id: write, uses: file.write, with: {path: ROOT/uploads/two, content: more}}\n"), "--id",
		"quick-"+s.name, "--watch")
	s.sh("rm wait")
	require.Contains(t, (<-rolled).out, "taken back: what was done by task quick-"+s.name)
	require.Equal(t, []string{"quick-" + s.name}, tasksIn(s.view().Checkpoints[0].Past, "quick-"+s.name))
}

// tasksIn are those of some tasks that a rollback has gone past.
func tasksIn(past []environment.TaskWrote, some ...string) (found []string) {
	for _, each := range past {
		if slices.Contains(some, each.Task) {
			found = append(found, each.Task)
		}
	}
	return found
}
