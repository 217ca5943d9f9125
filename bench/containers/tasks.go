package containers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

const queue = "bench"

// tasks is a Temporal server with a worker that runs commands in containers.
type tasks struct {
	server *devserver.Server
	client client.Client
	worker *host.Worker
	dir    string
	// home names what the worker's helpers have on the engine.
	home  string
	count int
}

// preparation says whether a worker starts its helper before it has a step.
type preparation bool

const (
	prepared   preparation = true
	unprepared preparation = false
)

// startTasks starts a server, and a worker for the engine at address that takes layers where a
// container can have some.
func startTasks(ctx context.Context, address string, how preparation) (t *tasks, err error) {
	t = &tasks{}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if t.dir, err = os.MkdirTemp("", "unwind-bench-"); err != nil {
		return t, err
	}
	if t.server, err = devserver.Start(ctx,
		devserver.Options{DB: filepath.Join(t.dir, "temporal.db"), Log: os.Stderr}); err != nil {
		return t, err
	}
	options := t.server.ClientOptions()
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	if t.client, err = client.Dial(options); err != nil {
		return t, err
	}
	state := filepath.Join(t.dir, "state")
	world, err := container.New(container.Config{State: state, Host: address})
	if err != nil {
		return t, err
	}
	if how == unprepared {
		world.Prepare = nil
	}
	if t.home, err = container.Home(state); err != nil {
		return t, err
	}
	t.worker, err = host.Start(ctx, host.Config{Host: "bench", Queue: queue, State: state}, host.Options{
		Client: t.client, Namespace: "default", Worlds: []activities.World{world},
	})
	return t, err
}

// readyBox starts a worker, and an empty container in which its helper works already. end takes
// both away, also after an error.
func (r *run) readyBox(ctx context.Context) (t *tasks, id string, end func() error, err error) {
	var source string
	end = func() error {
		r.remove(id)
		var errs error
		if source != "" {
			errs = os.RemoveAll(source)
		}
		if t != nil {
			errs = errors.Join(errs, t.close())
		}
		return errs
	}
	if t, err = startTasks(ctx, r.address(), prepared); err != nil {
		t = nil // it is closed
		return t, id, end, err
	}
	if source, err = r.source(load{}); err == nil {
		id, err = r.box(ctx, r.ref, source)
	}
	if err == nil {
		_, err = t.runTask(ctx, id, 1, true)
	}
	return t, id, end, err
}

func (t *tasks) close() error {
	if t.worker != nil {
		t.worker.Stop()
	}
	if t.client != nil {
		t.client.Close()
	}
	if t.server != nil {
		_ = t.server.Stop()
	}
	return os.RemoveAll(t.dir)
}

// taskRun is what a task has taken, in milliseconds.
type taskRun struct {
	// wall is from asking for the task until its result is there.
	wall float64
	// forwards are the commands' activities, each from when it was scheduled to its end.
	forwards []float64
	// unwinding is from when the first undo was scheduled to the end of the last; undos is how many
	// there were.
	unwinding float64
	undos     int
	// commits are the commits of the task's steps, as forwards.
	commits []float64
}

// runTask runs a task of n commands in a container. With fails it has one more step, which changes
// nothing and fails, so that all of them are undone.
func (t *tasks) runTask(ctx context.Context, in string, n int, fails bool) (taskRun, error) {
	steps := make([]map[string]any, 0, n+1)
	for i := range n {
		steps = append(steps, execStep(fmt.Sprintf("step-%d", i), in, fmt.Sprintf("echo %d >/written", i)))
	}
	if fails {
		// Which container is known only when the step runs: otherwise the task would be refused before
		// its first step.
		steps = append(steps,
			execStep("fails", "unwind-bench-no-such-container-${{ steps.step-0.outputs.exit_code }}", "exit 1"))
	}
	return t.runSteps(ctx, steps, n, fails)
}

// start starts a task.
func (t *tasks) start(ctx context.Context, steps []map[string]any) (client.WorkflowRun, error) {
	t.count++
	return t.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: fmt.Sprintf("bench-%d", t.count), TaskQueue: queue,
		TypedSearchAttributes: protocol.ServingAttributes("bench", ""),
	}, protocol.AgentTaskType, map[string]any{"name": "bench", "agent": "bench", "steps": steps})
}

