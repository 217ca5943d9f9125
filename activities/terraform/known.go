package terraform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// The folder "known" has, for each state that this worker made, the configuration that made it: a file per lineage and
// serial. Such a file stays true for ever, so it is written once, by whoever is first, and a late writer does no harm.

func (w *world) knownFile(lineage string, serial uint64) string {
	return filepath.Join(w.State, "known", fmt.Sprintf("%s-%d", filepath.Base(lineage), serial))
}

// findKnown returns the configuration that made a state, or nil.
func (w *world) findKnown(s *state) (*bundle, error) {
	if !s.exists() {
		return nil, nil
	}
	file := w.knownFile(s.Lineage, s.Serial)
	sealed, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b := &bundle{}
	return b, w.seal.decrypt(filepath.Base(file), sealed, b)
}

// keepKnown keeps the configuration that made a state, in place of those of older states of its lineage. Records of steps
// that can still be undone have copies of their own.
func (w *world) keepKnown(s *state, b bundle) error {
	if !s.exists() {
		return nil
	}
	file := w.knownFile(s.Lineage, s.Serial)
	sealed, err := w.seal.encrypt(filepath.Base(file), b)
	if err != nil {
		return err
	}
	if err := writeLinked(file, sealed); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	older, err := filepath.Glob(filepath.Join(w.State, "known", filepath.Base(s.Lineage)+"-*"))
	for _, f := range older {
		serial, perr := strconv.ParseUint(f[strings.LastIndexByte(f, '-')+1:], 10, 64)
		if perr == nil && serial < s.Serial {
			err = errors.Join(err, os.Remove(f))
		}
	}
	return err
}

// undoPlan says how a step will be undone.
type undoPlan string

const (
	toNothing  undoPlan = "nothing"  // there was nothing: everything is destroyed
	toKnown    undoPlan = "known"    // the configuration that this worker applied before
	toPrevious undoPlan = "previous" // the configuration that the step names
	bySubtract undoPlan = "subtract" // the step only adds: what it added is destroyed
	nowhere    undoPlan = "nowhere"  // the step changes nothing
)

// sentence tells people how a step would be undone.
func (b undoPlan) sentence() string {
	switch b {
	case toNothing:
		return "Everything that the step makes is destroyed; there was nothing before."
	case toKnown:
		return "What the step adds is destroyed, then the configuration that this worker applied before is applied again."
	case toPrevious:
		return "What the step adds is destroyed, then the configuration in previous is applied again."
	case bySubtract:
		return "The step only adds: what it adds is destroyed."
	}
	return "The step changes nothing."
}

// unpreparedError refuses a step that could not be undone.
func unpreparedError(dir string, s *state) error {
	return activities.Errorf(activities.Refused, "the state of %s holds %d objects, made by a configuration that this worker does not "+
		"know, so the step could not be undone. Name a folder with that configuration in previous, or apply it unchanged through "+
		"%s first: from then on it is known", dir, len(s.managed()), Action)
}
