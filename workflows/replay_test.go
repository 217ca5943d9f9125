package workflows_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
	"github.com/seed-62bf7108/unwind/workflows/session"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// The stored histories were recorded once; record_test.go records missing ones. From the first
// release on they are never rewritten: a change under which they do not replay needs
// workflow.GetVersion, and a history of its own. Until then such a change records them anew.
const histories = "testdata/histories"

// replay replays a history with today's workflows, or with other in the place of each of them.
func replay(t *testing.T, file string, other any) error {
	t.Helper()
	r := worker.NewWorkflowReplayer()
	recorded, err := os.Open(file)
	require.NoError(t, err)
	defer recorded.Close()
	history, err := client.HistoryFromJSON(recorded, client.HistoryJSONOptions{})
	require.NoError(t, err)
	var options worker.ReplayWorkflowHistoryOptions
	for _, e := range history.GetEvents() { // a replayer takes a run for the one that it was reset from
		if reset := e.GetWorkflowTaskFailedEventAttributes().GetNewRunId(); reset != "" {
			options.OriginalExecution = workflow.Execution{ID: "reset", RunID: reset}
		}
	}
	if other == nil {
		workflows.Register(r, nil)
		return r.ReplayWorkflowHistoryWithOptions(nil, history, options)
	}
	for _, name := range []string{
		protocol.AgentTaskType, protocol.RecoverType, protocol.RollbackType, protocol.RedoType, protocol.LateSweepType,
		protocol.PlanTaskType, protocol.ClearPlanType, environment.WorkflowType, protocol.NoticesType,
	} {
		r.RegisterWorkflowWithOptions(other, workflow.RegisterOptions{Name: name})
	}
	return r.ReplayWorkflowHistoryWithOptions(nil, history, options)
}

func TestStoredHistoriesReplay(t *testing.T) {
	for _, file := range listHistories(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			require.NoError(t, replay(t, file, nil))
		})
	}
}

// A replay that accepts anything proves nothing: for each history, workflows that decide otherwise
// must fail.
func TestOtherWorkflowsDoNotReplay(t *testing.T) {
	wrong := map[string]any{
		"schedules something first": func(ctx workflow.Context, doc, carry converter.RawValue) (compensations.Report, error) {
			_ = workflow.Sleep(ctx, time.Second)
			return workflows.AgentTask(ctx, doc, carry)
		},
		"never listens to its compiler": func(ctx workflow.Context, _ json.RawMessage) (compensations.Report, error) {
			ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
			return compensations.Report{}, workflow.ExecuteActivity(ctx, "task.other").Get(ctx, nil)
		},
		"ends at once": func(workflow.Context, json.RawMessage) (compensations.Report, error) {
			return compensations.Report{}, nil
		},
	}
	for _, file := range listHistories(t) {
		for name, task := range wrong {
			t.Run(filepath.Base(file)+" "+name, func(t *testing.T) {
				require.Error(t, replay(t, file, task))
			})
		}
	}
}

// What was measured when a step began decides whether it is refused, not what another Go measures
// in a replay.
func TestAReplayMeasuresNothing(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(histories, "measured.json"))
	require.NoError(t, err)
	sizes := regexp.MustCompile(`"data": "([^"]+)"`)
	found := 0
	changed := sizes.ReplaceAllStringFunc(string(raw), func(field string) string {
		data, err := base64.StdEncoding.DecodeString(sizes.FindStringSubmatch(field)[1])
		require.NoError(t, err)
		if !strings.HasPrefix(string(data), `{"bytes":`) {
			return field
		}
		found++
		return `"data": "` + base64.StdEncoding.EncodeToString([]byte(`{"bytes":999999}`)) + `"`
	})
	require.Positive(t, found)
	file := filepath.Join(t.TempDir(), "measured.json")
	require.NoError(t, os.WriteFile(file, []byte(changed), 0o600))
	require.Error(t, replay(t, file, nil), "a step that ran would have been refused")
}

// environmentHistory is recorded where environments are tested with a worker.
const environmentHistory = "environment"

