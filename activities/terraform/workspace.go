package terraform

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
	"strings"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// workspace is an initialised working copy of a configuration, connected to the folder's own state.
type workspace struct {
	*world
	token *journal.Token
	name  string // the token
	dir   string
	tf    *tfexec.Terraform
	// state is the state file of a local backend; empty for any other.
	state string
	// turn is the number of the undo that works here; zero for a forward.
	turn int
}

// observerTurn is the turn of an observation: nothing fences it.
const observerTurn = -1

// workspace writes b into the token's folder under name, replacing what is there, and initialises it. A fenced call writes
// nothing: nobody would come after it to remove that.
func (w *world) workspace(ctx context.Context, e activities.Entry, name string, b bundle, turn int) (*workspace, error) {
	t, err := w.token(e)
	if err != nil {
		return nil, err
	}
	if turn != observerTurn {
		if err := (order{Token: e.Token, Turn: turn}).checkFence(t); err != nil {
			return nil, err
		}
	}
	dir := workDir(t, name)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := b.writeTo(dir); err != nil {
		return nil, err
	}
	ws, err := w.reopen(ctx, e, name, turn)
	if err != nil {
		return nil, err
	}
	return ws, ws.initialise(ctx, b)
}

// reopen opens an existing, initialised workspace.
func (w *world) reopen(ctx context.Context, e activities.Entry, name string, turn int) (*workspace, error) {
	t, err := w.token(e)
	if err != nil {
		return nil, err
	}
	ws := &workspace{world: w, token: t, name: e.Token, dir: workDir(t, name), turn: turn}
	if ws.tf, err = tfexec.NewTerraform(ws.dir, w.front); err != nil {
		return nil, err
	}
	if err := ws.tf.SetWaitDelay(w.Interrupted); err != nil {
		return nil, err
	}
	if err := ws.unsupervised(); err != nil {
		return nil, err
	}
	// terraform-exec asks for the version before other commands, and caches it: it must not ask in the middle of a run.
	program, _ := os.Stat(w.Terraform)
	v, _, err := ws.tf.Version(ctx, false)
	if err != nil {
		return nil, ws.failedError(ctx, "version", report{}, err)
	}
	w.version.remember(program, v.String())
	return ws, nil
}

func workDir(t *journal.Token, name string) string { return filepath.Join(t.Dir(), "work", name) }

// looksName is the folder of a token for the output of supervised observations.
const looksName = "looks"

func looksDir(t *journal.Token) string { return filepath.Join(t.Dir(), looksName) }

