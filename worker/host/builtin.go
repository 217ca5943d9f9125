package host

import (
	"context"
	"encoding/json"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// builtin holds the activities that belong to no world.
type builtin struct {
	server    recovery.Server
	converter converter.DataConverter
	registry  *activities.Registry
	config    Config
	// retention is how long the namespace keeps closed workflows; 0 means for ever.
	retention time.Duration
}

// host is what this worker offers its actions.
func (b builtin) host() activities.Host {
	return activities.Host{Secrets: taskSecrets{b.config}, CheckCommands: b.config.CheckCommands}
}

func (b builtin) register(to activities.Registrar) {
	for name, fn := range map[string]any{
		workflows.CompileActivity: b.compile, workflows.PlacesActivity: b.places, workflows.LedgerActivity: b.ledger,
		workflows.RedoableActivity: b.redoable,
		workflows.SweepActivity:    b.sweep, workflows.RetainActivity: b.retain, workflows.AlertActivity: b.alert,
	} {
		to.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
}

// compile checks a task document with the same code as the starter.
func (b builtin) compile(ctx context.Context, doc json.RawMessage) (task.Compiled, error) {
	parsed, err := task.Parse("task", doc)
	if err != nil {
		return task.Compiled{}, nonRetryable(err)
	}
	catalog := Catalog(ctx, b.config, b.registry)
	catalog.Retention = b.retention
	compiled, err := task.Compile(parsed, catalog)
	if err != nil {
		return task.Compiled{}, nonRetryable(err)
	}
	return *compiled, nil
}

func nonRetryable(err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), string(activities.Refused), nil)
}

// Catalog is what this worker's tasks are compiled against.
func Catalog(ctx context.Context, c Config, r *activities.Registry) task.Catalog {
	journals, _ := r.Journals(ctx) // damaged journals are reported by places
	return task.Catalog{
		Specs: r.Specs(), Host: c.Host, SharedQueue: c.Queue, Journals: journals,
		Secrets:  c.taskSecretNames(),
		Defaults: task.Defaults{Heartbeat: c.Heartbeat, HostWait: c.HostWait},
	}
}

func (b builtin) places(ctx context.Context) (workflows.Places, error) {
	journals, problems := b.registry.Journals(ctx)
	return workflows.Places{Journals: journals, Problems: problems}, nil
}

// ledger rebuilds the ledger of a run from histories, for the workflow that unwinds it.
func (b builtin) ledger(ctx context.Context, r workflows.LedgerRequest) (workflows.Ledger, error) {
	defer activities.Beat(ctx)()
	info := activity.GetInfo(ctx)
	ledger, err := b.server.LedgerFor(ctx, info.WorkflowExecution.ID, info.WorkflowType.Name, r, b.converter)
	return ledger, recovery.Final(err)
}

// redoable reads what a rollback has undone, for the workflow that redoes it.
func (b builtin) redoable(ctx context.Context, r workflows.RedoRequest) (workflows.RedoInput, error) {
	defer activities.Beat(ctx)()
	before, err := b.server.RedoInput(ctx, activity.GetInfo(ctx).WorkflowExecution.ID, r, b.converter)
	return before, recovery.Final(err)
}
