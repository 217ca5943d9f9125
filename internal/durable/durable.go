// Package durable writes files so that they survive a loss of power: complete, or not at all.
package durable

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
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

// DigestFile returns the SHA-256 of a file's content, in hex. If sync is not nil, it makes the file
// and its name durable: it is (*os.File).Sync, unless a test replaces it.
func DigestFile(path string, sync func(*os.File) error) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	if sync != nil {
		folder, err := os.Open(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		defer folder.Close()
		if err := errors.Join(sync(f), sync(folder)); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
