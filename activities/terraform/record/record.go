// Package record keeps what an undo needs: the records of steps, known configurations, and marks of
// the states that were left.
package record

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/plan"
	"github.com/seed-62bf7108/unwind/activities/terraform/seal"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
)

// Store keeps what undos need: the records of tokens, the configurations that made the states that
// this worker has left, and marks of these states.
type Store struct {
	seal *seal.Cipher
	// known is the folder of known configurations, states that of the marks, and kept that of what
	// checkpoints hold.
	known, states, kept string
}

// Open opens the store in the folders of a worker and of its journal. holding says that the journal
// has tokens already.
func Open(dir, journalDir string, holding bool) (*Store, error) {
	s := &Store{known: filepath.Join(dir, "known"), states: filepath.Join(journalDir, "states"),
		kept: filepath.Join(dir, "kept")}
	for _, folder := range []string{s.known, s.kept} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
	}
	var err error
	s.seal, err = seal.OpenCipher(filepath.Join(dir, "key"), holding)
	return s, err
}

// Record is the undo record: durable before terraform is started to change anything.
type Record struct {
	journal.Owned
	Version int               `json:"v"`
	Want    activities.Digest `json:"want,omitempty"`
	Dir     string            `json:"dir"`
	// Had: there was a state; Backup: there was a backup of it.
	Had    bool `json:"had,omitempty"`
	Backup bool `json:"backup,omitempty"`
	// Lineage, Serial and Addresses are those of the state before.
	Lineage   string   `json:"lineage,omitempty"`
	Serial    uint64   `json:"serial,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// Planned is what the step is going to do. Unchanged: nothing, so there is nothing to undo.
	Planned   []plan.Action `json:"planned,omitempty"`
	Unchanged bool          `json:"unchanged,omitempty"`
	// Drifted are planned addresses whose objects were not as the state said.
	Drifted []string `json:"drifted,omitempty"`
	// Sources describes the data sources that do something.
	Sources []string `json:"sources,omitempty"`
	// Back is how the step will be undone.
	Back UndoPlan `json:"back"`
	// Checkpoint is what a restore goes back to; empty for any other step. Destroys: there was nothing
	// then, so that all is destroyed.
	Checkpoint string `json:"checkpoint,omitempty"`
	Destroys   bool   `json:"destroys,omitempty"`
	// Sealed holds the contents, encrypted.
	Sealed []byte `json:"sealed"`
}

const recordVersion = 1

// Contents are the parts of a record that can hold secrets.
type Contents struct {
	// Forward is the configuration that the step applies, with the lock file that init made.
	Forward configuration.Bundle `json:"forward"`
	// Prior is the configuration to go back to, if Back needs one.
	Prior *configuration.Bundle `json:"prior,omitempty"`
	// State is the state before, as it stood.
	State []byte `json:"state,omitempty"`
	// Secrets are values that an undo must not show either.
	Secrets []string `json:"secrets,omitempty"`
	// Before and After are the files of the folder before a restore, and those that it puts there; Goal
	// is the state of its checkpoint.
	Before configuration.Files `json:"before,omitempty"`
	After  configuration.Files `json:"after,omitempty"`
	Goal   []byte              `json:"goal,omitempty"`
}

// LeftState is the state that the step left.
type LeftState struct {
	Digest  activities.Digest `json:"digest"`
	Lineage string            `json:"lineage"`
	Serial  uint64            `json:"serial"`
	// Refused are the refusals of the step's runs, and Ran the provisioners that they ran: their
	// output is removed when the step is done.
	Ran     []stream.Provisioning `json:"ran,omitempty"`
	Refused []string              `json:"refused,omitempty"`
	// Sealed holds the state, encrypted.
	Sealed []byte `json:"sealed"`
}

// The documents of a token besides the journal's own.
const (
	DocLeft    = "left"
	DocCleared = "cleared" // an undo has looked for drift, found none or was forced, and begun to change things
)

// Cleared is the document DocCleared.
type Cleared struct {
	At time.Time `json:"at"`
	// Forced: a person has decided to go on in spite of drift.
	Forced bool `json:"forced,omitempty"`
}

// Read reads a token's record; found is false if there is none.
func (s *Store) Read(ctx context.Context, t *journal.Token) (r Record, c Contents, found bool, err error) {
	if found, err = t.Read(journal.Record, &r); err != nil || !found {
		return r, c, found, err
	}
	if r.Version != recordVersion {
		return r, c, true, activities.Errorf(activities.UnknownFormat,
			"recorded by a version that this one cannot undo: the record has format %d, and this worker knows %d; run a "+
				"worker of the version that recorded it",
			r.Version, recordVersion)
	}
	err = s.seal.Decrypt(journal.Record, r.Sealed, &c)
	activities.MaskerFrom(ctx).Add(c.Secrets...)
	return r, c, true, err
}

// ReadLeft reads what a step left; found is false if it did not get that far.
func (s *Store) ReadLeft(ctx context.Context, t *journal.Token) (left *state.State, found bool, err error) {
	var l LeftState
	if found, err = t.Read(DocLeft, &l); err != nil || !found {
		return nil, found, err
	}
	var raw []byte
	if err := s.seal.Decrypt(DocLeft, l.Sealed, &raw); err != nil {
		return nil, true, err
	}
	left, err = state.ParseHidden(ctx, raw)
	return left, true, err
}

// appliedRecord is the result of the step, encrypted: values are masked only in what leaves the
// worker.
type appliedRecord struct {
	Sealed []byte `json:"sealed"`
}

// ReadApplied reads the result of a step; found is false if the step is not done.
func (s *Store) ReadApplied(t *journal.Token) (r activities.Result, found bool, err error) {
	var done appliedRecord
	if found, err = t.Read(journal.Applied, &done); err != nil || !found {
		return r, found, err
	}
	return r, true, s.seal.Decrypt(journal.Applied, done.Sealed, &r)
}

// WriteApplied stores the result; if there is one already, r becomes that.
func (s *Store) WriteApplied(t *journal.Token, r *activities.Result) error {
	sealed, err := s.seal.Encrypt(journal.Applied, r)
	if err != nil {
		return err
	}
	done := appliedRecord{sealed}
	if _, err := t.Create(journal.Applied, &done); err != nil {
		return err
	}
	return s.seal.Decrypt(journal.Applied, done.Sealed, r)
}

// Drop removes the records of a token. The fate and the result stay.
func (s *Store) Drop(t *journal.Token) error {
	if err := s.DropKept(t); err != nil {
		return err
	}
	docs := []string{journal.Record, DocLeft}
	offers, err := filepath.Glob(filepath.Join(t.Dir(), DocOffer("*")))
	if err != nil {
		return err
	}
	for _, offer := range offers {
		docs = append(docs, filepath.Base(offer))
	}
	for _, doc := range docs {
		if err := t.Drop(doc); err != nil {
			return err
		}
	}
	return nil
}

// Sign returns what only this worker can make of v, for a purpose.
func (s *Store) Sign(purpose string, v any) (string, error) { return s.seal.Sign(purpose, v) }

// Seal encrypts the contents of a record into it.
func (s *Store) Seal(r *Record, c Contents) (err error) {
	r.Version = recordVersion
	r.Sealed, err = s.seal.Encrypt(journal.Record, c)
	return err
}

// WriteLeft stores what a step has left: l, and the state itself.
func (s *Store) WriteLeft(t *journal.Token, l LeftState, now *state.State) (err error) {
	l.Digest, l.Lineage, l.Serial = now.Digest(), now.Lineage, now.Serial
	if l.Sealed, err = s.seal.Encrypt(DocLeft, now.Raw); err != nil {
		return err
	}
	_, err = t.Create(DocLeft, &l)
	return err
}

// ForeignChanges are the things in the state that were neither there before nor planned.
func (r Record) ForeignChanges(now *state.State) []string {
	var lines []string
	for address := range now.Managed() {
		if !slices.Contains(r.Addresses, address) && !r.PlansFor(address) {
			lines = append(lines, "+ "+address)
		}
	}
	if r.Lineage != "" && now.Exists() && now.Lineage != r.Lineage {
		lines = append(lines, "~ lineage of the state")
	}
	slices.Sort(lines)
	return lines
}

// PlansFor reports whether the step was going to touch the object at address.
func (r Record) PlansFor(address string) bool { return len(r.ActionsAt(address)) > 0 }

// ActionsAt are the planned actions on objects that stand at an address before or after.
func (r Record) ActionsAt(address string) []plan.Action {
	address, _, _ = strings.Cut(address, " (deposed")
	return slices.DeleteFunc(slices.Clone(r.Planned), func(a plan.Action) bool {
		at, _, _ := strings.Cut(a.Address, " (deposed")
		return at != address && a.From != address
	})
}
