package file

import (
	"fmt"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// copyTree copies a tree within the store, with owners, modes, times and extended attributes. What
// may not be copied (such as a foreign label) is no error here: the caller compares.
func (r *root) copyTree(from, to string) error {
	source, err := r.store.Open(filepath.Dir(from))
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := r.store.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer target.Close()
	top, err := filetree.Open(int(source.Fd()), filepath.Base(from))
	if err != nil {
		return err
	}
	defer top.Close()
	c := filetree.Copier{Lenient: true, Sync: true}
	defer c.Close()
	if err := c.Copy(top, int(target.Fd()), filepath.Base(to)); err != nil {
		return fmt.Errorf("copying to %s: %w", filepath.Join(r.store.Name(), to), err)
	}
	return nil
}
