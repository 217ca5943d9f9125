package container

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
)

// home is where layers are kept, and tells of which containers. It costs no more than reading a file where there are none.
type home interface {
	// stands says whether a container has layers here, or checkpoints of them; no where id is a name.
	stands(ctx context.Context, id string) (bool, error)
	// containers are all that may have.
	containers() ([]string, error)
	// begin comes before a container's first layer, end when it is no more.
	begin(id string) error
	end(id string) error
}

// nearby is the home of a helper on this host: a folder that it reads and writes itself.
type nearby string

func (dir nearby) stands(_ context.Context, id string) (bool, error) {
	if len(id) != 64 {
		return false, nil
	}
	is, err := helper.Stands(string(dir), id)
	if err != nil {
		err = activities.Errorf(activities.ActionFailed, "the layers of container %s cannot be read (%v); the worker must run as root, as it did when they were made", id[:12], err)
	}
	return is, err
}

func (dir nearby) containers() ([]string, error) { return namesIn(string(dir)) }

func (nearby) begin(string) error { return nil }

func (nearby) end(string) error { return nil }

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

// remote is the home of sidecars: a volume of the engine that the worker cannot look into. Which containers may have layers
// there is noted here, by an empty file for each; of all others no sidecar is asked.
type remote struct {
	notes  string
	helper *helper.Client
}

func (r remote) stands(ctx context.Context, id string) (bool, error) {
	if len(id) != 64 {
		return false, nil
	}
	if _, err := os.Stat(filepath.Join(r.notes, id)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	a, err := r.helper.Ask(ctx, helper.Request{Op: helper.Kept, Container: id})
	return a.Yes, tell(id[:12], err)
}

func (r remote) containers() ([]string, error) { return namesIn(r.notes) }

// begin is durable when it returns: layers that nobody asks for are lost.
func (r remote) begin(id string) error {
	note := filepath.Join(r.notes, id)
	if _, err := os.Stat(note); err == nil {
		return nil
	}
	if err := os.MkdirAll(r.notes, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(note, nil, 0o600); err != nil {
		return err
	}
	for _, dir := range []string{r.notes, filepath.Dir(r.notes)} {
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

func (r remote) end(id string) error {
	if err := os.Remove(filepath.Join(r.notes, id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
