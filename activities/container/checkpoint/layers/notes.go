package layers

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/internal/durable"
)

// notes say which containers may have layers, by an empty file for each. Sidecars keep layers in a
// volume of the engine, where the worker cannot look; of containers without a note none is asked.
type notes struct{ dir string }

func (n notes) has(id string) (bool, error) {
	_, err := os.Stat(filepath.Join(n.dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// list lists all containers that may have layers.
func (n notes) list() ([]string, error) { return namesIn(n.dir) }

func namesIn(dir string) ([]string, error) {
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, len(found))
	for i, f := range found {
		names[i] = f.Name()
	}
	return names, err
}

// add notes a container before its first layer. It is durable when it returns: layers that nobody
// asks for are lost.
func (n notes) add(id string) error {
	note := filepath.Join(n.dir, id)
	if _, err := os.Stat(note); err == nil {
		return nil
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(note, nil, 0o600); err != nil {
		return err
	}
	for _, dir := range []string{n.dir, filepath.Dir(n.dir)} {
		if err := durable.SyncFolder(dir); err != nil {
			return err
		}
	}
	return nil
}

// remove forgets a container that is no more.
func (n notes) remove(id string) error {
	if err := os.Remove(filepath.Join(n.dir, id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
