package environments

import (
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// keeper has one environment.
type keeper struct {
	environment.Document
	home   string
	stored []environment.Stored // the newest first
	isRead bool                 // stored is what the host has
	rolled environment.Rollbacks
	doing  *environment.Operation
	going  *going // the rollback that is under way
	closed bool
}

// Environment has one environment until it is removed.
func Environment(ctx workflow.Context, start environment.Start) error {
	if err := start.Document.Check(); err != nil {
		return protocol.Refusef("%v", err)
	}
	k := &keeper{Document: start.Document, home: start.Home, rolled: start.Rollbacks}
	if err := k.serve(ctx); err != nil {
		return err
	}
	if err := k.read(ctx); err != nil {
		return err
	}
	leaves := func() bool {
		return k.closed || workflow.GetInfo(ctx).GetContinueAsNewSuggested() && k.doing == nil
	}
	if err := workflow.Await(ctx, func() bool { return leaves() && workflow.AllHandlersFinished(ctx) }); err != nil {
		return err
	}
	if k.closed {
		return nil
	}
	return workflow.NewContinueAsNewError(ctx, environment.WorkflowType, environment.Start{Document: k.Document,
		Home: k.home, Rollbacks: k.rolled})
}

// serve answers what is asked of the environment.
func (k *keeper) serve(ctx workflow.Context) error {
	if err := workflow.SetQueryHandler(ctx, environment.QueryView,
		func() (environment.View, error) { return k.view(), nil }); err != nil {
		return err
	}
	for _, update := range []struct { // in this order: what has come already is taken as its handler is set
		name    string
		handler any
	}{
		{environment.UpdateApply, k.apply}, {environment.UpdateCheckpoint, k.checkpoint},
		{environment.UpdateRollback, k.rollBack}, {environment.UpdateCompare, k.compare}, {environment.UpdatePin, k.pin},
		{environment.UpdateDelete, k.delete}, {environment.UpdateLetGo, k.letGo}, {environment.UpdatePrune, k.prune},
		{environment.UpdateRemove, k.remove}, {environment.UpdateTasks, k.tasks},
		{environment.UpdatePast, k.pastAgain},
	} {
		if err := workflow.SetUpdateHandler(ctx, update.name, update.handler); err != nil {
			return err
		}
	}
	return nil
}

func (k *keeper) view() environment.View {
	v := environment.View{Document: k.Document, Host: k.home, Doing: k.doing, Checkpoints: []environment.Checkpoint{},
		Rollbacks: k.rolled}
	for _, s := range k.stored {
		v.Checkpoints = append(v.Checkpoints, s.Checkpoint)
	}
	v.Usage = k.Retention.UsageOf(v.Checkpoints)
	return v
}

// read finds the host of the environment, and reads what it has stored.
func (k *keeper) read(ctx workflow.Context) error {
	isNew := k.home == ""
	if isNew {
		k.home = k.On
	}
	k.doing = &environment.Operation{What: "read the list of checkpoints from the host", Since: workflow.Now(ctx)}
	if k.home == "" {
		if err := k.call(ctx, "", "find a host", environment.HomeActivity, nil, &k.home); err != nil {
			return err
		}
	}
	if err := k.update(ctx, "list the checkpoints", environment.ListActivity, k.Name); err != nil {
		return err
	}
	if isNew && len(k.stored) > 0 { // another workflow has had it, and its rollbacks went with that one
		k.rolled = environment.Rollbacks{Since: workflow.Now(ctx)}
	}
	k.isRead, k.doing = true, nil
	k.show(ctx)
	return nil
}

// call runs an activity on a host, or on any worker, until it has succeeded.
func (k *keeper) call(ctx workflow.Context, host, summary, activity string, argument, result any) error {
	return k.callWithin(ctx, 0, host, summary, activity, argument, result)
}

// callWithin is call, which gives up after a time; 0: never.
func (k *keeper) callWithin(ctx workflow.Context, limit time.Duration, host, summary, activity string,
	argument, result any) error {
	options := workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: time.Minute, Summary: summary, ScheduleToCloseTimeout: limit,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	}
	if host != "" {
		options.TaskQueue = task.HostQueue(workflow.GetInfo(ctx).TaskQueueName, host)
	}
	var arguments []any
	if argument != nil {
		arguments = append(arguments, argument)
	}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), activity, arguments...).Get(ctx, result)
}

