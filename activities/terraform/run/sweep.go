package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/terraform/state"
)

// SweepCommand makes the supervisor remove files instead of running terraform: an undo may not
// touch the folder outside the lock and the fence.
const SweepCommand = "unwind-sweep"

// SweepJob says which files of a local backend to remove.
type SweepJob struct {
	Path string `json:"path"`
	// State: the state itself, if it is empty and of this lineage (or of no bytes).
	State   bool   `json:"state,omitempty"`
	Lineage string `json:"lineage,omitempty"`
	// Backup: the backup that terraform made of it.
	Backup bool `json:"backup,omitempty"`
}

// LockInfo is the file in which terraform says who has locked a local state.
func LockInfo(state string) string {
	return filepath.Join(filepath.Dir(state), "."+filepath.Base(state)+".lock.info")
}

func sweepState(args []string) error {
	var s SweepJob
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		return err
	}
	f, err := os.OpenFile(s.Path, os.O_RDWR, 0)
	if err == nil {
		defer f.Close()
		// The lock that terraform itself takes on a local state.
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
			return fmt.Errorf("%s is locked by another terraform: %w", s.Path, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s.State && f != nil {
		raw, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		now, err := state.Parse(raw)
		if err != nil {
			return err
		}
		if !now.IsEmpty() || now.Exists() && now.Lineage != s.Lineage {
			return fmt.Errorf("%s is not the empty state that the undo left", s.Path)
		}
		if err := os.Remove(s.Path); err != nil {
			return err
		}
	}
	stray := []string{LockInfo(s.Path)}
	if s.Backup {
		stray = append(stray, s.Path+".backup")
	}
	for _, name := range stray {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
