package terraform

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Name is the world's name.
const Name = "terraform"

// Config says where the world keeps its records and what it may touch.
type Config struct {
	// State is the folder of the journal, the key and the working copies. It must be absolute. Required.
	State string
	// Roots are the folders below which configurations may be applied. Required.
	Roots []string
	// Terraform is the program. Defaults to terraform on PATH.
	Terraform string
	// CLIConfig is the file of Terraform's own settings (mirrors, credentials). Defaults to what TF_CLI_CONFIG_FILE names,
	// if it exists, else to an empty file.
	CLIConfig string
	// Interrupted is how long a cancelled step waits for terraform to finish what is in flight. The supervisor waits
	// longer. Defaults to one minute.
	Interrupted time.Duration
	// Ending is how long one attempt waits for the terraform of an earlier one to end. Defaults to two minutes.
	Ending time.Duration
	// LockTimeout is how long terraform waits for the lock of a state. Defaults to ten seconds.
	LockTimeout time.Duration
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
	return nil
}

// New makes the world. The program must have called [Attend] first: it is its own supervisor.
func New(c Config) (activities.World, error) {
	if !supervisorRole.Attended() {
		return activities.World{}, fmt.Errorf("terraform: call terraform.Attend() first thing in main (or TestMain)")
	}
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return activities.World{}, err
	}
	j, err := journal.Open(filepath.Join(c.State, "journal"))
	if err != nil {
		return activities.World{}, err
	}
	w := &world{Config: c, journal: j}
	tokens, err := j.Tokens()
	if err != nil {
		return activities.World{}, err
	}
	if w.seal, err = openSeal(filepath.Join(c.State, "key"), len(tokens) > 0); err != nil {
		return activities.World{}, err
	}
	if err := w.makeFiles(); err != nil {
		return activities.World{}, err
	}
	return activities.World{
		Name:    Name,
		Actions: []activities.Action{&applyAction{w}},
		Journal: func(context.Context) (string, error) { return j.ID(), nil },
		Records: journal.Records{Journal: j},
	}, nil
}

// world is what the actions share.
type world struct {
	Config
	journal *journal.Journal
	seal    *recordCipher
	front   string // our own program under the name that makes it terraform's front
	version knownVersion
}

// makeFiles makes what the world keeps beside the journal: the front, an empty settings file, the folder of known
// configurations.
func (w *world) makeFiles() error {
	for _, d := range []string{"bin", "known"} {
		if err := os.MkdirAll(filepath.Join(w.State, d), 0o700); err != nil {
			return err
		}
	}
	w.front = filepath.Join(w.State, "bin", frontName)
	if err := os.Symlink("/proc/self/exe", w.front); err != nil && !os.IsExist(err) {
		return err
	}
	if w.CLIConfig == "" {
		w.CLIConfig = filepath.Join(w.State, "terraform.rc")
		f, err := os.OpenFile(w.CLIConfig, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		return f.Close()
	}
	return nil
}

// token opens the record of an entry.
func (w *world) token(e activities.Entry) (*journal.Token, error) {
	if err := w.journal.Check(e.Place.Journal); err != nil {
		return nil, err
	}
	return w.journal.Token(e.Token)
}

// checkInstalled fails if there is no terraform.
func (w *world) checkInstalled() error {
	if w.Terraform == "" {
		return activities.Errorf(activities.Refused,
			"this worker has no terraform: install it on the PATH, or name it in the worker's config")
	}
	return nil
}

// resolveFolder resolves the links of a configuration's folder, and refuses one outside the allowed roots.
func (w *world) resolveFolder(dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", activities.Errorf(activities.Refused, "dir: %q is not an absolute path", dir)
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", activities.Errorf(activities.Refused, "dir: %v", err)
	}
	if info, err := os.Stat(resolved); err != nil || !info.IsDir() {
		return "", activities.Errorf(activities.Refused, "dir: %s is not a folder", dir)
	}
	for _, root := range w.Roots {
		if root, err := filepath.EvalSymlinks(root); err == nil && isBelow(root, resolved) {
			return resolved, nil
		}
	}
	return "", activities.Errorf(activities.Refused, "dir: %s is outside the folders that this worker allows: %s",
		dir, strings.Join(w.Roots, ", "))
}

func isBelow(root, path string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && filepath.IsLocal(rel)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