// update runs an activity on the host of the environment that returns the list of its checkpoints.
// The list is decoded anew: into the former, it would be mixed with it, and with what was taken from
// it.
func (k *keeper) update(ctx workflow.Context, summary, activity string, argument any) error {
	var stored []environment.Stored
	err := k.call(ctx, k.home, summary, activity, argument, &stored)
	if err == nil {
		k.stored = stored
		k.rolled.Add(stored)
	}
	return err
}

// begin lets one operation at a time touch the environment.
func (k *keeper) begin(ctx workflow.Context, what, task string) (end func(), err error) {
	isSame := func() bool { return task != "" && k.doing != nil && k.doing.Task == task } // the call was repeated
	if err := workflow.Await(ctx, func() bool { return k.isRead && !isSame() }); err != nil {
		return nil, err
	}
	switch {
	case k.closed:
		return nil, protocol.RefuseRequestf(environment.Unknown, "environment %s was removed", k.Name)
	case k.doing != nil:
		return nil, protocol.RefuseRequestf(environment.Busy, "environment %s is busy since %s: %s; wait until that is over",
			k.Name, k.doing.Since.UTC().Format(time.RFC3339), k.doing.What)
	}
	k.doing = &environment.Operation{What: what, Task: task, Since: workflow.Now(ctx)}
	k.show(ctx)
	return func() {
		k.doing = nil
		k.show(ctx)
	}, nil
}

// find finds a checkpoint.
func (k *keeper) find(id string) (environment.Stored, error) {
	i := slices.IndexFunc(k.stored, func(s environment.Stored) bool { return s.ID == id })
	if i < 0 {
		return environment.Stored{}, protocol.RefuseRequestf(environment.Unknown, "environment %s has no checkpoint %s",
			k.Name, id)
	}
	return k.stored[i], nil
}

// show writes the current details, for the Temporal UI.
func (k *keeper) show(ctx workflow.Context) {
	var b strings.Builder
	if k.doing != nil {
		fmt.Fprintf(&b, "**%s**\n\n", k.doing.What)
	}
	const most = 20
	for i, s := range k.stored {
		if i == most {
			fmt.Fprintf(&b, "- and %s more\n", activities.CountOf(len(k.stored)-most, "checkpoint"))
			break
		}
		pin := ""
		if s.Pinned {
			pin = ", pinned"
		}
		fmt.Fprintf(&b, "- `%s` %s, %s%s %s\n", s.ID, s.Created.UTC().Format(time.DateTime), s.Trigger, pin, s.Notes)
	}
	workflow.SetCurrentDetails(ctx, b.String())
}

// hostPatience is how long to wait for the worker of a host that has some of the parts.
const hostPatience = 10 * time.Minute

// awaitHosts waits, before anything is touched, until the workers of all other hosts answer: a task
// that waits for one of them later may have stopped the unit.
func (k *keeper) awaitHosts(ctx workflow.Context) error {
	what := k.doing.What
	for _, host := range k.Hosts(k.home) {
		k.doing.What = what + ": it waits for host " + host
		k.show(ctx)
		var is string
		if err := k.callWithin(ctx, hostPatience, host, "wait for host "+host, environment.HomeActivity, nil,
			&is); err != nil {
			return protocol.RefuseRequestf(environment.Failed,
				"host %s has not answered for %s, and nothing was touched: start its worker, and try again", host, hostPatience)
		}
	}
	k.doing.What = what
	k.show(ctx)
	return nil
}

// run runs a task of the environment, and reads what its steps have done.
func (k *keeper) run(ctx workflow.Context, id, agent string, document []byte) (steps []environment.Done, err error) {
	if err := k.awaitHosts(ctx); err != nil {
		return nil, err
	}
	child := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: id, WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL, WaitForCancellation: true,
		TypedSearchAttributes: protocol.ServingAttributes(agent, id), Memo: protocol.NameMemo(k.doing.What),
		StaticSummary: k.doing.What,
	}), protocol.AgentTaskType, rawJSON(document))
	var report compensations.Report
	err = child.Get(ctx, &report)
	if temporal.IsWorkflowExecutionAlreadyStartedError(err) { // an id is used once: it ends as it has ended
		err = k.call(ctx, "", "read how "+id+" has ended", environment.EndActivity, id, &report)
	}
	if err != nil {
		return nil, protocol.RefuseRequestf(environment.Failed, "task %s: %s; see `starter show %s`", id,
			compensations.Reason(err), id)
	}
	if !environment.IsDone(report) {
		return nil, protocol.RefuseRequestf(environment.Failed, "task %s is %s; see `starter show %s`", id, report.Status, id)
	}
	return steps, k.call(ctx, "", "read what "+id+" has done", environment.DoneActivity, id, &steps)
}
