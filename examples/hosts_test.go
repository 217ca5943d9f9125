package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// machine is a host with its own folder.
type machine struct {
	host.Config
	file string
}

func newMachine(t *testing.T, name, queue string) machine {
	root := t.TempDir()
	m := machine{file: filepath.Join(root, "app.yml"), Config: host.Config{
		Host: name, Queue: queue, State: t.TempDir(), Worlds: []activities.Settings{
			&file.Settings{Roots: []string{root}}},
		HostWait: time.Second, StopTimeout: time.Second,
	}}
	require.NoError(t, os.WriteFile(m.file, []byte("before on "+name+"\n"), 0o640))
	return m
}

func (m machine) reads(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(m.file)
	require.NoError(t, err)
	return string(content)
}

func TestNoStepAndNoUndoLandsOnTheWrongHostAndAnUndoWaitsForItsOwn(t *testing.T) {
	p := dial(t, t.Name())
	alpha, beta := newMachine(t, "alpha", p.queue), newMachine(t, "beta", p.queue)
	p.work(alpha.Config)
	away := p.work(beta.Config)

	_, err := p.start(p.id(), p.document(fmt.Appendf(nil, `
name: two hosts
steps:
  - {id: one, on: alpha, uses: file.write, with: {path: %q, content: after}}
  - {id: two, on: beta, needs: [], uses: file.write, with: {path: %q, content: after}}
  - id: three
    on: alpha
    needs: [one, two]
    uses: file.write
    with: {path: %q, content: new}
    gate: ask
    check: [{exists: %q, when: live}]
`, alpha.file, beta.file, alpha.file+".new", alpha.file+".never"), nil))
	require.NoError(t, err)
	p.until(p.id(), func(s protocol.State) bool { return len(s.Gates) == 1 })
	require.Equal(t, "after", alpha.reads(t))
	require.Equal(t, "after", beta.reads(t))

	away.Stop()
	p.gate(p.id(), "three", protocol.SignalApprove)
	// Steps that do not need the missing host go on.
	s := p.until(p.id(), func(s protocol.State) bool {
		return s.Report != nil && len(s.Report.Steps) == 3 && s.Report.Steps[0].State == string(compensations.Settled) &&
			s.Report.Steps[1].State == string(compensations.Waiting)
	})
	require.Equal(t, "waiting for host beta", s.Report.Steps[1].Reason)
	require.Equal(t, activities.Restored, s.Report.Steps[0].Outcome)
	require.Equal(t, "before on alpha\n", alpha.reads(t))
	require.Equal(t, "after", beta.reads(t))

	p.work(beta.Config)
	r, err := p.end(p.id())
	require.ErrorContains(t, err, ".never")
	require.Equal(t, compensations.Unwound, r.Status)
	require.Equal(t, []string{"one restored", "two restored", "three restored"}, outcomes(r))
	require.Equal(t, "before on alpha\n", alpha.reads(t))
	require.Equal(t, "before on beta\n", beta.reads(t))
	require.Equal(t, []string{
		"alpha file.write one", "beta file.write two", "alpha file.write.plan three", "alpha file.write three",
		"alpha file.write.undo three", "alpha file.write.undo one", "beta file.write.undo two",
	}, p.doneBy(p.id()))
}

// The records of what a step has changed in a database are in that database: another host, with a
// folder of its own, undoes it when the one that did it has gone for good. What was done on that
// host itself waits for it.
func TestAnotherHostUndoesWhatIsRecordedInTheDatabases(t *testing.T) {
	s := newStores(t)
	s.config.HostWait = time.Second
	before := s.look()
	away := s.work(s.config)
	s.begin(1, false)
	s.untilAsked(1)
	left := s.look()
	away.Stop()
	other := s.config
	other.Host, other.State = "other", t.TempDir()
	s.work(other)
	s.gate(s.task(1), "last", protocol.SignalReject)
	states := map[string]string{}
	s.until(s.task(1), func(is protocol.State) bool {
		if is.Report == nil {
			return false
		}
		for _, each := range is.Report.Steps {
			states[each.Step] = each.State
		}
		return states["notes"] == string(compensations.Waiting) && states["postgres"] == string(compensations.Settled) &&
			states["redis"] == string(compensations.Settled) && states["etcd"] == string(compensations.Settled)
	})
	for i, now := range s.look() {
		want := left[i]
		if slices.Contains([]string{"postgres", "redis", "etcd"}, s.names()[i]) {
			want = before[i]
		}
		require.Equal(t, want, now, s.names()[i])
	}
	s.work(s.config)
	r, _ := s.end(s.task(1)) // it was rejected
	require.Equal(t, compensations.Unwound, r.Status)
	require.Equal(t, before, s.look())
}

// doneBy lists the completed activities of steps, in the order of completion: "HOST TYPE STEP". The
// host is that of the worker that ran the activity, not that of the step's place.
func (p *player) doneBy(id string) []string {
	type call struct{ kind, queue, step, worker string }
	calls := map[int64]*call{}
	var done []string
	for _, e := range p.history(id) {
		switch {
		case e.GetActivityTaskScheduledEventAttributes() != nil:
			a := e.GetActivityTaskScheduledEventAttributes()
			calls[e.GetEventId()] = &call{kind: a.GetActivityType().GetName(), queue: a.GetTaskQueue().GetName(),
				step: stepOf(a.GetInput())}
		case e.GetActivityTaskStartedEventAttributes() != nil:
			a := e.GetActivityTaskStartedEventAttributes()
			calls[a.GetScheduledEventId()].worker = a.GetIdentity()
		case e.GetActivityTaskCompletedEventAttributes() != nil, e.GetActivityTaskFailedEventAttributes() != nil:
			at := e.GetActivityTaskCompletedEventAttributes().GetScheduledEventId() +
				e.GetActivityTaskFailedEventAttributes().GetScheduledEventId()
			if c := calls[at]; c.step != "" {
				require.Equal(p, task.HostQueue(p.queue, c.worker), c.queue, "%s of step %s was done by %s", c.kind, c.step,
					c.worker)
				done = append(done, c.worker+" "+c.kind+" "+c.step)
			}
		}
	}
	// Two forwards at once may end in either order.
	slices.Sort(done[:2])
	return done
}
