package file

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Config is what the world needs from its worker.
type Config struct {
	// Roots are the folders that steps may change; anything else is refused. Each must exist and be
	// writable: it gets a folder .unwind (mode 0700) with the journal and what steps stage and keep,
	// since only a rename within one filesystem is atomic. Workers may share a root.
	Roots []string
	// LookOnly opens the world for its Specs and for Preflight only, and makes nothing.
	LookOnly bool
}

// storeName is the folder in each root that belongs to this package.
const storeName = ".unwind"

// The folders of a store.
const (
	stageDir = "stage" // stage/TOKEN/ATTEMPT/N/NAME: the tickets of a forward
	undoDir  = "undo"  // undo/TOKEN/ATTEMPT/N: the tickets of an undo; undo/TOKEN/kept: the forward's, taken away from it
	redoDir  = "redo"  // redo/TOKEN/ATTEMPT/ATTEMPT/N/NAME: what a rollback has removed, until it is released
	trashDir = "trash" // what may be deleted
)

// world is the set of roots; it never changes after New.
type world struct{ roots []*root }

// root is one allowed folder.
type root struct {
	path    string // clean, without symlinks
	given   string // as the config names it
	name    string // its part in a journal ID
	dir     *os.Root
	store   *os.Root
	storeAt *os.File // the store's folder, for calls that os.Root lacks
	journal *journal.Journal
	dev     uint64
	ino     uint64 // of the store's folder
}

// New opens the roots.
func New(c Config) (activities.World, error) {
	if len(c.Roots) == 0 {
		return activities.World{}, errors.New("file: Roots is empty; name the folders that steps may change")
	}
	w := &world{}
	for _, path := range c.Roots {
		r, err := openRoot(path, c.LookOnly)
		if err != nil {
			return activities.World{}, fmt.Errorf("file: root %s: %w", path, err)
		}
		for _, other := range w.roots {
			if !c.LookOnly && other.dev == r.dev && other.ino == r.ino {
				return activities.World{}, fmt.Errorf(
					"file: roots %s and %s are one folder (a symlink or a bind mount): a step through one name would not know "+
						"what a step through the other has done; name it once",
					other.given, r.given)
			}
		}
		w.roots = append(w.roots, r)
	}
	// The deepest first: a path belongs to that one.
	slices.SortFunc(w.roots, func(a, b *root) int { return len(b.path) - len(a.path) })
	opened := activities.World{
		Name:    "file",
		Actions: []activities.Action{newAction(w, writeVerb{}), newAction(w, deleteVerb{})},
		Journal: func(context.Context) (string, error) { return "", nil },
	}
	if !c.LookOnly {
		opened.Journal = func(context.Context) (string, error) { return w.markJournals() }
		opened.Records = w.records()
	}
	return opened, nil
}

func openRoot(path string, lookOnly bool) (*root, error) {
	if !filepath.IsAbs(path) {
		return nil, errors.New("give an absolute path")
	}
	realPath, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(realPath))
	r := &root{path: realPath, given: filepath.Clean(path), name: hex.EncodeToString(sum[:6])}
	if r.dir, err = os.OpenRoot(realPath); err != nil || lookOnly {
		return r, err
	}
	if err := r.openStore(); err != nil {
		return nil, err
	}
	r.journal, err = journal.Open(filepath.Join(realPath, storeName, "journal"))
	return r, err
}

