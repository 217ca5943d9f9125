package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// The folder "states" of the journal has a mark for each state that this worker has applied to:
// which one it left there. Without it nothing tells an older copy of a state from the state: to
// terraform, what was made since has never been.

// Mark is what this worker last left at the place of a state.
type Mark struct {
	// Place says whose it is, for people.
	Place string `json:"place"`
	// Removed: an undo has removed the state; whoever makes another one there is free to.
	Removed bool              `json:"removed,omitempty"`
	Lineage string            `json:"lineage,omitempty"`
	Serial  uint64            `json:"serial,omitempty"`
	Objects int               `json:"objects,omitempty"`
	Digest  activities.Digest `json:"digest,omitempty"`
}

// MarkOf is the mark of a state.
func MarkOf(s *state.State) Mark {
	return Mark{Lineage: s.Lineage, Serial: s.Serial, Objects: len(s.Managed()), Digest: s.Digest()}
}

// Regression says how the present state is not what became of the marked one; empty where it is.
func (m Mark) Regression(now *state.State) string {
	was := fmt.Sprintf("this worker left serial %d of lineage %s, with %s", m.Serial, m.Lineage,
		activities.CountOf(m.Objects, "object"))
	switch {
	case m.Lineage == "" || m.Removed:
		return ""
	case !now.Exists() && m.Objects > 0:
		return "the state is missing: " + was
	case now.Lineage != m.Lineage:
		if m.Objects == 0 {
			return "" // there is nothing that could be made twice
		}
		return fmt.Sprintf("the state has another lineage: it is serial %d of lineage %s, with %s; %s",
			now.Serial, now.Lineage, activities.CountOf(len(now.Managed()), "object"), was)
	case now.Serial < m.Serial:
		return fmt.Sprintf("the state went back from serial %d to serial %d, with %s; %s", m.Serial, now.Serial,
			activities.CountOf(len(now.Managed()), "object"), was)
	case now.Serial == m.Serial && m.Digest != "" && now.Digest() != m.Digest:
		return fmt.Sprintf("the state has other contents than this worker left under serial %d, with %s; %s", m.Serial,
			activities.CountOf(len(now.Managed()), "object"), was)
	}
	return ""
}

// SummarizeRegression is a regression in a few words.
func SummarizeRegression(regression string) string {
	return regexp.MustCompile(`[:,;].*`).ReplaceAllString(regression, "")
}

func (s *Store) markFile(place string) string {
	sum := sha256.Sum256([]byte(place + "\x00default")) // the only workspace that is supported
	return filepath.Join(s.states, hex.EncodeToString(sum[:16]))
}

// ReadMark returns the mark of the state at a place; an empty one where this worker has left none.
func (s *Store) ReadMark(place string) (m Mark, err error) {
	file := s.markFile(place)
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		if jerr := json.Unmarshal(raw, &m); jerr != nil {
			err = activities.Errorf(activities.DamagedRecord,
				"%s says which state this worker left, and cannot be read: %v; remove it "+
					"once you have made sure that the state is the right one", file, jerr)
		}
	}
	return m, err
}

// WriteMark replaces the mark of the state at a place, durably.
func (s *Store) WriteMark(place string, m Mark) error {
	m.Place = place
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	file := s.markFile(place)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return durable.Replace(file, raw)
}

// CheckRetry refuses to go on with a step whose state is older than the one that the step has
// found.
func (r Record) CheckRetry(now *state.State) error {
	found := Mark{Lineage: r.Lineage, Serial: r.Serial, Objects: len(r.Addresses)}
	if text := found.Regression(now); text != "" {
		return activities.Errorf(activities.UnknownOutcome,
			"since an earlier attempt of this step began, %s; what is not in it would be made again", text)
	}
	return nil
}
