package host

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// passWindow is for how long a pass stays that no attempt, undo or release has asked for: longer than
// any attempt takes.
const passWindow = 30 * 24 * time.Hour

// passes are what the policy of this host has let act: a note for each token.
type passes struct{ notes[activities.Pass] }

func passesOf(c Config) passes {
	return passes{notes[activities.Pass]{filepath.Join(c.State, "passes"), passWindow, time.Now,
		"what a step was let do"}}
}

// Find implements activities.Passes. What is asked for stays.
func (p passes) Find(token string) (pass activities.Pass, isThere bool, err error) {
	if err := checkToken(token); err != nil {
		return pass, false, err
	}
	pass, err = p.read(token)
	if errors.Is(err, fs.ErrNotExist) {
		return pass, false, nil
	}
	if err == nil {
		err = p.touch(token)
	}
	return pass, err == nil, err
}

// Keep implements activities.Passes.
func (p passes) Keep(token string, pass activities.Pass) error {
	if err := errors.Join(checkToken(token), p.prepare()); err != nil {
		return err
	}
	return p.replace(token, pass)
}

// Forget implements activities.Passes.
func (p passes) Forget(token string) error {
	if !tokenForm.MatchString(token) { // it never had one
		return nil
	}
	return p.remove(token)
}
