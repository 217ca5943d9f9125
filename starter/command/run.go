package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

func (p *program) run() *cobra.Command {
	var f struct {
		checking
		id, agent, queue string
		watch            bool
	}
	c := &cobra.Command{
		Use:     "run FILE",
		GroupID: groupTasks,
		Short:   "Run a task",
		Long: `Run starts the task of a file (- is the standard input) and prints its id.

An id is used once: the same file run twice is two tasks, under two ids. With --watch, run follows the task until its
end, like "starter watch"; without it, run returns as soon as a worker has accepted the task, or after 5 s without one.

` + howChecked + "\n\n" + exitStatuses,
		Example: `  starter run release.yaml
  starter run release.yaml --watch --var version=1.4.2
  starter run release.yaml --id release-1.4.2 --agent release-bot`,
		Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := p.read(args[0], f.checking)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			c, err := p.connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			t, err := c.start(ctx, file, startOptions{id: f.id, agent: f.agent, queue: f.queue})
			if err != nil {
				return err
			}
			p.printf("task %s\n", t.ID)
			if link := c.link(t.ID, t.RunID); link != "" {
				p.printf("see  %s\n", link)
			}
			if f.watch {
				return p.follow(ctx, c, t)
			}
			taken, err := c.accepted(ctx, t)
			if err != nil {
				return err
			}
			if !taken {
				fmt.Fprintf(p.streams.Err, "the task is started, but waits: %s\n", noWorkerFor(t))
			}
			p.printf("follow it:          starter watch %s\n", quoted(t.ID))
			for _, s := range file.compiled.Steps {
				if s.Gate.Plans {
					p.printf("approve at a gate:  starter approve %s STEP\n", quoted(t.ID))
					break
				}
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "follow the task until its end")
	c.Flags().StringVar(&f.id, "id", "", "`id` of the task (default its name with a random end)")
	c.Flags().StringVar(&f.agent, "agent", "", "`name` of the agent that runs it, for lists")
	c.Flags().StringVar(&f.queue, "queue", "", "shared task `queue` of the workers (default UNWIND_QUEUE, else unwind)")
	return c
}

type startOptions struct{ id, agent, queue string }

// maxID is the longest workflow id that every Temporal server takes.
const maxID = 255

// start starts a task. It carries no timeout, retry or schedule of Temporal's: those would end it, or run it again, with
// no undo.
func (c *connection) start(ctx context.Context, file taskFile, o startOptions) (taskRun, error) {
	name := file.compiled.Name
	if o.id == "" {
		o.id = newID(name)
	}
	if len(o.id) > maxID || printable(o.id) != o.id {
		return taskRun{}, usagef("--id %q: give at most %d bytes, all printable", clipped(printable(o.id), 40), maxID)
	}
	if o.agent == "" {
		o.agent = file.compiled.Agent
	}
	if o.queue == "" {
		o.queue = sharedQueue()
	}
	attributes := []temporal.SearchAttributeUpdate{workflows.AttributeStatus.ValueSet(string(compensations.Open))}
	if o.agent != "" {
		attributes = append(attributes, workflows.AttributeAgent.ValueSet(o.agent))
	}
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: o.id, TaskQueue: o.queue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		TypedSearchAttributes:                    temporal.NewSearchAttributes(attributes...),
		StaticSummary:                            clipped(oneLine(name)+agentSuffix(o.agent), maxSummary),
		StaticDetails:                            details(file),
	}, workflows.AgentTaskType, file.document)
	var taken *serviceerror.WorkflowExecutionAlreadyStarted
	var unknown *serviceerror.InvalidArgument
	switch {
	case errors.As(err, &taken):
		return taskRun{}, usagef("--id %q is taken: an id is used once; use another --id, or see what became of that task with `starter show %s`", o.id, quoted(o.id))
	case errors.As(err, &unknown) && strings.Contains(err.Error(), "Unwind"):
		return taskRun{}, c.lacksAttributes(ctx, err)
	case err != nil:
		return taskRun{}, fmt.Errorf("start task %s: %w", o.id, err)
	}
	return taskRun{
		ID: o.id, RunID: run.GetRunID(), Type: workflows.AgentTaskType, Name: name, Agent: o.agent, Queue: o.queue,
		Status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, Started: time.Now(),
	}, nil
}

// maxSummary keeps a summary below the server's 400 bytes, whatever its letters.
const maxSummary = 100

// agentSuffix is what stands behind a task's name in its summary.
func agentSuffix(agent string) string {
	if agent == "" {
		return ""
	}
	return " (agent " + oneLine(agent) + ")"
}

// details is the task as the Temporal UI shows it from the start, as Markdown.
func details(file taskFile) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**\n\n", oneLine(file.compiled.Name))
	const most = 50
	for i, s := range file.compiled.Steps {
		if i == most {
			fmt.Fprintf(&b, "- ... %d more\n", len(file.compiled.Steps)-most)
			break
		}
		fmt.Fprintf(&b, "- `%s` %s\n", s.ID, s.Uses)
	}
	return b.String()
}

var notInID = regexp.MustCompile(`[^a-z0-9]+`)

// newID is the task's name, as far as it goes into an id, with a random end.
func newID(name string) string {
	base := strings.Trim(notInID.ReplaceAllString(strings.ToLower(name), "-"), "-")
	base = strings.Trim(base[:min(len(base), 40)], "-")
	end := strings.ToLower(rand.Text()[:8])
	if base == "" {
		return "task-" + end
	}
	return base + "-" + end
}

// acceptLimit is how long run waits for a worker to look at the task.
const acceptLimit = 5 * time.Second

// accepted waits until a worker has checked the task: false where none does. What it refused is an error.
func (c *connection) accepted(ctx context.Context, t taskRun) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, acceptLimit)
	defer cancel()
	for limited.Err() == nil {
		s, err := c.state(limited, t.ID, t.RunID)
		if err == nil && s.Phase != workflows.Compiling {
			if s.Phase == workflows.Closed && len(s.Steps) == 0 && s.Cause != nil {
				return true, usagef("task %s was refused: %s", t.ID, s.Cause.Text)
			}
			return true, nil
		}
		pause(limited, 50*time.Millisecond)
	}
	return false, ctx.Err()
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
