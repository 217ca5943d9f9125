package record

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/plan"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// The folder "known" has, for each state that this worker made, the configuration that made it: a
// file per lineage and serial. Such a file stays true for ever, so it is written once, by whoever
// is first, and a late writer does no harm. Beside these it has, for each folder, the last one of them:
// what is in the folder by now may be beyond terraform.

func (s *Store) knownFile(lineage string, serial uint64) string {
	return filepath.Join(s.known, fmt.Sprintf("%s-%d", filepath.Base(lineage), serial))
}

func (s *Store) lastFile(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(s.known, "folder-"+hex.EncodeToString(sum[:16]))
}

// FindKnown returns the configuration that made a state, or nil.
func (s *Store) FindKnown(of *state.State) (*configuration.Bundle, error) {
	if !of.Exists() {
		return nil, nil
	}
	return s.readKnown(s.knownFile(of.Lineage, of.Serial))
}

// FindLast returns the last configuration of a folder that is known to have made a state, or nil.
func (s *Store) FindLast(dir string) (*configuration.Bundle, error) {
	return s.readKnown(s.lastFile(dir))
}

func (s *Store) readKnown(file string) (*configuration.Bundle, error) {
	sealed, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b := &configuration.Bundle{}
	return b, s.seal.Decrypt(filepath.Base(file), sealed, b)
}

// KeepKnown keeps the configuration that made a state, in place of those of older states of its
// lineage. Records of steps that can still be undone have copies of their own.
func (s *Store) KeepKnown(of *state.State, b configuration.Bundle) error {
	if !of.Exists() {
		return nil
	}
	file := s.knownFile(of.Lineage, of.Serial)
	sealed, err := s.seal.Encrypt(filepath.Base(file), b)
	if err != nil {
		return err
	}
	if err := durable.Create(file, sealed); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	last := s.lastFile(b.Dir)
	if sealed, err = s.seal.Encrypt(filepath.Base(last), b); err == nil {
		err = durable.Replace(last, sealed)
	}
	if err != nil {
		return err
	}
	older, err := filepath.Glob(filepath.Join(s.known, filepath.Base(of.Lineage)+"-*"))
	for _, f := range older {
		serial, perr := strconv.ParseUint(f[strings.LastIndexByte(f, '-')+1:], 10, 64)
		if perr == nil && serial < of.Serial {
			err = errors.Join(err, os.Remove(f))
		}
	}
	return err
}

// UndoPlan says how a step will be undone.
type UndoPlan string

const (
	ToNothing  UndoPlan = "nothing"  // there was nothing: everything is destroyed
	ToKnown    UndoPlan = "known"    // the configuration that this worker applied before
	ToPrevious UndoPlan = "previous" // the configuration that the step names
	BySubtract UndoPlan = "subtract" // the step only adds: what it added is destroyed
	Nowhere    UndoPlan = "nowhere"  // the step changes nothing
)

// Sentence tells people how a step would be undone.
func (b UndoPlan) Sentence() string {
	switch b {
	case ToNothing:
		return "Everything that the step makes is destroyed; there was nothing before."
	case ToKnown:
		return "What the step adds is destroyed, then the configuration that this worker applied before is applied again."
	case ToPrevious:
		return "What the step adds is destroyed, then the configuration in previous is applied again."
	case BySubtract:
		return "The step only adds: what it adds is destroyed."
	}
	return "The step changes nothing."
}

// DescribeUndo tells people how a step that does these actions would be undone.
func DescribeUndo(b UndoPlan, actions []plan.Action) string {
	text := []string{b.Sentence()}
	for _, c := range []struct {
		is       func(plan.Action) bool
		sentence string
	}{
		{func(a plan.Action) bool { return a.Imported }, "What it imports is forgotten again, not destroyed."},
		{func(a plan.Action) bool { return a.From != "" }, "What it moves is moved back."},
		{func(a plan.Action) bool { return a.Kind == plan.Forget }, "What it forgets is imported again by its id."},
	} {
		if slices.ContainsFunc(actions, c.is) {
			text = append(text, c.sentence)
		}
	}
	return strings.Join(text, " ")
}
