package mcp

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// keySize is in bytes.
const keySize = 32

// ReadKey reads the key from a file, which is made if there is none: servers that accept each
// other's handles share it.
func ReadKey(file string) (Key, error) {
	key, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(file); err != nil {
			return nil, fmt.Errorf("key of the handles: %w", err)
		}
		key, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("key of the handles: %w", err)
	}
	if key = bytes.TrimSpace(key); len(key) < keySize {
		return nil, fmt.Errorf("key of the handles: %s has %s; give at least %d random ones, or remove it", file,
			activities.CountOf(len(key), "byte"), keySize)
	}
	return key, nil
}

// makeKey makes a key file, unless another process is first.
func makeKey(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	err := durable.Create(file, []byte(rand.Text()+rand.Text()+"\n")) // its mode is 0600
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
