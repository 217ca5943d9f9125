package record

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// The folder "kept" has what checkpoints hold, encrypted, a file for each content. The folder of a
// token that has made a checkpoint has a link to its file: one to which no token links is removed.

// Kept is what a checkpoint holds.
type Kept struct {
	Dir string `json:"dir"`
	// Files are those of the folder.
	Files configuration.Files `json:"files"`
	// Made is the configuration that made the state; that of the folder where the state is empty, or
	// where none is known: then Unsettled has the addresses of what it would have changed.
	Made      configuration.Bundle `json:"made"`
	State     []byte               `json:"state"`
	Unsettled []string             `json:"unsettled,omitempty"`
	// Places are where the text of the configuration says that the state is.
	Places []string `json:"places"`
}

// DocKept is the document of a checkpoint that is complete.
type DocKept struct {
	Content string            `json:"content"` // the name of the file
	Result  activities.Result `json:"result"`
}

func keptLink(t *journal.Token) string { return filepath.Join(t.Dir(), "kept") }

// Keep keeps what the checkpoint of a token holds, durably, and returns under which name. What is
// kept already takes no more room.
func (s *Store) Keep(t *journal.Token, k Kept) (name string, err error) {
	if name, err = s.seal.Sign("kept", k); err != nil {
		return "", err
	}
	const tries = 10 // somebody may be dropping the last checkpoint that has it
	for range tries {
		if err = s.linkKept(t, name, k); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return name, err
}

func (s *Store) linkKept(t *journal.Token, name string, k Kept) error {
	file := filepath.Join(s.kept, name)
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		sealed, err := s.seal.Encrypt(name, k)
		if err == nil {
			err = durable.Create(file, sealed)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := os.Remove(keptLink(t)); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an earlier attempt
		return err
	}
	if err := os.Link(file, keptLink(t)); err != nil {
		return err
	}
	return durable.SyncFolder(t.Dir())
}

// ReadKept reads what the checkpoint of a token holds.
func (s *Store) ReadKept(t *journal.Token, name string) (k Kept, err error) {
	sealed, err := os.ReadFile(keptLink(t))
	if errors.Is(err, fs.ErrNotExist) {
		return k, activities.Errorf(activities.DamagedRecord, "%s is gone, which holds a checkpoint", keptLink(t))
	}
	if err == nil {
		err = s.seal.Decrypt(name, sealed, &k)
	}
	return k, err
}

// BytesOf is what the checkpoint of a token takes.
func BytesOf(t *journal.Token) int64 {
	info, err := os.Stat(keptLink(t))
	if err != nil {
		return 0
	}
	return info.Size()
}

// DropKept lets go of what the checkpoint of a token holds, if there is one.
func (s *Store) DropKept(t *journal.Token) error {
	if err := os.Remove(keptLink(t)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	files, err := os.ReadDir(s.kept)
	for _, f := range files {
		var is unix.Stat_t
		file := filepath.Join(s.kept, f.Name())
		if unix.Stat(file, &is) == nil && is.Nlink == 1 {
			err = errors.Join(err, os.Remove(file))
		}
	}
	return err
}
