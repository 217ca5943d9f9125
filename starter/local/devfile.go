package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/seed-62bf7108/unwind/internal/filelock"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/worker/defaults"
)

// MaxDemos is how many demos of a user can each run a server at the same time.
const MaxDemos = 9

// DemoFolder holds the database of the n-th concurrent demo's server.
func DemoFolder(state string, n int) string {
	return filepath.Join(state, "demo", strconv.Itoa(n))
}

// DevFile is how other commands of the same user find a running `starter dev` or demo.
type DevFile struct {
	Address   string `json:"address"`
	Namespace string `json:"namespace"`
	UI        string `json:"ui,omitempty"`
	PID       int    `json:"pid"`
}

// StateFolder holds the user's state: the worker's journals and the dev server's database.
func StateFolder() (string, error) {
	if folder := os.Getenv("UNWIND_STATE"); folder != "" {
		return folder, nil
	}
	return defaults.State()
}

const DevFileName = "dev.json"

// FindDev returns the server of a running dev, else that of a running demo.
func FindDev() (DevFile, bool) {
	folder, err := StateFolder()
	if err != nil {
		return DevFile{}, false
	}
	folders := []string{folder}
	for n := 1; n <= MaxDemos; n++ {
		folders = append(folders, DemoFolder(folder, n))
	}
	for _, each := range folders {
		var d DevFile
		raw, err := os.ReadFile(filepath.Join(each, DevFileName))
		if err == nil && json.Unmarshal(raw, &d) == nil && d.Address != "" && tasks.IsListening(d.Address) {
			return d, true
		}
	}
	return DevFile{}, false
}

// Write puts the file into the folder, atomically; remove deletes it.
func (d DevFile) Write(folder string) (remove func(), err error) {
	raw, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(folder, DevFileName)
	draft := path + ".draft"
	if err := os.WriteFile(draft, append(raw, '\n'), 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(draft, path); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(path) }, nil
}

// FolderTaken is the error for a folder that another server uses.
type FolderTaken struct{ folder string }

func (e FolderTaken) Error() string {
	return fmt.Sprintf("starter dev is already running on %s; use it, stop it, or set UNWIND_STATE to another folder",
		e.folder)
}

// LockFolder keeps a second server off the database of a state folder, until unlock or the end of
// this process.
func LockFolder(folder string) (unlock func(), err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	l, err := filelock.Try(filepath.Join(folder, "dev.lock"))
	if errors.Is(err, filelock.ErrHeld) {
		return nil, FolderTaken{folder}
	}
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	return l.Release, nil
}
