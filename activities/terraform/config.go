package terraform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// Name is the world's name.
const Name = "terraform"

// Config says where the world keeps its records and what it may touch.
type Config struct {
	// State is the folder of the journal, the key and the working copies. It must be absolute.
	// Required.
	State string
	// Roots are the folders below which configurations may be applied. Required.
	Roots []string
	// Terraform is the program. Defaults to terraform on PATH.
	Terraform string
	// CLIConfig is the file of Terraform's own settings (mirrors, credentials). Where it has no
	// provider_installation, providers come from the mirrors of this host and from their registries.
	// Defaults to what TF_CLI_CONFIG_FILE names, if it exists.
	CLIConfig string
	// Environment names variables of the worker's that Terraform, its providers and its provisioners
	// get besides the minimal ones.
	Environment []string
	// Secrets returns variables that they get, by name, whose values are secrets. It is asked at each
	// use. Defaults to none.
	Secrets func() (map[string]string, error) `json:"-"`
	// Hidden are paths that Terraform and what it starts can neither read nor change, besides Folder.
	Hidden []string
	// Interrupted is how long a cancelled step waits for terraform to finish what is in flight. The
	// supervisor waits longer. Defaults to one minute.
	Interrupted time.Duration
	// Ending is how long one attempt waits for the terraform of an earlier one to end. Defaults to two
	// minutes.
	Ending time.Duration
	// LockTimeout is how long terraform waits for the lock of a state. Defaults to ten seconds.
	LockTimeout time.Duration
	// LookOnly opens the world for its Specs and for Preflight only, and makes nothing.
	LookOnly bool
}

func (c Config) withDefaults() Config {
	if c.Terraform == "" {
		c.Terraform, _ = exec.LookPath("terraform") // if there is none, every use is refused with the way out
	}
	if c.CLIConfig == "" {
		if f := os.Getenv("TF_CLI_CONFIG_FILE"); f != "" && isFile(f) {
			c.CLIConfig = f
		}
	}
	c.Interrupted = orDefault(c.Interrupted, time.Minute)
	c.Ending = orDefault(c.Ending, 2*time.Minute)
	c.LockTimeout = orDefault(c.LockTimeout, 10*time.Second)
	return c
}

func orDefault(d, preset time.Duration) time.Duration {
	if d == 0 {
		return preset
	}
	return d
}

func (c Config) validate() error {
	if !filepath.IsAbs(c.State) {
		return fmt.Errorf("terraform: State %q is not an absolute path", c.State)
	}
	if len(c.Roots) == 0 {
		return fmt.Errorf("terraform: Roots: name at least one folder whose configurations may be applied")
	}
	for _, r := range c.Roots {
		if !filepath.IsAbs(r) {
			return fmt.Errorf("terraform: Roots: %q is not an absolute path", r)
		}
	}
	if c.CLIConfig != "" && !isFile(c.CLIConfig) {
		return fmt.Errorf("terraform: CLIConfig %q is not there", c.CLIConfig)
	}
	for _, name := range c.Environment {
		if err := workspace.CheckVariable(name); err != nil {
			return fmt.Errorf("terraform: Environment: %w", err)
		}
	}
	return nil
}

// Attend makes the program its own supervisor of terraform. Call it first in main and in TestMain:
// it returns at once, except in the processes that the world starts from the program itself.
func Attend() { run.Attend() }

// New makes the world. The program must have called [Attend] first: it is its own supervisor.
func New(c Config) (activities.World, error) {
	if !run.SupervisorRole.Attended() {
		return activities.World{}, fmt.Errorf("terraform: call terraform.Attend() first thing in main (or TestMain)")
	}
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return activities.World{}, err
	}
	if c.LookOnly {
		return activities.World{
			Name: Name, Actions: actionsOf(&world{Config: c}),
			Journal: func(context.Context) (string, error) { return "", nil },
		}, nil
	}
	j, err := journal.Open(filepath.Join(c.State, "journal"))
	if err != nil {
		return activities.World{}, err
	}
	tokens, err := j.Tokens()
	if err != nil {
		return activities.World{}, err
	}
	w := &world{Config: c, journal: j, host: &workspace.Host{
		Folder: c.State, Journal: j.Dir(), Terraform: c.Terraform, CLIConfig: c.CLIConfig, Environment: c.Environment,
		Secrets: c.Secrets,
		Hidden:  c.Hidden, Interrupted: c.Interrupted, Ending: c.Ending, LockTimeout: c.LockTimeout,
	}}
	if w.records, err = record.Open(c.State, j.Dir(), len(tokens) > 0); err != nil {
		return activities.World{}, err
	}
	if err := w.host.Prepare(); err != nil {
		return activities.World{}, err
	}
	if w.looks, err = journal.Open(filepath.Join(c.State, "looks")); err != nil {
		return activities.World{}, err
	}
	notices := c.notices()
	if err := w.sweepLooks(); err != nil {
		notices = append(notices, fmt.Sprintf("terraform: working copies of configurations that are no longer needed could "+
			"not be removed, and there may be secrets in them: remove %s: %v", w.looks.Dir(), err))
	}
	return activities.World{
		Name:    Name,
		Actions: actionsOf(w),
		Journal: func(context.Context) (string, error) { return j.Mark() },
		Records: journal.Records{Journal: j},
		Notices: notices,
	}, nil
}

