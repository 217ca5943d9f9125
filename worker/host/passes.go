package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// passWindow is for how long a pass stays that no attempt, undo or release has asked for: longer than
// any attempt takes.
const passWindow = 30 * 24 * time.Hour

// passes are what the policy of this host has let act: a note for each token.
type passes struct {
	notes[activities.Pass]
	sync.Mutex // from judging a change until its pass is kept

	reading sync.Mutex
	known   map[string]passAt // by token, so that a history does not read every note again
}

// passAt is a pass as it was read, and when its note had been written.
type passAt struct {
	activities.Pass
	written time.Time
}

func passesOf(c Config) *passes {
	return &passes{notes: notes[activities.Pass]{filepath.Join(c.State, "passes"), passWindow, time.Now,
		"what a step was let do"}}
}

// History implements activities.Passes.
func (p *passes) History(task string) (h activities.History, err error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	all, err := p.readAll()
	if err != nil {
		return h, err
	}
	h.By = map[string]int64{}
	for _, pass := range all {
		if pass.Task != task {
			continue
		}
		h.Steps++
		h.By[pass.Action]++
		h.Added, h.Removed, h.Changed = h.Added+pass.Added, h.Removed+pass.Removed, h.Changed+pass.Changed
	}
	return h, nil
}

// readAll reads the notes that are new, or were written since.
func (p *passes) readAll() (map[string]passAt, error) {
	files, err := os.ReadDir(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all := make(map[string]passAt, len(files))
	for _, f := range files {
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(f.Name(), ".") { // it is gone, or being written
			continue
		}
		if err != nil {
			return nil, err
		}
		pass, isKnown := p.known[f.Name()]
		if !isKnown || !pass.written.Equal(info.ModTime()) {
			pass.written = info.ModTime()
			if pass.Pass, err = p.read(f.Name()); errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return nil, err
			}
		}
		all[f.Name()] = pass
	}
	p.known = all
	return all, nil
}

// Find implements activities.Passes. What is asked for stays.
func (p *passes) Find(token string) (pass activities.Pass, isThere bool, err error) {
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
func (p *passes) Keep(token string, pass activities.Pass) error {
	if err := errors.Join(checkToken(token), p.prepare()); err != nil {
		return err
	}
	return p.replace(token, pass)
}

// Forget implements activities.Passes.
func (p *passes) Forget(token string) error {
	if !tokenForm.MatchString(token) { // it never had one
		return nil
	}
	return p.remove(token)
}
