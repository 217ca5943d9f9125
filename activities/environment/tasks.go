package environment

import (
	"context"
	"fmt"

	"github.com/seed-62bf7108/unwind/activities"
)

// TasksAction is the look for tasks, which is no step of any task but of the rollbacks of
// environments.
const TasksAction = "environment.tasks"

// tasks is environment.tasks. It changes nothing.
type tasks struct{ *world }

type tasksParams struct {
	Environment string `json:"environment" jsonschema:"the name of the environment"`
}

func (*tasks) Spec() activities.Spec {
	return activities.Spec{
		Name: TasksAction,
		Summary: "Fails where a task that has not ended has changed what a rollback puts back. It is a step of the " +
			"rollbacks of environments, right before the unit is stopped, and of no other task.",
		Params:     activities.ParamsSchema[tasksParams](),
		Outputs:    map[string]string{"past": "how many tasks have made changes that the rollback takes back"},
		UndoParams: []string{"environment"}, HostBound: true, ReadOnly: true, Risk: activities.Low,
		Strategy: activities.NoUndo, Undo: "it changes nothing.",
	}
}

func (*tasks) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := activities.DecodeParams[tasksParams](s.With)
	return activities.Change{
		Summary: "look for tasks that have changed environment " + p.Environment, Strategy: activities.NoUndo,
		Undo: "it changes nothing", Risk: activities.Low, Unchanged: true, Keys: []string{key(p.Environment)},
		Digest: activities.DigestOf(s.With),
	}, err
}

func (a *tasks) Apply(ctx context.Context, _ activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	p, err := activities.DecodeParams[tasksParams](s.With)
	if err != nil {
		return r, err
	}
	if want != "" && want != activities.DigestOf(s.With) {
		return r, activities.Errorf(activities.StaleApproval, "the environment is not the one that was approved")
	}
	past, err := a.Keeper.Past(ctx, p.Environment, activities.OwnerOf(ctx).Workflow)
	if err != nil {
		return r, err
	}
	return activities.Result{
		Summary: fmt.Sprintf("no task that has not ended has changed environment %s; changes of %s are taken back",
			p.Environment, activities.CountOf(past, "task")),
		Outputs: map[string]any{"past": past},
	}, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{})
}

func (*tasks) Undo(context.Context, activities.Entry, activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Nothing, Observed: "it changed nothing"}, nil
}

func (*tasks) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsBefore, Detail: "it changes nothing"}, nil
}

func (*tasks) Release(context.Context, activities.Entry) error { return nil }
