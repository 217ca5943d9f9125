package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

var statuses = []string{
	string(compensations.Open), string(compensations.Committed), string(compensations.Unwound), string(compensations.Remains),
	string(compensations.Partly), string(compensations.Redone),
}

func (p *program) list() *cobra.Command {
	var f filter
	c := &cobra.Command{
		Use:     "list",
		GroupID: groupTasks,
		Short:   "List tasks, the newest first",
		Long: `List prints the tasks of the namespace that the Temporal server still keeps, with their recoveries, rollbacks and redos. The
columns come from search attributes, which lag by about a second.

` + exitStatuses,
		Example: `  starter list
  starter list --gate                              # those that wait for a person
  starter list --status unwound-with-remains --agent release-bot`,
		Args: nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.status != "" && !slices.Contains(statuses, f.status) {
				return usagef("--status %q: give one of %s", f.status, strings.Join(statuses, ", "))
			}
			if f.limit < 1 {
				return usagef("--limit %d: give at least 1", f.limit)
			}
			c, err := p.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			tasks, more, err := c.tasks(cmd.Context(), f)
			if err != nil {
				return err
			}
			if len(tasks) == 0 {
				p.printf("no matching tasks in namespace %s of %s\n", c.Namespace, c.Address)
				return nil
			}
			p.listTasks(tasks)
			if more {
				p.printf("... more; see them with --limit\n")
			}
			return nil
		},
	}
	c.Flags().StringVar(&f.status, "status", "", "only tasks of this `status`: "+strings.Join(statuses, ", "))
	c.Flags().StringVar(&f.agent, "agent", "", "only tasks of this agent, by its `name`")
	c.Flags().BoolVar(&f.gate, "gate", false, "only tasks that wait at a gate")
	c.Flags().IntVar(&f.limit, "limit", 50, "list at most `n`")
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// filter says which tasks are listed.
type filter struct {
	status, agent string
	gate          bool
	limit         int
	// types are the workflow types; none: all of recovery.Types.
	types []string
	// dead leaves only those that ended without unwinding.
	dead bool
}

func (f filter) query() string {
	types := f.types
	if len(types) == 0 {
		types = recovery.Types
	}
	parts := []string{"WorkflowType IN ('" + strings.Join(types, "', '") + "')"}
	if f.status != "" {
		parts = append(parts, fmt.Sprintf("%s = %s", workflows.AttributeStatus.GetName(), literal(f.status)))
	}
	if f.agent != "" {
		parts = append(parts, fmt.Sprintf("%s = %s", workflows.AttributeAgent.GetName(), literal(f.agent)))
	}
	if f.gate {
		// A task that was ended from outside keeps its attributes: it waits for nobody.
		parts = append(parts, workflows.AttributeGate.GetName()+" IS NOT NULL", "ExecutionStatus = 'Running'")
	}
	if f.dead {
		parts = append(parts, workflows.AttributeStatus.GetName()+" = 'open'", "ExecutionStatus IN ('Terminated', 'TimedOut', 'Failed', 'Canceled')")
	}
	return strings.Join(parts, " AND ")
}

// literal is a string of a visibility query.
func literal(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// maxPage is the largest page that every Temporal server gives.
const maxPage = 1000

// tasks lists at most f.limit tasks, and says whether there are more.
func (c *connection) tasks(ctx context.Context, f filter) (found []*workflowpb.WorkflowExecutionInfo, more bool, err error) {
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: c.Namespace, Query: f.query(), PageSize: int32(min(f.limit, maxPage))} //nolint:gosec // at most maxPage
	for {
		page, err := c.ListWorkflow(ctx, request)
		if err != nil {
			return nil, false, c.lacksAttributes(ctx, fmt.Errorf("list tasks: %w", err))
		}
		found = append(found, page.Executions...)
		if len(found) >= f.limit || len(page.NextPageToken) == 0 {
			return found[:min(len(found), f.limit)], len(found) > f.limit || len(page.NextPageToken) > 0, nil
		}
		request.NextPageToken = page.NextPageToken
	}
}

func (p *program) listTasks(tasks []*workflowpb.WorkflowExecutionInfo) {
	t := table{}
	t.row("ID", "STATUS", "WAITS FOR", "AGENT", "STARTED", "TOOK")
	for _, e := range tasks {
		started, spent := e.GetStartTime().AsTime(), ""
		if e.GetCloseTime() != nil {
			spent = took(e.GetCloseTime().AsTime().Sub(started))
		}
		t.row(e.GetExecution().GetWorkflowId(), listedStatus(e), waitsFor(e), attribute(e, workflows.AttributeAgent),
			clock(started, "2006-01-02 15:04:05"), spent)
	}
	t.write(p.streams.Out)
}

// listedStatus is the task's status; with how its run ended where the task could not say so itself.
func listedStatus(e *workflowpb.WorkflowExecutionInfo) string {
	status := attribute(e, workflows.AttributeStatus)
	if status == "" {
		status = "?"
	}
	switch e.Status {
	case enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		return status + ", terminated"
	case enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return status + ", timed out"
	}
	return status
}

func waitsFor(e *workflowpb.WorkflowExecutionInfo) string {
	if e.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return ""
	}
	if step := attribute(e, workflows.AttributeGate); step != "" {
		return "gate of " + step
	}
	var pending int64
	if payload := e.GetSearchAttributes().GetIndexedFields()[workflows.AttributePending.GetName()]; payload != nil {
		_ = converter.GetDefaultDataConverter().FromPayload(payload, &pending)
	}
	if pending > 0 {
		return fmt.Sprintf("%d undos", pending)
	}
	return ""
}

func attribute(e *workflowpb.WorkflowExecutionInfo, key temporal.SearchAttributeKeyKeyword) string {
	var v string
	if payload := e.GetSearchAttributes().GetIndexedFields()[key.GetName()]; payload != nil {
		_ = converter.GetDefaultDataConverter().FromPayload(payload, &v)
	}
	return v
}