func (r *root) openStore() (err error) {
	if err := r.dir.Mkdir(storeName, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := r.dir.Lstat(storeName)
	if err != nil {
		return err
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is %s; it must be a folder with mode 0700", storeName, info.Mode())
	}
	if r.store, err = r.dir.OpenRoot(storeName); err != nil {
		return err
	}
	if r.storeAt, err = r.store.Open("."); err != nil {
		return err
	}
	for _, name := range []string{stageDir, undoDir, redoDir, trashDir} {
		if err := r.store.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	// A root is often a working tree.
	if err := r.store.WriteFile(".gitignore", []byte("*\n"), 0o600); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(r.storeAt.Fd()), &st); err != nil {
		return err
	}
	r.dev, r.ino = st.Dev, st.Ino
	if err := r.probeExchange(); err != nil {
		return err
	}
	return r.emptyTrash()
}

// probeExchange makes sure that this filesystem can exchange two files.
func (r *root) probeExchange() error {
	a, b := filepath.Join(trashDir, rand.Text()), filepath.Join(trashDir, rand.Text())
	for _, name := range []string{a, b} {
		if err := r.store.WriteFile(name, nil, 0o600); err != nil {
			return err
		}
	}
	if err := unix.Renameat2(r.storeFD(), a, r.storeFD(), b, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf(
			"this filesystem cannot exchange two files in one step (renameat2: %w); use a local one, such as ext4, xfs or btrfs",
			err)
	}
	return errors.Join(r.store.Remove(a), r.store.Remove(b))
}

// emptyTrash empties the trash.
func (r *root) emptyTrash() error {
	f, err := r.store.Open(trashDir)
	if err != nil {
		return err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	for _, name := range names {
		r.discard(filepath.Join(trashDir, name))
	}
	return err
}

// throwAway removes a path of the store, atomically for others.
func (r *root) throwAway(path string) error {
	trash := filepath.Join(trashDir, rand.Text())
	if err := unix.Renameat2(r.storeFD(), path, r.storeFD(), trash, unix.RENAME_NOREPLACE); err != nil && !isLost(err) {
		return &fs.PathError{Op: "rename", Path: path, Err: err}
	}
	r.discard(trash)
	return nil
}

// discard deletes from the trash what it can: another worker may be doing the same.
func (r *root) discard(path string) { _ = r.store.RemoveAll(path) }

// storeFD is the descriptor of the store's folder, open as long as the world lives.
func (r *root) storeFD() int { return int(r.storeAt.Fd()) }

// journalIDs is the ID of all journals together: "ROOT=ID,ROOT=ID".
func (w *world) journalIDs() string {
	ids := make([]string, len(w.roots))
	for i, r := range w.roots {
		ids[i] = r.name + "=" + r.journal.ID()
	}
	slices.Sort(ids)
	return strings.Join(ids, ",")
}

// markJournals adds an epoch to the journal of each root, and returns what a Place holds of them. A
// root whose disk is full does not keep steps from the others.
func (w *world) markJournals() (string, error) {
	var marks []string
	var problems []error
	for _, r := range w.roots {
		mark, err := r.journal.Mark()
		if err != nil {
			problems = append(problems, err)
			continue
		}
		marks = append(marks, r.name+"="+mark)
	}
	if len(marks) == 0 {
		return "", errors.Join(problems...)
	}
	slices.Sort(marks)
	return strings.Join(marks, ","), nil
}

// checkJournal refuses an entry that was made before r's journal was, or that r's journal has
// forgotten: see journal.Journal.Check.
func (r *root) checkJournal(e activities.Entry) error {
	for each := range strings.SplitSeq(e.Place.Journal, ",") {
		if mark, named := strings.CutPrefix(each, r.name+"="); named {
			return r.journal.Check(mark)
		}
	}
	return activities.Errorf(activities.WrongPlace, "the entry names no journal of %s", r.path)
}

// openToken opens the token of a forward in its root.
func (w *world) openToken(r *root, e activities.Entry) (*journal.Token, error) {
	if err := r.checkJournal(e); activities.TypeOf(err) == activities.DamagedRecord {
		return nil, err
	} else if err != nil && activities.TypeOf(err) != activities.WrongPlace {
		return nil, err
	} else if err != nil {
		return nil, activities.Errorf(activities.WrongPlace,
			"the step belongs to the journals %q, and that of %s is not among them (it could not be written when the task "+
				"was compiled, or is another one): it is %s=%s", e.Place.Journal, r.path, r.name, r.journal.ID())
	}
	return r.journal.Token(e.Token)
}

// rootToken is a token in one of the roots.
type rootToken struct {
	*root
	token *journal.Token
	id    string
}

// openTokens opens the entry's token in all roots where its record can be: the entry does not say
// in which root the step acts.
func (w *world) openTokens(e activities.Entry) ([]rootToken, error) {
	given := strings.Split(e.Place.Journal, ",")
	var all []rootToken
	known := false
	var rewound error
	for _, r := range w.roots {
		switch err := r.checkJournal(e); {
		case activities.TypeOf(err) == activities.DamagedRecord:
			rewound = err
		case activities.TypeOf(err) == activities.WrongPlace:
			continue
		case err != nil:
			return nil, err
		}
		t, err := r.journal.Token(e.Token)
		if err != nil {
			return nil, err
		}
		fate, err := t.Fate()
		if err != nil {
			return nil, err
		}
		var rec record
		found, err := t.Read(journal.Record, &rec)
		if err != nil && activities.TypeOf(err) != activities.DamagedRecord { // it is here, and fails whoever reads it
			return nil, err
		}
		known = known || found || fate != journal.Undecided
		all = append(all, rootToken{r, t, e.Token})
	}
	// With a journal missing, or one that has forgotten, nobody can know that there is no record.
	if !known && rewound != nil {
		return nil, rewound
	}
	if len(all) == 0 || !known && len(all) < len(given) {
		return nil, activities.Errorf(activities.WrongPlace,
			"the step's journals are %q; this worker has %q: start it with the roots and the journals (%s in each root) "+
				"that it had", e.Place.Journal, w.journalIDs(), storeName)
	}
	return all, nil
}
