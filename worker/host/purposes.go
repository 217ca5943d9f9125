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

// purposes are what steps on this host were for, within a window: a file for each in a folder of
// the state folder, named by the purpose and the step's token. Nothing is locked: who begins writes
// a note before it looks for others, so of two that begin at once both are asked about.
type purposes struct {
	dir    string
	window time.Duration
	now    func() time.Time
}

func purposesOf(c Config) purposes {
	return purposes{filepath.Join(c.State, "purposes"), c.Purposes, time.Now}
}

// noted is the content of a file.
type noted struct {
	activities.Deed

	// Let says that the step may act, or has acted. Until then it may have to ask.
	Let bool `json:"let,omitempty"`
}

var tokenForm = regexp.MustCompile(`^[0-9A-Za-z]+$`)

func (p purposes) path(purpose activities.Digest, token string) (string, error) {
	if !tokenForm.MatchString(token) {
		return "", activities.Errorf(activities.Refused, "%q is no token of a step", token)
	}
	return filepath.Join(p.dir, prefixOf(purpose)+token), nil
}

// prefixOf is what the names of files begin with that are of one purpose.
func prefixOf(purpose activities.Digest) string {
	return strings.TrimPrefix(string(purpose), "sha256:") + "-"
}

// Begin implements activities.Purposes.
func (p purposes) Begin(purpose activities.Digest, d activities.Deed) (earlier *activities.Deed, isNew bool,
	err error) {
	path, err := p.path(purpose, d.Token)
	if err != nil {
		return nil, false, err
	}
	if err := p.prune(); err != nil {
		return nil, false, err
	}
	d.At = p.now()
	content, err := json.Marshal(noted{Deed: d})
	if err != nil {
		return nil, false, err
	}
	switch err := durable.Create(path, content); {
	case errors.Is(err, fs.ErrExist):
		own, err := readNoted(path)
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
	files, err := os.ReadDir(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), prefixOf(purpose)) {
			continue
		}
		n, err := readNoted(filepath.Join(p.dir, f.Name()))
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
	path, err := p.path(purpose, d.Token)
	if err != nil {
		return err
	}
	n, err := readNoted(path)
	if err != nil || n.Let {
		return err
	}
	n.Let = true
	content, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return durable.Replace(path, content)
}

// Withdraw implements activities.Purposes.
func (p purposes) Withdraw(token string) error {
	files, err := os.ReadDir(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), "-"+token) {
			return p.remove(f.Name())
		}
	}
	return nil
}

// prune makes the folder, and forgets what is older than the window.
func (p purposes) prune() error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	files, err := os.ReadDir(p.dir)
	for _, f := range files {
		info, err := f.Info()
		if err == nil && p.now().After(info.ModTime().Add(p.window)) {
			err = p.remove(f.Name())
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

func (p purposes) remove(name string) error {
	if err := os.Remove(filepath.Join(p.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.SyncFolder(p.dir)
}

func readNoted(path string) (n noted, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return n, err
	}
	if err := json.Unmarshal(content, &n); err != nil {
		return n, activities.Errorf(activities.DamagedRecord,
			"%s, which says what a step was for, is damaged (%v): see what was done lately, then remove it", path, err)
	}
	return n, nil
}
