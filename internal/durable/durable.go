// Package durable writes small files so that they survive a loss of power: complete, or not at all.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Create creates a file atomically; its error is fs.ErrExist if the name is taken.
func Create(path string, content []byte) error {
	tmp, err := writeTemp(filepath.Dir(path), content)
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	if err := os.Link(tmp, path); err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// Replace puts content in place of a file, or creates it, atomically.
func Replace(path string, content []byte) error {
	tmp, err := writeTemp(filepath.Dir(path), content)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return SyncFolder(filepath.Dir(path))
}

// writeTemp writes a new file in dir, durable but for its name, and returns its path.
func writeTemp(dir string, content []byte) (path string, err error) {
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// SyncFolder makes the names in a folder durable.
func SyncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