// listHistories lists the stored histories: one for each scenario, and no other.
func listHistories(t *testing.T) (files []string) {
	t.Helper()
	for _, name := range slices.Concat(slices.Collect(maps.Keys(scenarios)), slices.Collect(maps.Keys(followUps)),
		[]string{environmentHistory}) {
		files = append(files, filepath.Join(histories, name+".json"))
	}
	slices.Sort(files)
	stored, err := filepath.Glob(filepath.Join(histories, "*"))
	require.NoError(t, err)
	require.Equal(t, files, stored, "record what is missing, and remove what belongs to no scenario")
	return files
}

// scenario is a path through a workflow that a stored history covers. act drives the task to its
// end.
type scenario struct {
	world func() *world
	act   func(l *live)
}

// sessionRequest is a request to a session, which must succeed.
type sessionRequest func(s session.Session) (protocol.Answer, error)

// playSession opens a session once the task is over, makes requests to it, and returns its id.
func (l *live) playSession(requests ...sessionRequest) (id string) {
	_, err := l.report()
	require.NoError(l, err)
	s, _, err := session.Open(l.Context(), l.client, session.Options{ID: l.Name() + "-session", Queue: l.queue},
		json.RawMessage(sessionDocument))
	require.NoError(l, err)
	for _, request := range requests {
		_, err := request(s)
		require.NoError(l, err)
	}
	return s.ID()
}

