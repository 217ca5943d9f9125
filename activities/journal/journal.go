package journal

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/filelock"
)

// Names of the documents that every world uses; a world may add its own.
const (
	Record  = "record"
	Applied = "applied"
	Outcome = "outcome"

	fateName = "fate"
	idName   = "id"
	tokens   = "tokens"
	lockName = "lock"

	// spareSuffix ends the second name of a document that nothing else tells the content of: it is
	// read where the first has been deleted.
	spareSuffix = "-spare"
)

// hasSpare reports whether a document has a second name: the record, and the documents that say who
// needs it.
func hasSpare(name string) bool { return name == Record || strings.HasPrefix(name, holdPrefix) }

// Journal is a folder of tokens. It is safe for concurrent use by goroutines and processes.
type Journal struct {
	dir       string
	id        string
	series    series
	forgotten forgotten
}

// Open opens the journal in dir, or makes it (mode 0700) with a new random ID.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(filepath.Join(dir, tokens), 0o700); err != nil {
		return nil, fmt.Errorf("journal %s: %w", dir, err)
	}
	fresh := make([]byte, 8)
	rand.Read(fresh)
	id := hex.EncodeToString(fresh)
	if _, err := (folder{dir: dir}).create(idName, &id); err != nil {
		return nil, fmt.Errorf("journal %s: %w", dir, err)
	}
	return &Journal{dir: dir, id: id}, nil
}

// ID is the journal's random ID.
func (j *Journal) ID() string { return j.id }

// Dir is the journal's folder.
func (j *Journal) Dir() string { return j.dir }

// Token opens the folder of a token. Nothing is made on the disk before the first document.
func (j *Journal) Token(token string) (*Token, error) {
	if len(token) != 32 || strings.Trim(token, "0123456789abcdef") != "" {
		return nil, activities.Errorf(activities.Refused, "token %q is not 32 hexadecimal digits", token)
	}
	return &Token{dir: filepath.Join(j.dir, tokens, token)}, nil
}

// Tokens lists the tokens that have a folder.
func (j *Journal) Tokens() ([]string, error) {
	es, err := os.ReadDir(filepath.Join(j.dir, tokens))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(es))
	for _, e := range es {
		names = append(names, e.Name())
	}
	return names, nil
}

// Token is the record of one token.
type Token struct{ dir string }

// Dir is the token's folder, for large parts of a record (blobs, bundles). It may not exist yet:
// see Make.
func (t *Token) Dir() string { return t.dir }

// Make makes the token's folder, and syncs it.
func (t *Token) Make() error {
	err := os.Mkdir(t.dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		// A writer that put something into the folder had synced it; one that only made it may have died
		// first.
		if empty, err := isEmpty(t.dir); err != nil || !empty {
			return err
		}
	} else if err != nil {
		return err
	}
	return syncDir(filepath.Dir(t.dir))
}

