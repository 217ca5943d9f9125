// Package defaults is what a worker's config says where it says nothing. A starter that runs no
// worker goes by it, too.
package defaults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Queue is the shared task queue.
const Queue = "unwind"

// Host is the machine's host name, in lower case.
func Host() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("host: the machine has no name; set one: %w", err)
	}
	return strings.ToLower(name), nil
}

// State is the state folder: $XDG_STATE_HOME/unwind, else ~/.local/state/unwind.
func State() (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("state: there is no home folder, name a folder: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "unwind"), nil
}