// followUps are the scenarios of workflows that follow the end of a task: act starts one when the
// task is over, and returns its id.
var followUps = map[string]struct {
	world func() *world
	act   func(l *live) string
}{
	"recovered": {
		func() *world { return &world{steps: chain("a", "b", "c"), do: blockAt("c", never)} },
		func(l *live) string {
			l.awaitCalls("do c", 1)
			l.terminate(l.run.GetID())
			return l.recover().WorkflowID
		},
	},
	"rolled-back": {
		func() *world { return &world{steps: chain("a", "b", "c")} },
		func(l *live) string { return l.rollback("b").WorkflowID },
	},
	"rolled-back-held": { // rolled-back is of before records were held
		func() *world { return &world{steps: chain("a", "b", "c")} },
		func(l *live) string { return l.rollback("b").WorkflowID },
	},
	"redone": {
		func() *world { return &world{steps: addGate(chain("a", "b"), "b", time.Hour)} },
		func(l *live) string {
			l.approve()
			l.awaitReport(l.rollback(""))
			found, err := l.server().FindRollback(l.Context(), l.run.GetID())
			require.NoError(l, err)
			redo, err := l.server().Redo(l.Context(), found, "eve", converter.GetDefaultDataConverter())
			require.NoError(l, err)
			var s protocol.State
			require.Eventually(l, func() bool { s = l.stateOf(redo.WorkflowID); return atGate(s) }, 40*time.Second,
				20*time.Millisecond)
			require.NoError(l, l.client.SignalWorkflow(l.Context(), redo.WorkflowID, "", protocol.SignalApprove,
				protocol.Decision{Step: s.Gates[0].Step, Digest: s.Gates[0].Digest, Who: "ann"}))
			return redo.WorkflowID
		},
	},
	"redone-named": { // redone is of before its hosts named what it touches
		func() *world { return &world{steps: preflighted(chain("a", "b"), "a", "b"), preflight: namesOfOne} }, redoNamed,
	},
	"session": {
		func() *world { return &world{steps: chain("a"), do: refusing("bad")} },
		func(l *live) string {
			return l.playSession(
				func(s session.Session) (protocol.Answer, error) {
					return s.Step(l.Context(), "1", steps("x", "bad").Steps...)
				},
				func(s session.Session) (protocol.Answer, error) { return s.Savepoint(l.Context(), "2", "half") },
				func(s session.Session) (protocol.Answer, error) {
					return s.Step(l.Context(), "3", steps("y", "z").Steps...)
				},
				func(s session.Session) (protocol.Answer, error) {
					return s.Rollback(l.Context(), "4", protocol.SessionRollback{To: "half"})
				},
				func(s session.Session) (protocol.Answer, error) { return s.Finish(l.Context(), "5") },
			)
		},
	},
	"session-redone": {
		func() *world { return &world{steps: chain("a"), do: refusing("bad")} },
		func(l *live) string {
			return l.playSession(
				func(s session.Session) (protocol.Answer, error) {
					return s.Step(l.Context(), "1", steps("x", "y").Steps...)
				},
				func(s session.Session) (protocol.Answer, error) {
					return s.Rollback(l.Context(), "2", protocol.SessionRollback{Step: "x"})
				},
				func(s session.Session) (protocol.Answer, error) {
					return s.Redo(l.Context(), "3", protocol.SessionRedo{})
				},
				func(s session.Session) (protocol.Answer, error) { return s.Finish(l.Context(), "4") },
			)
		},
	},
	"session-branches": {
		func() *world { return &world{steps: chain("a")} },
		func(l *live) string {
			aside := func(id, name string) sessionRequest {
				return func(s session.Session) (protocol.Answer, error) {
					return s.Rollback(l.Context(), id,
						protocol.SessionRollback{To: "start", Branch: &protocol.Branch{Name: name, Score: new(0.5)}})
				}
			}
			return l.playSession(
				func(s session.Session) (protocol.Answer, error) { return s.Savepoint(l.Context(), "1", "start") },
				func(s session.Session) (protocol.Answer, error) {
					return s.Step(l.Context(), "2", steps("x", "y").Steps...)
				},
				aside("3", "first"),
				func(s session.Session) (protocol.Answer, error) {
					return s.Step(l.Context(), "4", steps("z").Steps...)
				},
				func(s session.Session) (protocol.Answer, error) { return s.Note(l.Context(), "5", "not better") },
				aside("6", "second"),
				func(s session.Session) (protocol.Answer, error) {
					return s.Redo(l.Context(), "7", protocol.SessionRedo{Branch: "first"})
				},
				func(s session.Session) (protocol.Answer, error) { return s.Finish(l.Context(), "8") },
			)
		},
	},
	"session-context": {
		func() *world { return &world{steps: chain("a")} },
		func(l *live) string {
			_, err := l.report()
			require.NoError(l, err)
			s, _, err := session.Open(l.Context(), l.client, session.Options{ID: l.Name() + "-session", Queue: l.queue},
				json.RawMessage(sessionDocument))
			require.NoError(l, err)
			_, err = s.Step(l.Context(), "1", steps("x").Steps...)
			require.NoError(l, err)
			require.NoError(l, l.markWith(s, "2", "half"))
			_, err = s.Step(l.Context(), "3", steps("y").Steps...)
			require.NoError(l, err)
			_, err = s.Rollback(l.Context(), "4", protocol.SessionRollback{To: "half"})
			require.NoError(l, err)
			_, err = s.Finish(l.Context(), "5")
			require.NoError(l, err)
			return s.ID()
		},
	},
	"planned": {func() *world { return &world{steps: chain("a", "b")} }, (*live).plan},
	"planned-openly": { // planned is of before a plan said that it is open
		func() *world { return &world{steps: chain("a", "b")} }, (*live).plan,
	},
	"plan-cleared": {
		func() *world { return &world{steps: chain("a", "b")} },
		func(l *live) string {
			letGo := make(chan struct{})
			l.world.plan = func(step string, _ int) (activities.Change, error) {
				if step == "b" {
					<-letGo
				}
				return activities.Change{}, nil
			}
			id := l.plan()
			l.awaitCalls("plan b", 1)
			l.terminate(id)
			close(letGo)
			dead, err := l.server().FindPlan(l.Context(), id, "")
			require.NoError(l, err)
			cleared, err := l.server().ClearPlan(l.Context(), dead)
			require.NoError(l, err)
			return cleared.WorkflowID
		},
	},
	"noticed": {func() *world { return &world{steps: chain("a")} }, (*live).notice},
	"looked-again": {
		func() *world {
			w := &world{steps: chain("a", "b"), do: refusing("b")}
			w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
				if step == "a" && n == 1 {
					return activities.Undone{Outcome: activities.Nothing, LookAgain: time.Second}, nil
				}
				return activities.Undone{Outcome: activities.Restored}, nil
			}
			return w
		},
		func(l *live) string {
			l.awaitCalls("undo a", 2)
			return fmt.Sprintf("late-sweep-%s-%s-1", l.run.GetID(), l.run.GetRunID())
		},
	},
}

