package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/canonical"
	"github.com/seed-62bf7108/unwind/worker/catalog"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// builtin holds the activities that belong to no world.
type builtin struct {
	server    recovery.Server
	converter converter.DataConverter
	registry  *activities.Registry
	config    Config
	rules     activities.Rules   // nil without a policy
	signers   activities.Signers // nil without approvals
	passes    *passes
	decisions decisions
	spent     spent
	// retention is how long the namespace keeps closed workflows; 0 means for ever.
	retention time.Duration
}

// host is what this worker offers its actions.
func (b builtin) host() activities.Host {
	return activities.Host{Secrets: taskSecrets{b.config}, CheckCommands: b.config.CheckCommands,
		CheckAddresses: b.config.CheckAddresses,
		RefuseCutDiffs: b.config.CutDiffs == refuse, Floors: b.config.Gates, Purposes: purposesOf(b.config), Rules: b.rules,
		Passes: b.passes, Signers: b.signers, Decisions: b.decisions, Allowances: allowances{b}}
}

func (b builtin) register(to activities.Registrar) {
	for name, fn := range map[string]any{
		protocol.CompileActivity: b.compile, protocol.CompileStepsActivity: b.compileSteps, protocol.PlacesActivity: b.places,
		protocol.LedgerActivity:   b.ledger,
		protocol.RedoableActivity: b.redoable, protocol.PausedActivity: b.paused, protocol.HoldActivity: b.hold,
		protocol.PreflightActivity: b.preflight, protocol.ContextActivity: b.confirmContext,
		protocol.SweepActivity: b.sweep, protocol.RetainActivity: b.retain, protocol.OrphansActivity: b.orphans,
		protocol.AlertActivity: b.alert, protocol.NoticesActivity: b.sendNotices, protocol.VerifyActivity: b.verify,
		protocol.VerifyAllowanceActivity: b.verifyAllowance,
		environment.HomeActivity:         b.home, environment.DoneActivity: b.readDone,
		environment.KeepActivity: b.keepCheckpoint,
		environment.HoldActivity: b.holdParts, environment.LetGoActivity: b.letGoParts,
		environment.DropActivity: b.dropCheckpoints, environment.ListActivity: b.listCheckpoints,
		environment.EndActivity: b.readEnd, environment.AdmitActivity: b.admit,
		environment.WritesActivity: b.findWrites,
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
	compiled, err := b.compileParsed(parsed, Catalog(ctx, b.config, b.registry))
	if err == nil && compiled.Session != nil && compiled.Session.Environment != "" {
		compiled.Session.Host, err = b.findEnvironment(ctx, compiled.Session.Environment)
	}
	return compiled, err
}

// compileSteps checks steps that are added to a session.
func (b builtin) compileSteps(ctx context.Context, a task.Addition) (task.Compiled, error) {
	parsed, err := a.Parse()
	if err != nil {
		return task.Compiled{}, nonRetryable(err)
	}
	compiled, err := b.compileParsed(parsed, Catalog(ctx, b.config, b.registry))
	if err == nil {
		b.nameAdded(ctx, &compiled)
	}
	return compiled, err
}

func (b builtin) compileParsed(doc *task.Document, known task.Catalog) (task.Compiled, error) {
	known.Retention = b.retention
	compiled, err := task.Compile(doc, known)
	if err != nil {
		return task.Compiled{}, nonRetryable(err)
	}
	return *compiled, nil
}

// checkSteps checks steps before a session accepts them. It looks at no journal, since workflow
// code calls it.
func (b builtin) checkSteps(a task.Addition) error {
	parsed, err := a.Parse()
	if err != nil {
		return err
	}
	known := catalogWithoutJournals(b.config, b.registry)
	known.Retention = b.retention
	_, err = task.Compile(parsed, known)
	return err
}

func nonRetryable(err error) error {
	if problems, ok := errors.AsType[task.Problems](err); ok { // the starter knows the lines: see task.Document.Cite
		err = problems.WithoutPositions()
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), string(activities.Refused), nil)
}

// worldError is an error of a world for a history, with its type and without secrets. It is tried
// on, whatever its type.
func worldError(err error, m *activities.Masker) error {
	message := err.Error()
	if typed, ok := errors.AsType[*activities.Error](err); ok {
		message = typed.Message
	}
	return temporal.NewApplicationError(m.String(message), string(activities.TypeOf(err)))
}

