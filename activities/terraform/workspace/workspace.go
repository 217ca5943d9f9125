// Package workspace runs terraform in working copies of configurations, confined and with an
// environment of its own.
package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"
	tfjson "github.com/hashicorp/terraform-json"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/plan"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
	"github.com/seed-62bf7108/unwind/internal/childenv"
)

// Workspace is an initialised working copy of a configuration, connected to the folder's own state.
type Workspace struct {
	*Host
	Token *journal.Token
	Dir   string
	CLI   *tfexec.Terraform
	// StateFile is the state file of a local backend; empty for any other.
	StateFile string
	// Turn is the number of the undo that works here; zero for a forward.
	Turn int
}

// ObserverTurn is the turn of an observation: nothing fences it.
const ObserverTurn = -1

// Open writes b into the token's folder under name, replacing what is there, and initialises it. A
// fenced call writes nothing: nobody would come after it to remove that.
func (h *Host) Open(ctx context.Context, t *journal.Token, name string, b configuration.Bundle, turn int) (*Workspace,
	error) {
	if turn != ObserverTurn {
		if err := run.CheckFence(t, turn); err != nil {
			return nil, err
		}
	}
	dir := Folder(t, name)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := b.WriteTo(dir); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(dir + ".home"); err != nil {
		return nil, err
	}
	ws, err := h.Reopen(ctx, t, name, turn)
	if err != nil {
		return nil, err
	}
	return ws, ws.initialise(ctx, b)
}

// Reopen opens an existing, initialised workspace.
func (h *Host) Reopen(ctx context.Context, t *journal.Token, name string, turn int) (*Workspace, error) {
	ws := &Workspace{Host: h, Token: t, Dir: Folder(t, name), Turn: turn}
	hidden, err := h.secretValues()
	if err != nil {
		return nil, err
	}
	activities.MaskerFrom(ctx).Add(hidden...)
	if err := errors.Join(os.MkdirAll(ws.home(), 0o700), makeTempDir(TempDir(h.Folder))); err != nil {
		return nil, err
	}
	if ws.CLI, err = tfexec.NewTerraform(ws.Dir, h.front); err != nil {
		return nil, err
	}
	if err := ws.CLI.SetWaitDelay(h.Interrupted); err != nil {
		return nil, err
	}
	if err := ws.SkipSupervisor(); err != nil {
		return nil, err
	}
	// terraform-exec asks for the version before other commands, and caches it: it must not ask in the
	// middle of a run.
	program, _ := os.Stat(h.Terraform)
	v, _, err := ws.CLI.Version(ctx, false)
	if err != nil {
		return nil, ws.FailedError(ctx, "version", stream.Report{}, err)
	}
	h.version.remember(program, v.String())
	return ws, nil
}

// Folder is the folder of a token's workspace.
func Folder(t *journal.Token, name string) string { return filepath.Join(t.Dir(), "work", name) }

// ObservationsFolder is the folder of a token for the output of supervised observations.
func ObservationsFolder(t *journal.Token) string { return filepath.Join(t.Dir(), "looks") }