// plan plans the task, and returns the id of the workflow that did.
func (l *live) plan() string {
	run, err := l.client.ExecuteWorkflow(l.Context(),
		client.StartWorkflowOptions{ID: l.Name() + "-plan", TaskQueue: l.queue},
		protocol.PlanTaskType, json.RawMessage(`{"name": "release"}`))
	require.NoError(l, err)
	return run.GetID()
}

// notice has a channel told of what waits, which cannot be reached at first, and returns the id of the
// workflow that did.
func (l *live) notice() string {
	queue := l.Name() + "-notices"
	wk := worker.New(l.client, queue, worker.Options{})
	workflows.Register(wk, nil)
	wk.RegisterActivityWithOptions(func(_ context.Context, now time.Time, n protocol.Notices) (protocol.Notices, error) {
		n.Next = now.Add(time.Hour)
		switch {
		case n.Failures == 0:
			n.Failures, n.Trouble, n.Next = 1, "ops.example.com did not answer", now.Add(time.Second)
		case len(n.Waiting) == 2:
			n.Waiting = nil
		}
		return n, nil
	}, activity.RegisterOptions{Name: protocol.NoticesActivity})
	require.NoError(l, wk.Start())
	l.Cleanup(wk.Stop)
	id := protocol.NoticesID(queue, "ops")
	hand := func(step string) {
		_, err := l.client.SignalWithStartWorkflow(l.Context(), id, protocol.SignalWaiting,
			[]protocol.Waiting{{Alert: protocol.Alert{Task: "release", Step: step, State: protocol.Gated}}},
			client.StartWorkflowOptions{TaskQueue: queue}, protocol.NoticesType, protocol.Notices{Channel: "ops"})
		require.NoError(l, err)
	}
	hand("a")
	require.Eventually(l, func() bool {
		tried := 0
		for _, e := range l.eventsOf(l.Context(), id, "") {
			if e.GetActivityTaskCompletedEventAttributes() != nil {
				tried++
			}
		}
		return tried == 2
	}, 20*time.Second, 20*time.Millisecond)
	require.NoError(l, l.client.SignalWorkflow(l.Context(), id, "", protocol.SignalWaiting, "unreadable"))
	hand("b")
	return id
}

// rollback rolls back the committed task, or one step of it with what builds on it.
func (l *live) rollback(step string) recovery.Run {
	l.Helper()
	_, err := l.report()
	require.NoError(l, err)
	done, err := l.server().FindDone(l.Context(), l.run.GetID())
	require.NoError(l, err)
	run, err := l.server().Rollback(l.Context(), done, recovery.Part{Step: step}, "eve", "",
		converter.GetDefaultDataConverter())
	require.NoError(l, err)
	return run
}

