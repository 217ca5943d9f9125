package host

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// notes are what a host remembers for some time: a file for each in a folder of the state folder.
// Nothing is locked.
type notes[T any] struct {
	dir    string
	window time.Duration // from when it was last written or touched
	now    func() time.Time
	what   string // they say, for a message
}

var tokenForm = regexp.MustCompile(`^[0-9A-Za-z]+$`)

// checkToken refuses a token that is no part of a file's name.
func checkToken(token string) error {
	if !tokenForm.MatchString(token) {
		return activities.Errorf(activities.Refused, "%q is no token of a step", token)
	}
	return nil
}

func (n notes[T]) path(name string) string { return filepath.Join(n.dir, name) }

// create writes a new note; its error is fs.ErrExist if there is one of that name.
func (n notes[T]) create(name string, note T) error {
	content, err := json.Marshal(note)
	if err != nil {
		return err
	}
	return durable.Create(n.path(name), content)
}

// replace writes a note, whether there is one of that name or not.
func (n notes[T]) replace(name string, note T) error {
	content, err := json.Marshal(note)
	if err != nil {
		return err
	}
	return durable.Replace(n.path(name), content)
}

// read reads a note; its error is fs.ErrNotExist if there is none.
func (n notes[T]) read(name string) (note T, err error) {
	content, err := os.ReadFile(n.path(name))
	if err != nil {
		return note, err
	}
	if err := json.Unmarshal(content, &note); err != nil {
		return note, activities.Errorf(activities.DamagedRecord,
			"%s, which says %s, is damaged (%v): see what was done lately, then remove it", n.path(name), n.what, err)
	}
	return note, nil
}

// touch has a note stay for another window.
func (n notes[T]) touch(name string) error { return os.Chtimes(n.path(name), n.now(), n.now()) }

// list returns the names of all notes.
func (n notes[T]) list() (names []string, err error) {
	files, err := os.ReadDir(n.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), ".") { // it is being written
			names = append(names, f.Name())
		}
	}
	return names, nil
}

// prepare makes the folder.
func (n notes[T]) prepare() error { return os.MkdirAll(n.dir, 0o700) }

// prune forgets what is older than the window.
func (n notes[T]) prune() error {
	files, err := os.ReadDir(n.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		info, err := f.Info()
		if err == nil && n.now().After(info.ModTime().Add(n.window)) {
			err = n.remove(f.Name())
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// remove forgets a note, durably. It is no error if there is none.
func (n notes[T]) remove(name string) error {
	switch err := os.Remove(n.path(name)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return durable.SyncFolder(n.dir)
}