func isEmpty(dir string) (bool, error) {
	d, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer d.Close()
	if _, err = d.Readdirnames(1); errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// Create writes the document name once and syncs it. If it exists, created is false and *v is set
// to its content.
func (t *Token) Create(name string, v any) (created bool, err error) {
	if err := t.Make(); err != nil {
		return false, err
	}
	return t.folder().create(name, v)
}

// Staged is a document that is on the disk and has no name yet, so that it is not there.
type Staged struct {
	folder    folder
	name, tmp string
}

// Stage does the first half of Create, which takes as long as a sync of the disk: something else
// can be done meanwhile.
func (t *Token) Stage(name string, v any) (Staged, error) {
	if err := t.Make(); err != nil {
		return Staged{}, err
	}
	return t.folder().stage(name, v)
}

// Drop drops what has not been published.
func (s Staged) Drop() { os.Remove(s.tmp) }

// Read reads the document name into v; found is false if there is none. A digest that does not
// match, or a document of another token, is DamagedRecord.
func (t *Token) Read(name string, v any) (found bool, err error) { return t.folder().read(name, v) }

func (t *Token) folder() folder { return folder{t.dir, filepath.Base(t.dir)} }

// Has reports whether a document is there, whatever its content.
func (t *Token) Has(name string) (bool, error) {
	_, err := os.Lstat(filepath.Join(t.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// CheckNotLost is DamagedRecord where there is no record although there has been one: the history
// knows that the forward was done, or there is an Applied, or another document that is written
// after the record. A caller that has found no record calls it before that is taken to mean that
// the forward has never acted.
func (t *Token) CheckNotLost(isDone bool, later ...string) error {
	for _, name := range append(later, Applied) {
		found, err := t.Has(name)
		if err != nil {
			return err
		}
		isDone = isDone || found
	}
	if !isDone {
		return nil
	}
	return activities.Errorf(activities.DamagedRecord,
		"what the journal had of token %s is gone from %s, though the step has acted: nothing was touched; put it back, "+
			"or decide what becomes of the step",
		filepath.Base(t.dir), t.dir)
}

// Drop removes a document (a large part of a record after Release). The fate and the outcome cannot
// be dropped; the owner of a Record stays until Records.Forget.
func (t *Token) Drop(name string) error {
	if name == fateName || name == Outcome {
		return fmt.Errorf("journal: %s is a tombstone and stays", name)
	}
	if name == Record {
		if err := t.keepOwned(); err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(t.dir, Record+spareSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(filepath.Join(t.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(t.dir)
}

// Fate is the final decision about a token.
type Fate string

// A token is open, or has one of two fates, for ever.
const (
	Undecided Fate = "open"
	Undoing   Fate = "undoing"
	Releasing Fate = "releasing"
)

type fateDoc struct {
	Fate Fate      `json:"fate"`
	At   time.Time `json:"at"`
}

// Decide sets the token's fate if it is open, and returns its fate: the first decision wins.
func (t *Token) Decide(f Fate) (Fate, error) {
	fate, _, err := t.DecideFirst(f)
	return fate, err
}

// DecideFirst decides like Decide, and first says that this very call has decided: nothing has been
// done before that a decision precedes.
func (t *Token) DecideFirst(f Fate) (fate Fate, first bool, err error) {
	if undone, err := t.Has(Outcome); err != nil {
		return "", false, err
	} else if undone { // also where the fate has been deleted
		f = Undoing
	}
	doc := fateDoc{Fate: f, At: time.Now().UTC()}
	if first, err = t.Create(fateName, &doc); err != nil {
		return "", false, err
	}
	return doc.Fate, first, nil
}

// DecideUndoing ends the forwards of a token for good. First says that this very call has done so.
// It is Fenced if the token was released.
func (t *Token) DecideUndoing() (first bool, err error) {
	fate, first, err := t.DecideFirst(Undoing)
	if err == nil && fate != Undoing {
		err = activities.ReleasedError(filepath.Base(t.dir))
	}
	return first, err
}

// BeginUndo is DecideUndoing where no undo of the token is over: else it reads what that ended with.
func (t *Token) BeginUndo() (ended activities.Undone, isOver bool, err error) {
	if isOver, err = t.Read(Outcome, &ended); !isOver && err == nil {
		_, err = t.DecideUndoing()
	}
	return ended, isOver, err
}

// Fate reads the token's fate.
func (t *Token) Fate() (Fate, error) {
	var doc fateDoc
	found, err := t.Read(fateName, &doc)
	if err != nil {
		return Undecided, err
	}
	if found {
		return doc.Fate, nil
	}
	if undone, err := t.Has(Outcome); err != nil || undone { // the fate has been deleted
		return Undoing, err
	}
	return Undecided, nil
}

// DecideReleasing decides that a token is released, and returns its fate: Undoing if its undo has
// ended. It is Fenced while an undo has begun and not ended, or somebody holds the token, as they
// still need the record.
func (t *Token) DecideReleasing() (Fate, error) {
	if err := t.endHolding(); err != nil {
		return "", err
	}
	fate, err := t.Decide(Releasing)
	if err != nil || fate != Undoing {
		return fate, err
	}
	_, ended, err := t.Undone()
	if err == nil && !ended {
		err = activities.Errorf(activities.Fenced, "token %s is being undone: its record is still needed",
			filepath.Base(t.dir))
	}
	return fate, err
}

// CheckOpen is Fenced unless the token is open. A forward calls it before it leaves anything
// outside its own folder.
func (t *Token) CheckOpen() error {
	f, err := t.Fate()
	if err != nil {
		return err
	}
	if f != Undecided {
		return activities.Errorf(activities.Fenced, "token %s is %s: this forward came too late", filepath.Base(t.dir), f)
	}
	return nil
}

// Lock excludes other attempts of the same token, also in this process. A forward holds it while it
// runs; a fence never takes it, because a stopped process would hold it for ever. The returned
// function releases it.
func (t *Token) Lock(ctx context.Context) (unlock func(), err error) {
	if err := t.Make(); err != nil {
		return nil, err
	}
	l, err := filelock.Acquire(ctx, filepath.Join(t.dir, lockName))
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return nil, fmt.Errorf("another attempt of token %s is running: %w", filepath.Base(t.dir), ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("lock of token %s: %w", filepath.Base(t.dir), err)
	}
	return l.Release, nil
}

// envelope is the content of a document's file: the body, its digest, and whose it is, so that
// damage is detected.
type envelope struct {
	Digest string `json:"sha256"`
	// Of is the token and the name of the document; empty outside of tokens.
	Of   string          `json:"of,omitempty"`
	Body json.RawMessage `json:"body"`
}

// folder is a folder of documents, those of a token if it names one.
type folder struct{ dir, token string }

// of is what an envelope of the folder says whose it is.
func (f folder) of(name string) string {
	if f.token == "" {
		return ""
	}
	return f.token + "/" + name
}

func (f folder) create(name string, v any) (bool, error) {
	if found, err := f.read(name, v); found || err != nil {
		return false, errors.Join(err, syncDir(f.dir)) // its writer may not have come to this sync
	}
	staged, err := f.stage(name, v)
	if err != nil {
		return false, err
	}
	defer staged.Drop()
	return staged.Publish(v)
}

// stage writes a document that has no name yet, and syncs it.
func (f folder) stage(name string, v any) (Staged, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return Staged{}, err
	}
	sum := sha256.Sum256(body)
	raw, err := json.Marshal(envelope{hex.EncodeToString(sum[:]), f.of(name), body})
	if err != nil {
		return Staged{}, err
	}
	tmp, err := writeTemp(f.dir, name, raw)
	return Staged{f, name, tmp}, err
}

// Publish gives the document its name, and syncs that. If there is another already, created is
// false and *v is set to its content.
func (s Staged) Publish(v any) (created bool, err error) {
	if err := os.Link(s.tmp, filepath.Join(s.folder.dir, s.name)); err != nil {
		if !errors.Is(err, fs.ErrExist) {
			return false, err
		}
		_, err := s.folder.read(s.name, v)
		return false, errors.Join(err, syncDir(s.folder.dir))
	}
	if hasSpare(s.name) {
		if err := os.Link(s.tmp, filepath.Join(s.folder.dir, s.name+spareSuffix)); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			return false, err
		}
	}
	return true, syncDir(s.folder.dir)
}

func (f folder) read(name string, v any) (bool, error) {
	raw, err := os.ReadFile(filepath.Join(f.dir, name))
	if errors.Is(err, fs.ErrNotExist) && hasSpare(name) {
		raw, err = os.ReadFile(filepath.Join(f.dir, name+spareSuffix))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var e envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return true, damagedError(f.dir, name, err.Error())
	}
	if sum := sha256.Sum256(e.Body); hex.EncodeToString(sum[:]) != e.Digest {
		return true, damagedError(f.dir, name, "its content does not match its digest")
	}
	if e.Of != f.of(name) {
		return true, damagedError(f.dir, name, fmt.Sprintf("it is the document %q", e.Of))
	}
	reflect.ValueOf(v).Elem().SetZero() // fields that the document omits must not keep their old values
	if err := json.Unmarshal(e.Body, v); err != nil {
		return true, damagedError(f.dir, name, err.Error())
	}
	return true, nil
}

func damagedError(dir, name, why string) error {
	return activities.Errorf(activities.DamagedRecord, "%s: %s", filepath.Join(dir, name), why)
}

func writeTemp(dir, name string, raw []byte) (_ string, err error) {
	f, err := os.CreateTemp(dir, ".new-"+name+"-*")
	if err != nil {
		return "", err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(raw); err != nil {
		return "", err
	}
	return f.Name(), fsync(f)
}

// fsync is replaced by a test that counts calls.
var fsync = (*os.File).Sync

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return fsync(d)
}