var scenarios = map[string]scenario{
	"named-late": {func() *world {
		w := &world{steps: late("a", "b", "c"), preflight: namesLate}
		w.entries()
		return w
	}, nil},
	"rolled-back-step": {func() *world {
		steps := chain("a", "b", "c", "d")
		stepByID(steps, "d").Needs = []string{"a"}
		onFailure(steps, "b", task.FailRollbackStep)
		return &world{steps: steps, do: refusing("b")}
	}, nil},
	"asked": {
		func() *world { return asking(nil) },
		func(l *live) {
			d := resolution(l.T, l.awaitState(hasPark), compensations.Retry)
			l.sendSignal(compensations.SignalResolve, d)
			d = resolution(l.T, l.awaitState(func(s protocol.State) bool { return hasPark(s) && s.Parks[0].Try == 2 }),
				compensations.Retry)
			d.With = json.RawMessage(`{"path":"/right"}`)
			_, err := l.ask(protocol.UpdateResolve, d)
			require.NoError(l, err)
		},
	},
	"edited": {
		func() *world { return editable(nil) },
		func(l *live) {
			_, err := l.ask(protocol.UpdateResolve, edit(l.awaitState(atGate).Gates[0], `{"path":"/right"}`))
			require.NoError(l, err)
			g := l.awaitState(func(s protocol.State) bool { return atGate(s) && s.Gates[0].Edited != "" }).Gates[0]
			l.sendSignal(protocol.SignalApprove, protocol.Decision{Step: "b", Digest: g.Digest})
		},
	},
	"asked-and-unwound": {
		func() *world { return asking(nil) },
		func(l *live) {
			l.sendSignal(compensations.SignalResolve, resolution(l.T, l.awaitState(hasPark), protocol.DoUnwind))
		},
	},
	"unwound-to-savepoint": {func() *world {
		steps := chain("a", "b", "c")
		stepByID(steps, "b").Savepoint = "half"
		unwindTo(steps, "c", "half", 1)
		return &world{steps: steps, do: refusing("c")}
	}, nil},
	"canceled-in-a-rollback": {
		func() *world {
			steps := chain("a", "b", "c", "d")
			stepByID(steps, "d").Needs = []string{"a"}
			onFailure(steps, "b", task.FailRollbackStep)
			return &world{steps: steps, do: refusing("b"), undo: parkFirstUndo("b")}
		},
		func(l *live) {
			l.awaitState(parked)
			require.NoError(l, l.client.CancelWorkflow(l.Context(), l.run.GetID(), ""))
			l.awaitCalls("undo d", 1)
			l.resolve(compensations.Retry)
		},
	},
	"pivot": {func() *world {
		steps := chain("a", "b", "c")
		stepByID(steps, "b").Pivot = true
		return &world{steps: steps, do: refusing("c")}
	}, nil},
	"parallel": {func() *world {
		steps := chain("a", "b", "c", "d")
		stepByID(steps, "c").Needs, stepByID(steps, "d").Needs = []string{"a"}, []string{"b", "c"}
		return &world{steps: steps, do: refusing("d"), compiled: task.Compiled{Unwind: task.UnwindParallel}}
	}, nil},
	"probed": {func() *world {
		return &world{steps: chain("a", "b"), seen: activities.AsBefore,
			do: func(_ context.Context, s string, n int, _ activities.Forward) (activities.Result, error) {
				if s == "b" && n < 3 {
					return activities.Result{}, activities.Errorf(activities.UnknownOutcome, "lost")
				}
				return activities.Result{}, nil
			}}
	}, nil},
	"alerted": {
		func() *world {
			w := &world{steps: chain("a", "b"), do: refusing("b")}
			w.undo = func(step string, n int, _ activities.Decision) (activities.Undone, error) {
				if step == "a" && n == 1 {
					return activities.Undone{Outcome: activities.Unknown, Observed: "cannot be seen"}, nil
				}
				return activities.Undone{Outcome: activities.Restored}, nil
			}
			return w
		},
		func(l *live) { l.resolve(compensations.Retry) },
	},
	"parked-attribute": {
		func() *world { return &world{steps: chain("a", "b"), do: refusing("b"), undo: parkFirstUndo("a")} },
		func(l *live) { l.awaitState(parked); l.resolve(compensations.Retry) },
	},
	"continued": {func() *world { return &world{steps: longChain(700), do: refusing("s0699")} }, nil},
	"looked-at-first": {func() *world {
		return &world{steps: preflighted(chain("a", "b", "c"), "a", "c"), do: refusing("c")}
	}, nil},
	"refused-at-first": {func() *world {
		return &world{steps: preflighted(chain("a", "b"), "b"), preflight: refuses("b", "path: it is outside")}
	}, nil},
	"committed": {func() *world { return &world{steps: chain("a", "b", "c")} }, nil},
	"failed":    {func() *world { return &world{steps: chain("a", "b", "c"), do: refusing("c")} }, nil},
	"side-by-side": {func() *world {
		steps := chain("a", "b", "c")
		steps[1].Needs = nil
		steps[2].Needs = []string{"a", "b"}
		return &world{steps: steps, do: refusing("c")}
	}, nil},
	"refused": {func() *world {
		return &world{refuse: temporal.NewNonRetryableApplicationError("task:1:1: name: missing", string(activities.Refused),
			nil)}
	}, nil},
	"approved": {
		func() *world { return &world{steps: addGate(chain("a", "b"), "b", time.Hour)} },
		func(l *live) { l.approve() },
	},
	"approved-by-two": {
		func() *world { return asksTwo(&world{steps: addGate(chain("a", "b"), "b", time.Hour)}) },
		func(l *live) {
			l.approve()
			g := l.awaitState(func(s protocol.State) bool { return len(s.Gates) == 1 && len(s.Gates[0].Assents) == 1 }).Gates[0]
			for _, who := range []string{"mallory", "cy"} {
				l.sendSignal(protocol.SignalApprove, protocol.Decision{Step: g.Step, Digest: g.Digest, Who: who})
			}
		},
	},
	"rejected": {
		func() *world { return &world{steps: addGate(chain("a", "b"), "b", time.Hour)} },
		func(l *live) {
			g := l.awaitState(atGate).Gates[0]
			l.sendSignal(protocol.SignalApprove, protocol.Decision{Step: g.Step, Digest: "sha256:another"})
			l.sendSignal(protocol.SignalReject, protocol.Decision{Step: g.Step, Digest: g.Digest, Who: "ann"})
		},
	},
	"canceled": {
		func() *world { return &world{steps: chain("a", "b"), do: blockAt("b", never)} },
		func(l *live) {
			l.awaitCalls("do b", 1)
			require.NoError(l, l.client.CancelWorkflow(l.Context(), l.run.GetID(), ""))
		},
	},
	"deadline": {func() *world {
		return &world{steps: chain("a", "b"), do: blockAt("b", never), deadline: time.Second}
	}, nil},
	"parked-and-resolved": {
		func() *world {
			w := &world{steps: chain("a", "b", "c"), do: refusing("c")}
			w.undo = func(step string, n int, d activities.Decision) (activities.Undone, error) {
				switch {
				case step == "b" && d.Force == "":
					return activities.Undone{Outcome: activities.Drifted,
						Drift: &activities.Drift{Digest: "sha256:drift", Diff: "+x"}}, nil
				case step == "a" && n == 1:
					return activities.Undone{}, errors.New("once")
				}
				return activities.Undone{Outcome: activities.Restored}, nil
			}
			return w
		},
		func(l *live) { l.resolve(compensations.Force) },
	},
	"reset": {
		func() *world { return &world{steps: chain("a", "b", "c"), do: blockAt("c", never)} },
		func(l *live) { l.awaitCalls("do c", 1); l.resetTo(1) },
	},
	"measured": {func() *world { // the steps that are to come fill what can be carried, unless they are compressed
		steps := chain("a", "b")
		for i := range 17 {
			steps = append(steps, chain("b", fmt.Sprint("wide", i))[1])
			steps[i+2].With = json.RawMessage(`{"content": "` + strings.Repeat("x", 62_000) + `"}`)
		}
		return &world{steps: steps, do: refusing("b")}
	}, nil},
	"reset-at-a-gate": { // reset is of before a run unwound as soon as it was reset
		func() *world { return &world{steps: addGate(chain("a", "b"), "b", time.Hour)} },
		func(l *live) { l.sendIgnored(); l.resetTo(-1) },
	},
}

func refusing(step string) func(context.Context, string, int, activities.Forward) (activities.Result, error) {
	return func(_ context.Context, s string, _ int, _ activities.Forward) (activities.Result, error) {
		if s == step {
			return activities.Result{}, activities.Errorf(activities.CheckFailed, "no")
		}
		return activities.Result{Summary: "did it", Outputs: map[string]any{"id": 7}}, nil
	}
}