// Catalog is what this worker's tasks are compiled against.
func Catalog(ctx context.Context, c Config, r *activities.Registry) task.Catalog {
	known := catalogWithoutJournals(c, r)
	known.Journals, _ = r.Journals(ctx) // damaged journals are reported by places
	return known
}

func catalogWithoutJournals(c Config, r *activities.Registry) task.Catalog {
	return task.Catalog{
		Specs: r.Specs(), Elsewhere: catalog.Specs(), Host: c.Host, SharedQueue: c.Queue,
		Secrets:  c.TaskSecrets(),
		Defaults: task.Defaults{Heartbeat: c.Heartbeat, HostWait: c.HostWait}, Signed: c.Approvals != nil,
	}
}

func (b builtin) places(ctx context.Context) (protocol.Places, error) {
	journals, problems := b.registry.Journals(ctx)
	return protocol.Places{Journals: journals, Problems: problems, Signed: b.signers != nil}, nil
}

// Bounds on looking at steps before their task begins: for one of them, and for what is found,
// which is one payload.
const (
	stepLook    = 5 * time.Second
	maxRefusals = 300
	maxTouched  = 800_000          // bytes of names; steps past that are in the order that the task file gives them
	addedLook   = 20 * time.Second // for all steps that are added to a task at once
)

// preflight looks at steps that this host would run, for as long as there is time.
func (b builtin) preflight(ctx context.Context, r protocol.PreflightRequest) (protocol.Preflight, error) {
	var seen protocol.Preflight
	names, err := canonical.ReadMounts()
	if err != nil {
		return seen, err
	}
	touchedBytes := 0
	enough := activity.GetInfo(ctx).Deadline.Add(-stepLook)
	for i, s := range r.Steps {
		if time.Now().After(enough) {
			seen.Unseen = append(seen.Unseen,
				fmt.Sprintf("%s from %s on: looking at the others has taken too long", activities.CountOf(len(r.Steps)-i, "step"),
					s.Step.ID))
			break
		}
		if len(seen.Refusals) >= maxRefusals {
			seen.Unseen = append(seen.Unseen,
				fmt.Sprintf("%s from %s on: too much is missing, or refused, before", activities.CountOf(len(r.Steps)-i, "step"),
					s.Step.ID))
			break
		}
		if r.Late {
			touched, _ := b.nameTouched(ctx, names, s)
			touched.Keys = b.registry.KeysOf(s.Uses, s.Step.With)
			seen.Touched = append(seen.Touched, touched)
			continue
		}
		looking, cancel := context.WithTimeout(ctx, stepLook)
		refusals, err := b.registry.Preflight(looking, b.host(), s.Uses, s.Step)
		cancel()
		if seen.Refusals = append(seen.Refusals, refusals...); err != nil && len(seen.Unseen) < activities.MaxItems {
			seen.Unseen = append(seen.Unseen, fmt.Sprintf("step %s: %v", s.Step.ID, err))
		}
		touched, size := b.nameTouched(ctx, names, s)
		if touchedBytes += size; size > 0 && touchedBytes <= maxTouched {
			seen.Touched = append(seen.Touched, touched)
		}
	}
	return seen, nil
}

// ledger rebuilds the ledger of a run from histories, for the workflow that unwinds it.
func (b builtin) ledger(ctx context.Context, r protocol.LedgerRequest) (protocol.Ledger, error) {
	defer activities.Beat(ctx)()
	info := activity.GetInfo(ctx)
	ledger, err := b.server.LedgerFor(ctx, info.WorkflowExecution.ID, info.WorkflowType.Name, r, b.converter)
	return ledger, recovery.Final(err)
}

// paused tells for how long the workflow that asks was paused.
func (b builtin) paused(ctx context.Context, since time.Time) (time.Duration, error) {
	asker := activity.GetInfo(ctx).WorkflowExecution
	return b.server.Paused(ctx, asker.ID, asker.RunID, since)
}

// redoable reads what a rollback has undone, for the workflow that redoes it.
func (b builtin) redoable(ctx context.Context, r protocol.RedoRequest) (protocol.RedoInput, error) {
	defer activities.Beat(ctx)()
	before, err := b.server.RedoInput(ctx, activity.GetInfo(ctx).WorkflowExecution.ID, r, b.converter)
	return before, recovery.Final(err)
}
