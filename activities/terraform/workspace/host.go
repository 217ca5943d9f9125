package workspace

import (
	"os"
	"path/filepath"
	"time"

	"github.com/seed-62bf7108/unwind/activities/terraform/run"
)

// Host is what all workspaces of a worker have in common.
type Host struct {
	// Folder is the worker's folder for the terraform program's files, and Journal that of its
	// journal.
	Folder, Journal string
	// Terraform is the program, and CLIConfig the file of its settings, if there is one.
	Terraform, CLIConfig string
	// Environment names the variables of the worker's that terraform gets, and Secrets returns others
	// whose values are secrets.
	Environment []string
	Secrets     func() (map[string]string, error)
	// Hidden are paths that terraform and what it starts can neither read nor change, besides Folder.
	Hidden []string
	// Interrupted is how long a cancelled command waits for terraform to finish what is in flight.
	Interrupted time.Duration
	// Ending is how long one attempt waits for the terraform of an earlier one to end.
	Ending time.Duration
	// LockTimeout is how long terraform waits for the lock of a state.
	LockTimeout time.Duration

	front    string // our own program under the name that makes it terraform's front
	settings string // the file of terraform's settings that we have written
	version  knownVersion
}

// Prepare makes the front and terraform's settings. Call it before the first workspace is opened.
func (h *Host) Prepare() error {
	bin := filepath.Join(h.Folder, "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return err
	}
	h.front = filepath.Join(bin, run.FrontName)
	if err := os.Symlink("/proc/self/exe", h.front); err != nil && !os.IsExist(err) {
		return err
	}
	return h.writeSettings()
}
