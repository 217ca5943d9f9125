package container

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
)

// home is a volume of the engine, where a worker's sidecars keep layers and the worker cannot look. Which containers may have
// layers there is noted on the worker's host, by an empty file for each: of all others no sidecar is asked.
type home struct {
	notes  string
	helper *helper.Client
}

// stands says whether a container has layers, or checkpoints of them; no where id is a name.
func (h home) stands(ctx context.Context, id string) (bool, error) {
	if len(id) != 64 {
		return false, nil
	}
	if _, err := os.Stat(filepath.Join(h.notes, id)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	a, err := h.helper.Ask(ctx, helper.Request{Op: helper.Kept, Container: id})
	return a.Yes, tell(id[:12], err)
}

// containers are all that may have layers.
func (h home) containers() ([]string, error) { return namesIn(h.notes) }

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

// begin notes a container before its first layer. It is durable when it returns: layers that nobody asks for are lost.
func (h home) begin(id string) error {
	note := filepath.Join(h.notes, id)
	if _, err := os.Stat(note); err == nil {
		return nil
	}
	if err := os.MkdirAll(h.notes, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(note, nil, 0o600); err != nil {
		return err
	}
	for _, dir := range []string{h.notes, filepath.Dir(h.notes)} {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
	}
	return nil
}

// end forgets a container that is no more.
func (h home) end(id string) error {
	if err := os.Remove(filepath.Join(h.notes, id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
