package host

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// purposes are what steps on this host were for, within a window: notes that are named by the purpose
// and the step's token. Who begins writes a note before it looks for others, so of two that begin at
// once both are asked about.
type purposes struct{ notes[noted] }

func purposesOf(c Config) purposes {
	return purposes{notes[noted]{filepath.Join(c.State, "purposes"), c.Purposes, time.Now, "what a step was for"}}
}

// noted is the content of a file.
type noted struct {
	activities.Deed

	// Let says that the step may act, or has acted. Until then it may have to ask.
	Let bool `json:"let,omitempty"`
}

// deedName is what the note of a deed for a purpose is called.
func deedName(purpose activities.Digest, token string) (string, error) {
	return prefixOf(purpose) + token, checkToken(token)
}

// prefixOf is what the names of files begin with that are of one purpose.
func prefixOf(purpose activities.Digest) string {
	return strings.TrimPrefix(string(purpose), "sha256:") + "-"
}

// Begin implements activities.Purposes.
func (p purposes) Begin(purpose activities.Digest, d activities.Deed) (earlier *activities.Deed, isNew bool,
	err error) {
	name, err := deedName(purpose, d.Token)
	if err := errors.Join(err, p.prepare(), p.prune()); err != nil {
		return nil, false, err
	}
	d.At = p.now()
	switch err := p.create(name, noted{Deed: d}); {
	case errors.Is(err, fs.ErrExist):
		own, err := p.read(name)
		if err != nil || own.Let {
			return nil, false, err
		}
	case err != nil:
		return nil, false, err
	default:
		isNew = true
	}
	earlier, err = p.Earlier(purpose, d)
	return earlier, isNew, err
}

// Earlier implements activities.Purposes.
func (p purposes) Earlier(purpose activities.Digest, d activities.Deed) (last *activities.Deed, err error) {
	names, err := p.list()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, prefixOf(purpose)) {
			continue
		}
		n, err := p.read(name)
		if errors.Is(err, fs.ErrNotExist) { // it was withdrawn meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		if n.Task != d.Task && p.now().Before(n.At.Add(p.window)) && (last == nil || n.At.After(last.At)) {
			last = &n.Deed
		}
	}
	return last, nil
}

// Let implements activities.Purposes.
func (p purposes) Let(purpose activities.Digest, d activities.Deed) error {
	name, err := deedName(purpose, d.Token)
	if err != nil {
		return err
	}
	n, err := p.read(name)
	if err != nil || n.Let {
		return err
	}
	n.Let = true
	return p.replace(name, n)
}

// Withdraw implements activities.Purposes.
func (p purposes) Withdraw(token string) error {
	names, err := p.list()
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "-"+token) {
			return p.remove(name)
		}
	}
	return nil
}
