package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/internal/childenv"
	"github.com/seed-62bf7108/unwind/internal/confine"
	"github.com/seed-62bf7108/unwind/internal/shortlived"
)

// cacheVar names Terraform's cache of providers.
const cacheVar = "TF_PLUGIN_CACHE_DIR"

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckVariable refuses the name of a variable that a config may not hand on.
func CheckVariable(name string) error {
	if !variable.MatchString(name) {
		return fmt.Errorf("%q is no name of a variable", name)
	}
	if strings.HasPrefix(name, "TF_") && !strings.HasPrefix(name, "TF_TOKEN_") && name != cacheVar {
		return fmt.Errorf("%s changes how Terraform works; give values of variables in vars, and settings in cliConfig", name)
	}
	return nil
}

// environment is what Terraform, its providers and its provisioners get: nothing of the worker's
// own but what they need to run, and what the config names.
func (ws *Workspace) environment(o run.Order) (map[string]string, error) {
	env := childenv.Minimal(append([]string{cacheVar}, ws.Environment...)...)
	secrets, err := ws.secretVariables()
	if err != nil {
		return nil, err
	}
	maps.Copy(env, secrets)
	env["HOME"], env["TMPDIR"] = ws.home(), TempDir(ws.Folder)
	env["TF_CLI_CONFIG_FILE"], env["CHECKPOINT_DISABLE"] = ws.settings, "1"
	env[run.OrderVar] = o.String()
	return env, nil
}

// secretVariables are the variables whose values are secrets.
func (h *Host) secretVariables() (map[string]string, error) {
	if h.Secrets == nil {
		return nil, nil //nolint:nilnil // there are none
	}
	secrets, err := h.Secrets()
	if err != nil {
		return nil, fmt.Errorf("terraform: a secret of its environment: %w", err)
	}
	return secrets, nil
}

// soundsSecret are names of variables whose values are no words.
var soundsSecret = regexp.MustCompile(`(?i)secret|token|password|passwd|credential|_key$`)

// secretValues are the values in the environment of Terraform that must not be shown.
func (h *Host) secretValues() ([]string, error) {
	secrets, err := h.secretVariables()
	var values []string
	for _, v := range secrets {
		values = append(values, v)
	}
	for _, name := range h.Environment {
		if soundsSecret.MatchString(name) {
			values = append(values, os.Getenv(name))
		}
	}
	return values, err
}

// home is the home folder of what runs in the workspace; it goes with the working copy.
func (ws *Workspace) home() string { return ws.Dir + ".home" }

// TempDir is the folder for temporary files of what runs for a worker with this state folder. The
// path is short: the sockets of providers are in it.
func TempDir(state string) string {
	sum := sha256.Sum256([]byte(state))
	return filepath.Join(os.TempDir(), "unwind-"+hex.EncodeToString(sum[:4]))
}

// makeTempDir makes that folder, in one that others may write to: it must be this user's own.
func makeTempDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	var info unix.Stat_t
	if err := unix.Lstat(path, &info); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR || info.Mode&0o077 != 0 || int(info.Uid) != os.Geteuid() {
		return fmt.Errorf(
			"%s is not a folder of mode 0700 that belongs to this user; remove it, or name another folder in TMPDIR", path)
	}
	return nil
}

// limits are those of what runs in the workspace; looking: it may change nothing but the working
// copy.
func (ws *Workspace) limits(looking bool) confine.Limits {
	l := ws.CheckLimits(ws.Dir, ws.home(), TempDir(ws.Folder))
	l.ReadOnly = looking
	l.Readable = []string{ws.settings, ws.Terraform}
	if cache := os.Getenv(cacheVar); cache != "" {
		l.Open = append(l.Open, cache)
	}
	return l
}

// CheckLimits hide what the worker keeps to itself.
func (h *Host) CheckLimits(open ...string) confine.Limits {
	return confine.Limits{Hidden: append([]string{h.Folder}, h.Hidden...), Open: open}
}

// RunProgram runs a check's program within limits: the front becomes it.
func (h *Host) RunProgram(ctx context.Context, dir string, l confine.Limits, argv []string) ([]byte, error) {
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, err
	}
	env := childenv.Minimal()
	env[run.OrderVar] = run.Order{Terraform: program, Limits: l}.String()
	return shortlived.Output(ctx, dir, env, append([]string{h.front}, argv[1:]...)...)
}

// UnconfinedNotice says that this host cannot confine what Terraform runs; nil where it can.
func UnconfinedNotice() []string {
	if err := confine.Available(); err != nil {
		return []string{
			fmt.Sprintf(
				"terraform: providers, provisioners and external data sources of a configuration are not confined on this "+
					"host: they can "+
					"read the worker's environment, its config, its secrets and its journals (%v)", err)}
	}
	return nil
}
