package host

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/seed-62bf7108/unwind/activities"
)

// decisions are the signed ones about undos that this host has carried out: notes that are named by the
// step's token and the opening, and stay until its record is released.
type decisions struct {
	notes[activities.Carrying]

	mu *sync.Mutex // held while a note is replaced
}

func decisionsOf(c Config) decisions {
	return decisions{mu: &sync.Mutex{}, notes: notes[activities.Carrying]{dir: filepath.Join(c.State, "decisions"),
		what: "which decision was carried out"}}
}

// openingName is what the note of a decision is called.
func openingName(token string, opening activities.Digest) (string, error) {
	digits := strings.TrimPrefix(string(opening), "sha256:")
	return token + "-" + digits, errors.Join(checkToken(token), checkToken(digits))
}

// Begin implements activities.Decisions.
func (d decisions) Begin(token string, opening activities.Digest, by activities.Carrying) (*activities.Carrying,
	error) {
	name, err := openingName(token, opening)
	if err := errors.Join(err, d.prepare()); err != nil {
		return nil, err
	}
	if err := d.create(name, by); !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	earlier, err := d.read(name)
	return &earlier, err
}

// Replace implements activities.Decisions.
func (d decisions) Replace(token string, opening activities.Digest, was activities.Carrying,
	by *activities.Carrying) error {
	name, err := openingName(token, opening)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now, err := d.read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && now != was:
		return nil
	case err != nil:
		return err
	case by == nil:
		return d.remove(name)
	}
	return d.replace(name, *by)
}

// Forget implements activities.Decisions.
func (d decisions) Forget(token string, entry activities.Digest) error {
	names, err := d.list()
	for _, name := range names {
		if !strings.HasPrefix(name, token+"-") {
			continue
		}
		note, failed := d.read(name)
		if failed == nil && note.Entry == entry {
			failed = d.remove(name)
		}
		err = errors.Join(err, failed)
	}
	return err
}