// Remove removes workspaces by name patterns: only the caller's own, or those of dead processes.
func Remove(t *journal.Token, patterns ...string) error {
	for _, p := range patterns {
		dirs, err := filepath.Glob(Folder(t, p))
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

var namesBackend = regexp.MustCompile(`(?m)^\s*(backend\s+"|cloud\s*\{)|"backend"\s*:|"cloud"\s*:`)

// initialise finds the backend of the configuration, and points a local one to the folder's own
// state.
func (ws *Workspace) initialise(ctx context.Context, b configuration.Bundle) error {
	path := configuration.StateName
	for _, text := range b.RootModuleTexts() {
		if namesBackend.MatchString(text) {
			if err := ws.init(ctx, b.Backend); err != nil {
				return err
			}
			kind, settings, err := ws.backend()
			if err != nil {
				return err
			}
			if kind != "" && kind != "local" {
				return nil
			}
			if configured, _ := settings["path"].(string); configured != "" {
				path = configured
			}
			break
		}
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(b.Dir, path)
	}
	ws.StateFile = path
	override, err := json.Marshal(
		map[string]any{"terraform": map[string]any{"backend": map[string]any{"local": map[string]any{"path": path}}}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(ws.Dir, configuration.OverrideName), override, 0o600); err != nil {
		return err
	}
	return ws.init(ctx, nil)
}

// backend reads what init recorded about the backend.
func (ws *Workspace) backend() (kind string, settings map[string]any, err error) {
	raw, err := os.ReadFile(filepath.Join(ws.Dir, ".terraform", configuration.StateName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, nil
	}
	var written struct {
		Backend struct {
			Type   string         `json:"type"`
			Config map[string]any `json:"config"`
		} `json:"backend"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &written)
	}
	return written.Backend.Type, written.Backend.Config, err
}

func (ws *Workspace) init(ctx context.Context, backend map[string]string) error {
	if err := ws.setOrder(run.Order{Backend: backend}); err != nil {
		return err
	}
	if err := ws.CLI.Init(ctx, tfexec.Upgrade(false), tfexec.Reconfigure(true)); err != nil {
		return ws.FailedError(ctx, "init", stream.Report{}, err)
	}
	return ws.SkipSupervisor()
}

// SkipSupervisor makes the next commands run without a supervisor: those that start no provider.
func (ws *Workspace) SkipSupervisor() error {
	return ws.setOrder(run.Order{})
}

// startObservation makes the next command run supervised but unfenced, and returns the folder for
// its output.
func (ws *Workspace) startObservation() (out string, err error) {
	if err := os.MkdirAll(ObservationsFolder(ws.Token), 0o700); err != nil {
		return "", err
	}
	if out, err = os.MkdirTemp(ObservationsFolder(ws.Token), ""); err != nil {
		return "", err
	}
	return out, ws.setOrder(run.Order{Out: out})
}

// setOrder makes the next commands run by an order, which it completes.
func (ws *Workspace) setOrder(o run.Order) error {
	env, err := ws.environment(ws.complete(o))
	if err != nil {
		return err
	}
	return ws.CLI.SetEnv(env)
}

// complete adds to an order what all orders of the workspace have.
func (ws *Workspace) complete(o run.Order) run.Order {
	o.Terraform, o.Limits = ws.Terraform, ws.limits(o.Run == 0)
	if o.Out == "" {
		o.Version = ws.version.of(ws.Terraform)
	}
	return o
}

// Plan runs terraform plan without locking the state: a killed plan leaves no lock behind.
func (ws *Workspace) Plan(ctx context.Context, options ...tfexec.PlanOption) (stream.Report, error) {
	out, err := ws.startObservation()
	if err != nil {
		return stream.Report{}, err
	}
	defer os.RemoveAll(out)
	defer stream.Watch(ctx, run.Stdout(out))()
	_, failed := ws.CLI.PlanJSON(ctx, io.Discard, append(options, tfexec.Lock(false))...)
	said, err := stream.ReadReport(run.Stdout(out))
	if err != nil {
		return said, err
	}
	if failed != nil {
		return said, ws.FailedError(ctx, "plan", said, failed)
	}
	return said, nil
}

// ShowPlan reads a saved plan, and what it does; one that does what no undo knows is refused.
func (ws *Workspace) ShowPlan(ctx context.Context, file string) (*tfjson.Plan, []plan.Action, error) {
	if err := ws.SkipSupervisor(); err != nil {
		return nil, nil, err
	}
	shown, err := ws.CLI.ShowPlanFile(ctx, file)
	if err != nil {
		return nil, nil, ws.FailedError(ctx, "show", stream.Report{}, err)
	}
	activities.MaskerFrom(ctx).Add(plan.SensitiveTexts(shown)...)
	actions, err := plan.ReadActions(shown)
	return shown, actions, err
}

// RunChange runs a terraform that changes something: numbered, locked and fenced. If a killed run
// of this step has left the state locked, it unlocks it and tries again.
func (ws *Workspace) RunChange(ctx context.Context, what string, do func(run.Order) error) (stream.Report, error) {
	asked := time.Now()
	said, err := ws.runChangeOnce(ctx, what, do)
	if err == nil {
		return said, nil
	}
	if unlocked, uerr := ws.unlock(ctx, said, asked); uerr != nil || !unlocked {
		return said, errors.Join(err, uerr)
	}
	return ws.runChangeOnce(ctx, what, do)
}

func (ws *Workspace) runChangeOnce(ctx context.Context, what string, do func(run.Order) error) (stream.Report, error) {
	r, err := run.Begin(ws.Token)
	if err != nil {
		return stream.Report{}, err
	}
	o := run.Order{Out: r.Folder(), Run: r.Number, Journal: ws.Journal, Token: filepath.Base(ws.Token.Dir()),
		Turn: ws.Turn, What: what}
	if err := ws.setOrder(o); err != nil {
		return stream.Report{}, err
	}
	stop := stream.Watch(ctx, run.Stdout(r.Folder()))
	failed := do(o)
	stop()
	said, err := stream.ReadReport(run.Stdout(r.Folder()))
	if err != nil || failed == nil {
		return said, err
	}
	var e run.Exit
	if _, err := ws.Token.Read(r.Doc(run.DocExit), &e); err != nil {
		return said, err
	}
	if e.Refused != "" {
		if err := run.CheckFence(ws.Token, ws.Turn); err != nil {
			return said, err
		}
	}
	if len(said.Errors) == 0 { // a command without JSON output
		summary, detail, _ := strings.Cut(strings.TrimPrefix(stderrText(failed), "Error: "), "\n")
		said.Errors = []stream.Diagnostic{{Severity: "error", Summary: summary, Detail: detail}}
	}
	return said, ws.FailedError(ctx, what, said, failed)
}

// ApplyPlan applies a saved plan.
func (ws *Workspace) ApplyPlan(ctx context.Context, path string) (stream.Report, error) {
	return ws.RunChange(ctx, run.OpApply, func(run.Order) error {
		return ws.CLI.ApplyJSON(ctx, io.Discard, ws.ApplyOptions(tfexec.DirOrPlan(path))...)
	})
}

// ApplyOptions are the options of every apply: no backup of a local state, as the journal has it.
func (ws *Workspace) ApplyOptions(o ...tfexec.ApplyOption) []tfexec.ApplyOption {
	o = append(o, tfexec.LockTimeout(ws.LockTimeout.String()))
	if ws.StateFile != "" {
		o = append(o, tfexec.DisableBackup())
	}
	return o
}

// PullState reads the state.
func (ws *Workspace) PullState(ctx context.Context) (*state.State, error) {
	if ws.StateFile != "" {
		raw, err := os.ReadFile(ws.StateFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return state.ParseHidden(ctx, raw)
	}
	if err := ws.SkipSupervisor(); err != nil {
		return nil, err
	}
	raw, err := ws.CLI.StatePull(ctx)
	if err != nil {
		return nil, ws.FailedError(ctx, "state pull", stream.Report{}, err)
	}
	return state.ParseHidden(ctx, []byte(raw))
}

// Sweep removes an empty state and terraform's files beside it, under the same lock and fence as
// terraform itself.
func (ws *Workspace) Sweep(ctx context.Context, s run.SweepJob) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = ws.RunChange(ctx, run.SweepCommand, func(o run.Order) error {
		c := exec.CommandContext(ctx, ws.front, run.SweepCommand, string(text))
		env, err := ws.environment(ws.complete(o))
		if err != nil {
			return err
		}
		c.Env = childenv.List(env)
		if said, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	})
	return err
}

// HasStateFile reports whether the state is in a file of a local backend that exists.
func (ws *Workspace) HasStateFile() bool { return ws.StateFile != "" && isRegular(ws.StateFile) }

// HasBackupFile reports whether there is a backup beside the file of a local state.
func (ws *Workspace) HasBackupFile() bool {
	return ws.StateFile != "" && isRegular(ws.StateFile+".backup")
}

// HasLockInfo reports whether a terraform that locked a local state has left its note beside it.
func (ws *Workspace) HasLockInfo() bool {
	return ws.StateFile != "" && isRegular(run.LockInfo(ws.StateFile))
}

func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// FailedError is the error of a terraform run: what it reported, without the rest of its output.
func (ws *Workspace) FailedError(ctx context.Context, what string, said stream.Report, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("terraform %s: %w", what, ctx.Err())
	}
	output := said.Failure()
	if output == "" {
		output = stderrText(err)
	}
	output = activities.MaskerFrom(ctx).String(output) // before it is cut
	first, _, _ := strings.Cut(output, "\n")
	return &activities.Error{Type: activities.ActionFailed,
		Message: fmt.Sprintf("terraform %s: %s%s", what, activities.Tail(first, 1000), LockHint(said)),
		Output:  activities.Tail(output, 2000)}
}

// stderrText is terraform's standard error without boxes and empty lines.
func stderrText(err error) string {
	_, text, found := strings.Cut(err.Error(), "\n")
	if text = strings.TrimSpace(text); !found || text == "" {
		return err.Error()
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.Trim(line, "╷│╵ \t\r\n"); line != "" && !strings.HasPrefix(line, "Warning: ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// ChangedObjects are the addresses of objects that differ from the state, and a digestible form of
// how.
func (ws *Workspace) ChangedObjects(ctx context.Context) ([]string, []byte, error) {
	file := filepath.Join(ws.Dir, "unwind.refresh.tfplan")
	said, err := ws.Plan(ctx, tfexec.RefreshOnly(true), tfexec.Out(file))
	if err != nil || len(said.Drifted) == 0 {
		return nil, nil, err
	}
	if err := ws.SkipSupervisor(); err != nil {
		return nil, nil, err
	}
	shown, err := ws.CLI.ShowPlanFile(ctx, file)
	if err != nil {
		return nil, nil, ws.FailedError(ctx, "show", stream.Report{}, err)
	}
	activities.MaskerFrom(ctx).Add(plan.SensitiveTexts(shown)...)
	values, err := json.Marshal(shown.ResourceDrift)
	slices.Sort(said.Drifted) // terraform lists them in any order, and a person decides on their digest
	return said.Drifted, values, err
}

// RefreshLocked lists the objects that differ from the state, while it holds the lock of the state:
// nobody applies meanwhile. It changes nothing.
func (ws *Workspace) RefreshLocked(ctx context.Context) ([]string, error) {
	said, err := ws.RunChange(ctx, "plan", func(run.Order) error {
		_, err := ws.CLI.PlanJSON(ctx, io.Discard, tfexec.RefreshOnly(true), tfexec.Lock(true),
			tfexec.LockTimeout(ws.LockTimeout.String()))
		return err
	})
	slices.Sort(said.Drifted)
	return said.Drifted, err
}

// PushState makes raw the state.
func (ws *Workspace) PushState(ctx context.Context, raw []byte) error {
	file := filepath.Join(ws.Dir, "unwind.push.tfstate")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return err
	}
	_, err := ws.RunChange(ctx, "state push", func(run.Order) error {
		return ws.CLI.StatePush(ctx, file, tfexec.Lock(true), tfexec.LockTimeout(ws.LockTimeout.String()))
	})
	return errors.Join(err, os.Remove(file))
}