func actionsOf(w *world) []activities.Action {
	apply := applyAction{w}
	return []activities.Action{&apply, &keepAction{w}, &restoreAction{apply}, &verifyAction{w}, &compareAction{w}}
}

// notices are what does not work, or is not as safe as it could be.
func (c Config) notices() []string {
	if c.Terraform == "" {
		return append(workspace.UnconfinedNotice(),
			"there is no terraform on the worker's PATH: steps that use it are refused; install it, or name it in "+
				"terraform.binary")
	}
	if _, err := exec.LookPath(c.Terraform); err != nil {
		return append(workspace.UnconfinedNotice(), fmt.Sprintf("terraform.binary: %v: steps that use it fail", err))
	}
	return workspace.UnconfinedNotice()
}

// world is what the actions share.
type world struct {
	Config
	journal *journal.Journal
	records *record.Store
	host    *workspace.Host
	// looks has the working copies of actions that change nothing, in place of tokens.
	looks  *journal.Journal
	isLook bool
}

// token opens the record of an entry.
func (w *world) token(e activities.Entry) (*journal.Token, error) {
	if err := w.journal.Check(e.Place.Journal); err != nil {
		return nil, err
	}
	if w.isLook {
		return w.looks.Token(e.Token)
	}
	return w.journal.Token(e.Token)
}

// look calls do with the world as it is for an entry that changes nothing and leaves nothing.
func (w *world) look(ctx context.Context, e activities.Entry, do func(*world) error) (err error) {
	looking := *w
	looking.isLook = true
	t, err := looking.token(e)
	if err != nil {
		return err
	}
	unlock, err := t.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	defer func() { err = errors.Join(err, os.RemoveAll(t.Dir())) }()
	return do(&looking)
}

// forgetLook removes the working copy of an entry that changes nothing: a look that was killed has left
// it, and there may be secrets in it.
func (w *world) forgetLook(ctx context.Context, e activities.Entry) error {
	return w.look(ctx, e, func(*world) error { return nil })
}

// sweepLooks removes the working copies that killed looks have left, whose undo may never come.
func (w *world) sweepLooks() error {
	tokens, err := w.looks.Tokens()
	if err != nil {
		return err
	}
	once, end := context.WithCancel(context.Background())
	end()
	for _, name := range tokens {
		t, err := w.looks.Token(name)
		if err != nil {
			return err
		}
		unlock, err := t.Lock(once)
		if errors.Is(err, context.Canceled) { // another process looks
			continue
		}
		if err != nil {
			return err
		}
		err = os.RemoveAll(t.Dir())
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// openWorkspace opens a workspace of an entry's token; see [host.openWorkspace].
func (w *world) openWorkspace(ctx context.Context, e activities.Entry, name string, b configuration.Bundle,
	turn int) (*workspace.Workspace, error) {
	t, err := w.token(e)
	if err != nil {
		return nil, err
	}
	return w.host.Open(ctx, t, name, b, turn)
}

// checkInstalled fails if there is no terraform.
func (w *world) checkInstalled() error {
	if w.Terraform == "" {
		return activities.Errorf(activities.Refused,
			"this worker has no terraform: install it on the PATH, or name it in the worker's config")
	}
	return nil
}

// resolveFolder resolves the links of a configuration's folder, and refuses one outside the allowed
// roots.
func (w *world) resolveFolder(dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", activities.Errorf(activities.Refused, "dir: %q is not an absolute path", dir)
	}
	key := "file:" + filepath.Clean(dir)
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", activities.RefuseCurrent(key, "dir: %v", err)
	}
	if info, err := os.Stat(resolved); err != nil || !info.IsDir() {
		return "", activities.RefuseCurrent(key, "dir: %s is not a folder", dir)
	}
	for _, root := range w.Roots {
		if root, err := filepath.EvalSymlinks(root); err == nil && isBelow(root, resolved) {
			return resolved, nil
		}
	}
	refusal := activities.Errorf(activities.Refused, "dir: %s is outside the folders that this worker allows: %s", dir,
		strings.Join(w.Roots, ", "))
	if resolved != filepath.Clean(dir) {
		refusal = activities.RefuseCurrent(key,
			"dir: %s leads to %s, which is outside the folders that this worker allows: %s", dir, resolved,
			strings.Join(w.Roots, ", "))
	}
	return "", refusal
}

func isBelow(root, path string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && filepath.IsLocal(rel)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
