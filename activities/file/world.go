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
	// Roots are the folders that steps may change; all else is refused. Each must be there, and must be writable: it
	// gets a folder .unwind (mode 0700) that holds the journal and what steps stage and keep, since only a rename within
	// one filesystem is atomic. Several workers may share a root.
	Roots []string
}

// storeName is the folder in each root that belongs to this package.
const storeName = ".unwind"

// The folders of a store.
const (
	stageDir = "stage" // stage/TOKEN/ATTEMPT/N/NAME: the tickets of a forward
	undoDir  = "undo"  // undo/TOKEN/ATTEMPT/N: the tickets of an undo; undo/TOKEN/kept: the forward's, taken away from it
	redoDir  = "redo"  // redo/TOKEN/ATTEMPT/ATTEMPT/N/NAME: what a rollback has taken away, until it is released
	trashDir = "trash" // what may be removed
)

// world is the roots; it never changes after New.
type world struct{ roots []*root }

// root is one allowed folder.
type root struct {
	path    string // clean, without symlinks
	given   string // as the config names it
	name    string // its part in a journal id
	dir     *os.Root
	store   *os.Root
	storeAt *os.File // the store's folder, for the calls that os.Root does not have
	journal *journal.Journal
	dev     uint64
}

// New opens the roots.
func New(c Config) (activities.World, error) {
	if len(c.Roots) == 0 {
		return activities.World{}, errors.New("file: Roots is empty; name the folders that steps may change")
	}
	w := &world{}
	for _, path := range c.Roots {
		r, err := openRoot(path)
		if err != nil {
			return activities.World{}, fmt.Errorf("file: root %s: %w", path, err)
		}
		if !slices.ContainsFunc(w.roots, func(other *root) bool { return other.path == r.path }) {
			w.roots = append(w.roots, r)
		}
	}
	// The deepest first: it is the one that a path belongs to.
	slices.SortFunc(w.roots, func(a, b *root) int { return len(b.path) - len(a.path) })
	return activities.World{
		Name:    "file",
		Actions: []activities.Action{newAction(w, write{}), newAction(w, remove{})},
		Journal: func(context.Context) (string, error) { return w.place(), nil },
		Records: w.records(),
	}, nil
}

func openRoot(path string) (*root, error) {
	if !filepath.IsAbs(path) {
		return nil, errors.New("give an absolute path")
	}
	realPath, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(realPath))
	r := &root{path: realPath, given: filepath.Clean(path), name: hex.EncodeToString(sum[:6])}
	if r.dir, err = os.OpenRoot(realPath); err != nil {
		return nil, err
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
		return fmt.Errorf("%s is %s; it must be a folder that only its owner may read", storeName, info.Mode())
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
	r.dev = st.Dev
	if err := r.probe(); err != nil {
		return err
	}
	return r.sweep()
}

// probe makes sure that two files can be exchanged in one step here.
func (r *root) probe() error {
	a, b := filepath.Join(trashDir, rand.Text()), filepath.Join(trashDir, rand.Text())
	for _, name := range []string{a, b} {
		if err := r.store.WriteFile(name, nil, 0o600); err != nil {
			return err
		}
	}
	if err := unix.Renameat2(r.at(), a, r.at(), b, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("this filesystem cannot exchange two files in one step (renameat2: %w); use a local one, such as ext4, xfs or btrfs", err)
	}
	return errors.Join(r.store.Remove(a), r.store.Remove(b))
}

// sweep empties the trash.
func (r *root) sweep() error {
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

// throwAway removes what is at a path of the store, in one step for everybody else.
func (r *root) throwAway(path string) error {
	trash := filepath.Join(trashDir, rand.Text())
	if err := unix.Renameat2(r.at(), path, r.at(), trash, unix.RENAME_NOREPLACE); err != nil && !lost(err) {
		return &fs.PathError{Op: "rename", Path: path, Err: err}
	}
	r.discard(trash)
	return nil
}

// discard removes what is in the trash as far as it can: another worker may be doing the same.
func (r *root) discard(path string) { _ = r.store.RemoveAll(path) }

// at is the store's folder for a call with a descriptor. It is open as long as the world lives.
func (r *root) at() int { return int(r.storeAt.Fd()) }

// place is the id of all journals together: "ROOT=ID,ROOT=ID".
func (w *world) place() string {
	ids := make([]string, len(w.roots))
	for i, r := range w.roots {
		ids[i] = r.name + "=" + r.journal.ID()
	}
	slices.Sort(ids)
	return strings.Join(ids, ",")
}

// here says whether r's journal was there when the entry was made; another one of the same root does not count.
func (r *root) here(e activities.Entry) bool {
	return slices.Contains(strings.Split(e.Place.Journal, ","), r.name+"="+r.journal.ID())
}

// forward opens the token of a forward in its root.
func (w *world) forward(r *root, e activities.Entry) (*journal.Token, error) {
	if !r.here(e) {
		return nil, activities.Errorf(activities.WrongPlace,
			"the step was given to the journals %q, and that of %s is not among them: it is %s=%s", e.Place.Journal, r.path, r.name, r.journal.ID())
	}
	return r.journal.Token(e.Token)
}

// held is a token in one of the roots.
type held struct {
	*root
	token *journal.Token
	id    string
}

// tokens opens the entry's token in all roots where its record can be. A step touches one root, and its entry does not
// say which: the record does.
func (w *world) tokens(e activities.Entry) ([]held, error) {
	given := strings.Split(e.Place.Journal, ",")
	var all []held
	known := false
	for _, r := range w.roots {
		if !r.here(e) {
			continue
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
		if err != nil && activities.TypeOf(err) != activities.DamagedRecord { // it is here; who needs it reads it
			return nil, err
		}
		known = known || found || fate != journal.Undecided
		all = append(all, held{r, t, e.Token})
	}
	// With a journal missing, nobody can say that there is no record.
	if len(all) == 0 || !known && len(all) < len(given) {
		return nil, activities.Errorf(activities.WrongPlace,
			"the step's journals are %q; this worker has %q: start it with the roots and the journals (%s in each root) that it had", e.Place.Journal, w.place(), storeName)
	}
	return all, nil
}
