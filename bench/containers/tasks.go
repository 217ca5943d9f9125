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
	"github.com/seed-62bf7108/unwind/workflows"
)

const queue = "bench"

// tasks is a Temporal server with a worker that runs commands in containers.
type tasks struct {
	server *devserver.Server
	client client.Client
	worker *host.Worker
	dir    string
	count  int
}

// startTasks starts a server, and a worker for the engine at address that takes layers where a container can have some.
func startTasks(ctx context.Context, address string) (t *tasks, err error) {
	t = &tasks{}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if t.dir, err = os.MkdirTemp("", "unwind-bench-"); err != nil {
		return t, err
	}
	if t.server, err = devserver.Start(ctx, devserver.Options{DB: filepath.Join(t.dir, "temporal.db"), Log: os.Stderr}); err != nil {
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
	t.worker, err = host.Start(ctx, host.Config{Host: "bench", Queue: queue, State: state}, host.Options{
		Client: t.client, Namespace: "default", Worlds: []activities.World{world},
	})
	return t, err
}

func (t *tasks) close() {
	if t.worker != nil {
		t.worker.Stop()
	}
	if t.client != nil {
		t.client.Close()
	}
	if t.server != nil {
		_ = t.server.Stop()
	}
	_ = os.RemoveAll(t.dir)
}

// taskRun is what a task has taken, in milliseconds.
type taskRun struct {
	// wall is from asking for the task until its result is there.
	wall float64
	// forwards are the commands' activities, each from when it was scheduled to its end.
	forwards []float64
	// unwinding is from when the first undo was scheduled to the end of the last; undos is how many there were.
	unwinding float64
	undos     int
}

// run runs a task of n commands in a container. With fails it has one more step, which changes nothing and fails, so that all
// of them are undone.
func (t *tasks) run(ctx context.Context, in string, n int, fails bool) (taskRun, error) {
	steps := make([]map[string]any, 0, n+1)
	for i := range n {
		steps = append(steps, execStep(fmt.Sprintf("step-%d", i), in, fmt.Sprintf("echo %d >/written", i)))
	}
	if fails {
		steps = append(steps, execStep("fails", "unwind-bench-no-such-container", "exit 1"))
	}
	t.count++
	id := fmt.Sprintf("bench-%d", t.count)
	began := time.Now()
	run, err := t.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: queue, TypedSearchAttributes: workflows.OpenAttributes("bench"),
	}, workflows.AgentTaskType, map[string]any{"name": "bench", "agent": "bench", "steps": steps})
	if err != nil {
		return taskRun{}, err
	}
	err = run.Get(ctx, nil)
	took := taskRun{wall: milliseconds(time.Since(began))}
	if fails != (err != nil) {
		return took, fmt.Errorf("task %s should have ended otherwise: %w", id, errors.Join(err, errors.New("see its history")))
	}
	if err := t.read(ctx, id, &took); err != nil {
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

// read fills in what the histories of a task tell.
func (t *tasks) read(ctx context.Context, id string, took *taskRun) error {
	scheduled := map[int64]*historypb.HistoryEvent{}
	var first, last time.Time
	history := t.client.GetWorkflowHistory(ctx, id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		e, err := history.Next()
		if err != nil {
			return err
		}
		if e.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED {
			scheduled[e.GetEventId()] = e
		}
		began, ended := scheduled[e.GetActivityTaskCompletedEventAttributes().GetScheduledEventId()], e.GetEventTime().AsTime()
		if began == nil {
			continue
		}
		at := began.GetEventTime().AsTime()
		switch began.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() {
		case "container.exec":
			took.forwards = append(took.forwards, milliseconds(ended.Sub(at)))
		case "container.exec.undo":
			if took.undos++; first.IsZero() {
				first = at
			}
			last = ended
			if err := clean(e); err != nil {
				return err
			}
		}
	}
	took.unwinding = milliseconds(last.Sub(first))
	return nil
}

// clean refuses to measure an undo that did not bring everything back.
func clean(e *historypb.HistoryEvent) error {
	var undone activities.Undone
	if err := json.Unmarshal(e.GetActivityTaskCompletedEventAttributes().GetResult().GetPayloads()[0].GetData(), &undone); err != nil {
		return err
	}
	switch undone.Outcome {
	case activities.Restored, activities.Compensated, activities.Nothing:
		return nil
	}
	return fmt.Errorf("an undo has ended as %s: %s", undone.Outcome, undone.Observed)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