// open starts a task that writes /written in a container and then waits at a gate; end cancels it.
func (t *tasks) open(ctx context.Context, in string) (end func() error, err error) {
	waits := execStep("waits", in, "true")
	waits["gate"] = "ask"
	run, err := t.start(ctx, []map[string]any{execStep("writes", in, "echo open >/written"), waits})
	if err != nil {
		return nil, err
	}
	end = func() error {
		if err := t.client.CancelWorkflow(ctx, run.GetID(), ""); err != nil {
			return err
		}
		_ = run.Get(ctx, nil) // it has been canceled
		return nil
	}
	history := t.client.GetWorkflowHistory(ctx, run.GetID(), "", true, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	scheduled := map[int64]string{}
	for history.HasNext() {
		e, err := history.Next()
		if err != nil {
			return nil, errors.Join(err, end())
		}
		if e.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED {
			scheduled[e.GetEventId()] = e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName()
		}
		if scheduled[e.GetActivityTaskCompletedEventAttributes().GetScheduledEventId()] == "container.exec" {
			return end, nil
		}
	}
	return nil, errors.New("the task that was to wait at its gate has ended; see its history")
}

// runSteps runs a task of steps: n commands, and with fails one more that fails.
func (t *tasks) runSteps(ctx context.Context, steps []map[string]any, n int, fails bool) (taskRun, error) {
	began := time.Now()
	run, err := t.start(ctx, steps)
	if err != nil {
		return taskRun{}, err
	}
	id, first := run.GetID(), run.GetRunID()
	err = run.Get(ctx, nil)
	took := taskRun{wall: milliseconds(time.Since(began))}
	if fails != (err != nil) {
		return took,
			fmt.Errorf("task %s should have ended otherwise: %w", id, errors.Join(err, errors.New("see its history")))
	}
	if err := t.readTimes(ctx, id, first, &took); err != nil {
		return took, err
	}
	if fails && took.undos < n {
		return took, fmt.Errorf("task %s has %d undos of %d steps: %w", id, took.undos, n, err)
	}
	return took, nil
}

func execStep(id, in, command string) map[string]any {
	return map[string]any{"id": id, "uses": "container.exec", "with": map[string]any{"container": in, "command": command}}
}

// readTimes fills in what the histories of a task's runs tell, the first one and those that it has
// continued as.
func (t *tasks) readTimes(ctx context.Context, id, run string, took *taskRun) error {
	var first, last time.Time
	for run != "" {
		scheduled := map[int64]*historypb.HistoryEvent{}
		history := t.client.GetWorkflowHistory(ctx, id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for run = ""; history.HasNext(); {
			e, err := history.Next()
			if err != nil {
				return err
			}
			run = e.GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
			if e.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED {
				scheduled[e.GetEventId()] = e
			}
			began := scheduled[e.GetActivityTaskCompletedEventAttributes().GetScheduledEventId()]
			if began == nil {
				continue
			}
			isUndo, err := took.addActivity(began, e)
			if err != nil {
				return err
			}
			if isUndo && first.IsZero() {
				first = began.GetEventTime().AsTime()
			}
			if isUndo {
				last = e.GetEventTime().AsTime()
			}
		}
	}
	took.unwinding = milliseconds(last.Sub(first))
	return nil
}

// addActivity adds an activity that has completed, and says whether it was the undo of a command.
func (took *taskRun) addActivity(scheduled, completed *historypb.HistoryEvent) (isUndo bool, err error) {
	lasted := milliseconds(completed.GetEventTime().AsTime().Sub(scheduled.GetEventTime().AsTime()))
	switch scheduled.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() {
	case "container.exec":
		took.forwards = append(took.forwards, lasted)
	case "container.exec" + activities.CommitSuffix:
		took.commits = append(took.commits, lasted)
	case "container.exec.undo":
		took.undos++
		return true, clean(completed)
	}
	return false, nil
}

// clean refuses to measure an undo that did not bring everything back.
func clean(e *historypb.HistoryEvent) error {
	var undone activities.Undone
	if err := json.Unmarshal(e.GetActivityTaskCompletedEventAttributes().GetResult().GetPayloads()[0].GetData(),
		&undone); err != nil {
		return err
	}
	switch undone.Outcome {
	case activities.Restored, activities.Compensated, activities.Nothing:
		return nil
	}
	return fmt.Errorf("an undo has ended as %s: %s", undone.Outcome, undone.Observed)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