// removeWork removes workspaces by name patterns: only the caller's own, or those of dead processes.
func removeWork(t *journal.Token, patterns ...string) error {
	for _, p := range patterns {
		dirs, err := filepath.Glob(workDir(t, p))
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

// initialise finds the backend of the configuration, and points a local one to the folder's own state.
func (ws *workspace) initialise(ctx context.Context, b bundle) error {
	path := stateName
	for _, text := range b.rootModuleTexts() {
		if namesBackend.MatchString(text) {
			if err := ws.init(ctx, b.Backend); err != nil {
				return err
			}
			kind, configured, err := ws.backend()
			if err != nil {
				return err
			}
			if kind != "" && kind != "local" {
				return nil
			}
			if configured != "" {
				path = configured
			}
			break
		}
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(b.Dir, path)
	}
	ws.state = path
	override, err := json.Marshal(map[string]any{"terraform": map[string]any{"backend": map[string]any{"local": map[string]any{"path": path}}}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(ws.dir, overrideName), override, 0o600); err != nil {
		return err
	}
	return ws.init(ctx, nil)
}

// backend reads what init recorded about the backend.
func (ws *workspace) backend() (kind, path string, err error) {
	raw, err := os.ReadFile(filepath.Join(ws.dir, ".terraform", stateName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
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
	path, _ = written.Backend.Config["path"].(string)
	return written.Backend.Type, path, err
}

func (ws *workspace) init(ctx context.Context, backend map[string]string) error {
	options := []tfexec.InitOption{tfexec.Upgrade(false), tfexec.Reconfigure(true)}
	for k, v := range backend {
		options = append(options, tfexec.BackendConfig(k+"="+v))
	}
	if err := ws.tf.Init(ctx, options...); err != nil {
		return ws.failedError(ctx, "init", report{}, err)
	}
	return nil
}

// unsupervised makes the next commands run without a supervisor: those that start no provider.
func (ws *workspace) unsupervised() error {
	return ws.setOrder(order{Terraform: ws.Terraform, Version: ws.version.of(ws.Terraform)})
}

// startLook makes the next command run supervised but unfenced, and returns the folder for its output.
func (ws *workspace) startLook() (out string, err error) {
	if err := os.MkdirAll(looksDir(ws.token), 0o700); err != nil {
		return "", err
	}
	if out, err = os.MkdirTemp(looksDir(ws.token), ""); err != nil {
		return "", err
	}
	return out, ws.setOrder(order{Terraform: ws.Terraform, Out: out})
}

func (ws *workspace) setOrder(o order) error { return ws.tf.SetEnv(ws.environment(o)) }

// environment is the worker's own, which providers need, without what would change how terraform works.
func (ws *workspace) environment(o order) map[string]string {
	env := map[string]string{}
	for _, kv := range os.Environ() {
		if k, v, _ := strings.Cut(kv, "="); !strings.HasPrefix(k, "TF_") || k == "TF_PLUGIN_CACHE_DIR" {
			env[k] = v
		}
	}
	env["TF_CLI_CONFIG_FILE"] = ws.CLIConfig
	env["CHECKPOINT_DISABLE"] = "1"
	env[orderVar] = o.String()
	return env
}

// plan runs terraform plan without locking the state: a killed plan leaves no lock behind.
func (ws *workspace) plan(ctx context.Context, options ...tfexec.PlanOption) (report, error) {
	out, err := ws.startLook()
	if err != nil {
		return report{}, err
	}
	defer os.RemoveAll(out)
	_, failed := ws.tf.PlanJSON(ctx, io.Discard, append(options, tfexec.Lock(false))...)
	said, err := readReport(stdoutOf(out))
	if err != nil {
		return said, err
	}
	if failed != nil {
		return said, ws.failedError(ctx, "plan", said, failed)
	}
	return said, nil
}

// runChange runs a terraform that changes something: numbered, locked and fenced. If a killed run of this step has left the
// state locked, it unlocks it and tries again.
func (ws *workspace) runChange(ctx context.Context, what string, do func(order) error) (report, error) {
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

func (ws *workspace) runChangeOnce(ctx context.Context, what string, do func(order) error) (report, error) {
	r, err := newRun(ws.token)
	if err != nil {
		return report{}, err
	}
	o := order{Terraform: ws.Terraform, Out: r.dir(), Run: r.number, Journal: ws.journal.Dir(), Token: ws.name, Turn: ws.turn, What: what}
	if err := ws.setOrder(o); err != nil {
		return report{}, err
	}
	failed := do(o)
	said, err := readReport(stdoutOf(r.dir()))
	if err != nil || failed == nil {
		return said, err
	}
	var e exit
	if _, err := ws.token.Read(r.doc(docExit), &e); err != nil {
		return said, err
	}
	if e.Refused != "" {
		if err := o.checkFence(ws.token); err != nil {
			return said, err
		}
	}
	if len(said.Errors) == 0 { // a command without JSON output
		summary, detail, _ := strings.Cut(strings.TrimPrefix(stderrText(failed), "Error: "), "\n")
		said.Errors = []diagnostic{{Severity: "error", Summary: summary, Detail: detail}}
	}
	return said, ws.failedError(ctx, what, said, failed)
}

// applyPlan applies a saved plan.
func (ws *workspace) applyPlan(ctx context.Context, path string) (report, error) {
	return ws.runChange(ctx, whatApply, func(order) error {
		return ws.tf.ApplyJSON(ctx, io.Discard, ws.applyOptions(tfexec.DirOrPlan(path))...)
	})
}

// applyOptions are the options of every apply: no backup of a local state, as the journal has it.
func (ws *workspace) applyOptions(o ...tfexec.ApplyOption) []tfexec.ApplyOption {
	o = append(o, tfexec.LockTimeout(ws.LockTimeout.String()))
	if ws.state != "" {
		o = append(o, tfexec.DisableBackup())
	}
	return o
}

// pullState reads the state.
func (ws *workspace) pullState(ctx context.Context) (*state, error) {
	if ws.state != "" {
		raw, err := os.ReadFile(ws.state)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return parseHidden(ctx, raw)
	}
	if err := ws.unsupervised(); err != nil {
		return nil, err
	}
	raw, err := ws.tf.StatePull(ctx)
	if err != nil {
		return nil, ws.failedError(ctx, "state pull", report{}, err)
	}
	return parseHidden(ctx, []byte(raw))
}

// parseHidden parses a state and makes the masker hide what is sensitive in it.
func parseHidden(ctx context.Context, raw []byte) (*state, error) {
	s, err := parseState(raw)
	if err == nil {
		hideSecrets(ctx, s.sensitive())
	}
	return s, err
}

func hideSecrets(ctx context.Context, secrets []string) {
	m := activities.MaskerFrom(ctx)
	for _, s := range secrets {
		m.Add(s)
	}
}

// sweep removes an empty state and terraform's files beside it, under the same lock and fence as terraform itself.
func (ws *workspace) sweep(ctx context.Context, s sweepJob) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = ws.runChange(ctx, sweepCommand, func(o order) error {
		c := exec.CommandContext(ctx, ws.front, sweepCommand, string(text))
		for k, v := range ws.environment(o) {
			c.Env = append(c.Env, k+"="+v)
		}
		if said, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return nil
	})
	return err
}

// dropBackup removes the backup beside a local state that some commands always make (taint, state push), unless there was
// one before the step.
func (ws *workspace) dropBackup(ctx context.Context, now *state) error {
	if ws.state == "" || !isFile(ws.state+".backup") {
		return nil
	}
	var r record
	if _, err := ws.token.Read(journal.Record, &r); err != nil || r.Backup {
		return err
	}
	return ws.sweep(ctx, sweepJob{Path: ws.state, Lineage: now.Lineage, Backup: true})
}

// failedError is the error of a terraform run: what it reported, without the rest of its output.
func (ws *workspace) failedError(ctx context.Context, what string, said report, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("terraform %s: %w", what, ctx.Err())
	}
	output := said.failure()
	if output == "" {
		output = stderrText(err)
	}
	output = activities.MaskerFrom(ctx).String(output) // before it is cut
	first, _, _ := strings.Cut(output, "\n")
	return &activities.Error{Type: activities.ActionFailed,
		Message: fmt.Sprintf("terraform %s: %s%s", what, activities.Tail(first, 1000), lockHint(said)), Output: activities.Tail(output, 2000)}
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
