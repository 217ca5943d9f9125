package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/internal/filelock"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// devFile is what a running `starter dev` (or demo) tells other commands of the same user.
type devFile struct {
	Address   string `json:"address"`
	Namespace string `json:"namespace"`
	UI        string `json:"ui,omitempty"`
	PID       int    `json:"pid"`
}

// stateFolder is where the user's state is: the worker's journals and the dev server's database.
func stateFolder() (string, error) {
	c, err := host.Config{}.WithEnvironment(os.LookupEnv).WithDefaults()
	return c.State, err
}

const devFileName = "dev.json"

// findDev is the server of a running dev, else that of a running demo.
func findDev() (devFile, bool) {
	folder, err := stateFolder()
	if err != nil {
		return devFile{}, false
	}
	folders := []string{folder}
	for n := 1; n <= maxDemos; n++ {
		folders = append(folders, demoFolder(folder, n))
	}
	for _, each := range folders {
		var d devFile
		raw, err := os.ReadFile(filepath.Join(each, devFileName))
		if err == nil && json.Unmarshal(raw, &d) == nil && d.Address != "" && answers(d.Address) {
			return d, true
		}
	}
	return devFile{}, false
}

// write puts the file into the folder, whole or not at all; remove takes it away again.
func (d devFile) write(folder string) (remove func(), err error) {
	raw, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(folder, devFileName)
	draft := path + ".draft"
	if err := os.WriteFile(draft, append(raw, '\n'), 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(draft, path); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(path) }, nil
}

// folderTaken says that another server runs on a folder.
type folderTaken struct{ folder string }

func (e folderTaken) Error() string {
	return fmt.Sprintf("starter dev is already running on %s; use it, stop it, or set UNWIND_STATE to another folder", e.folder)
}

// lockFolder keeps a second server off the database of a state folder, for as long as this process lives or until unlock.
func lockFolder(folder string) (unlock func(), err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	l, err := filelock.Try(filepath.Join(folder, "dev.lock"))
	if errors.Is(err, filelock.ErrHeld) {
		return nil, folderTaken{folder}
	}
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	return l.Release, nil
}
