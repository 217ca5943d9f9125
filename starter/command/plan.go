package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows"
)

func (p *program) plan() *cobra.Command {
	var f struct {
		checking
		queue string
	}
	output := outputFlag("text")
	c := &cobra.Command{
		Use:     "plan FILE",
		GroupID: groupLook,
		Short:   "Show what a task would do, and how each step would be undone",
		Long: `Plan has a worker plan every step of a task file (- is the standard input) against the world as it is, and touches nothing.
For each step it prints the change, its diff, the risk, how it would be undone, what an undo would not bring back, and
whether a person would be asked. What depends on the outputs of earlier steps cannot be known before they have run.

` + howChecked + "\n\n" + exitStatuses,
		Example: `  starter plan release.yaml
  starter plan release.yaml -o json | jq '.steps[] | select(.asks)'`,
		Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := p.read(args[0], f.checking)
			if err != nil {
				return err
			}
			c, err := p.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			if f.queue == "" {
				f.queue = sharedQueue()
			}
			plan, err := c.plan(cmd.Context(), file, f.queue, p.streams.Err)
			if err != nil {
				return err
			}
			if output == "json" {
				return p.printJSON(plan)
			}
			writePlan(p.streams.Out, plan)
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.queue, "queue", "", "shared task `queue` of the workers (default UNWIND_QUEUE, else unwind)")
	output.add(c)
	return c
}

// plan runs PlanTask. Interrupted, it cancels it, which clears what planning left.
func (c *connection) plan(ctx context.Context, file taskFile, queue string, log io.Writer) (workflows.Plan, error) {
	var plan workflows.Plan
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: "plan-" + newID(file.compiled.Name), TaskQueue: queue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            clipped("plan: "+oneLine(file.compiled.Name), maxSummary),
	}, workflows.PlanTaskType, file.document)
	if err != nil {
		return plan, fmt.Errorf("start the plan: %w", err)
	}
	slow := time.AfterFunc(acceptLimit, func() {
		if !c.polled(ctx, queue) {
			fmt.Fprintf(log, "waiting: %s\n", noWorkerFor(taskRun{Queue: queue}))
		}
	})
	defer slow.Stop()
	err = run.Get(ctx, &plan)
	if ctx.Err() != nil {
		calm, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectLimit)
		defer cancel()
		_ = c.CancelWorkflow(calm, run.GetID(), run.GetRunID())
		return plan, ctx.Err()
	}
	if refused, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		if refused.Type() == string(activities.Refused) {
			return plan, usagef("the worker refused the task: %s", refused.Message())
		}
		return plan, fmt.Errorf("plan: %s: %s", refused.Type(), refused.Message())
	}
	return plan, err
}

// polled says whether a worker polls a queue.
func (c *connection) polled(ctx context.Context, queue string) bool {
	d, err := c.DescribeTaskQueue(ctx, queue, enumspb.TASK_QUEUE_TYPE_WORKFLOW)
	return err == nil && len(d.GetPollers()) > 0
}

func writePlan(w io.Writer, plan workflows.Plan) {
	fmt.Fprintf(w, "plan of %q: %s, nothing was touched\n", plan.Name, count(len(plan.Steps), "step"))
	for i, s := range plan.Steps {
		fmt.Fprintf(w, "\n%d. %s  %s", i+1, s.ID, s.Uses)
		if s.Host != "" {
			fmt.Fprintf(w, "  on host %s", s.Host)
		}
		if s.Name != "" {
			fmt.Fprintf(w, "  (%s)", oneLine(s.Name))
		}
		fmt.Fprintln(w)
		if len(s.Needs) > 0 {
			fmt.Fprintf(w, "  needs     %s\n", strings.Join(s.Needs, ", "))
		}
		if s.Change != nil {
			writeChange(w, *s.Change)
		} else {
			fmt.Fprintf(w, "  unknown   %s\n", oneLine(s.Unknown))
		}
		switch {
		case s.Asks != "":
			fmt.Fprintf(w, "  asks      a person, because %s\n", oneLine(s.Asks))
		case s.Change != nil:
			fmt.Fprintf(w, "  asks      nobody\n")
		}
	}
}
