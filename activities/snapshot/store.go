package snapshot

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
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// Store keeps what folders held, in a folder of its own:
//
//	chunks/AB/CDEF...   pieces of content, by their SHA-256
//	trees/NAME          what a folder held: see tree
//	latest/FOLDER       the name of the last tree of a folder, by the digest of its path
//	trash/ABCDEF...     chunks that no tree needed when they were last looked at
//	new/                what is being written
//
// Several processes may use one at once.
type Store struct{ dir string }

const (
	chunksDir = "chunks"
	treesDir  = "trees"
	latestDir = "latest"
	trashDir  = "trash"
	newDir    = "new"
)

// Open opens the store in a folder, and makes it where it is not there.
func Open(dir string) (*Store, error) {
	for _, name := range []string{chunksDir, treesDir, latestDir, trashDir, newDir} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	return &Store{dir}, nil
}

func (s *Store) in(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

func (s *Store) chunkPath(name sum) string {
	hexed := name.String()
	return s.in(chunksDir, hexed[:2], hexed[2:])
}

// DamageError says that what is kept is not what it was when it was made.
type DamageError struct{ Why string }

func (d *DamageError) Error() string { return d.Why }

// BusyError says that somebody writes all the time.
type BusyError struct{ Why string }

func (b *BusyError) Error() string { return b.Why }

// Root is a folder that is read or put back.
type Root struct {
	// Path names it, for people and as what a tree is of.
	Path string
	// At is a path by which it is opened, which nobody can lead elsewhere. Defaults to Path.
	At string
}

func (r Root) at() string {
	if r.At == "" {
		return r.Path
	}
	return r.At
}

// Keeping says what becomes of what a folder holds.
type Keeping struct {
	// Name is that of the tree. One that has it is replaced.
	Name string
	// Over says, as an error, that the tree must not be made any more. It is asked when only a rename
	// is left, which Drop makes fail: what makes it say so has to be there before Drop is called.
	// Defaults to never.
	Over func() error
	// Label and About are kept with the tree, for whoever loads it: how it was looked at, and what else
	// is known of the folder. The store is its owner's alone.
	Label, About string

	Look
}

// Keep keeps, durably, what a folder holds at one moment.
func (s *Store) Keep(ctx context.Context, root Root, k Keeping) (Content, error) {
	read := func(doing string) reading {
		r := k.reading(doing)
		r.put = s.put
		return r
	}
	now, err := scan(ctx, root, s.latest(root), read("copying"))
	if err != nil {
		return nil, err
	}
	if now.read == 0 { // nothing has changed until it was looked at: it is what there was at the beginning
		return now.content(), s.keepTree(ctx, root, k, now)
	}
	const tries = 3
	for range tries {
		before := now.content()
		if now, err = scan(ctx, root, now, read("comparing the copy with the folder")); err != nil {
			return nil, err
		}
		// what was read first has not changed until the last was
		if content := now.content(); len(before.Differs(content)) == 0 {
			return content, s.keepTree(ctx, root, k, now)
		}
	}
	return nil, &BusyError{fmt.Sprintf("folder %s is written to all the time: there is no moment to keep", root.Path)}
}

// keepTree writes a tree whose chunks have been put.
func (s *Store) keepTree(ctx context.Context, root Root, k Keeping, now *state) error {
	needed, err := s.list(now.content())
	if err != nil {
		return err
	}
	t := tree{Root: root.Path, Label: k.Label, About: k.About, Needs: needed, State: *now}
	raw, err := t.encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.ticket(k.Name), raw, 0o600); err != nil {
		return err
	}
	if err := s.sync(); err != nil { // the chunks are on the disk before the tree is
		return err
	}
	point.Reach("snapshot:ticket")
	if k.Over != nil {
		if err := k.Over(); err != nil {
			return errors.Join(err, s.Drop(k.Name))
		}
	}
	if err := os.Rename(s.ticket(k.Name), s.in(treesDir, k.Name)); err != nil {
		return err
	}
	if err := durable.SyncFolder(s.in(treesDir)); err != nil {
		return err
	}
	point.Reach("snapshot:kept")
	// A Sweep that had not seen the tree may have moved chunks aside: from here on it sees it.
	if err := s.replaceMissing(ctx, root, k, t); err != nil {
		return err
	}
	return durable.Replace(s.latestOf(root), []byte(k.Name))
}

// ticket is the file that becomes a tree.
func (s *Store) ticket(name string) string { return s.in(newDir, "tree-"+name) }

// replaceMissing puts again the chunks of a tree that are not there, from the folder that it is of.
func (s *Store) replaceMissing(ctx context.Context, root Root, k Keeping, t tree) error {
	const tries = 3
	for range tries {
		all, err := s.haveAll(t.Needs)
		if all || err != nil {
			return err
		}
		again, err := scan(ctx, root, nil, reading{put: s.put, leave: k.Leave})
		if err != nil {
			return err
		}
		if len(t.State.content().Differs(again.content())) > 0 {
			return &BusyError{fmt.Sprintf("folder %s changed while it was kept", root.Path)}
		}
		if err := s.sync(); err != nil {
			return err
		}
	}
	return fmt.Errorf("chunks of %s do not stay in %s: who removes them?", root.Path, s.dir)
}

// haveAll reports whether all chunks of a sorted list are there.
func (s *Store) haveAll(needs []sum) (bool, error) {
	var names []string // of those that begin like the last
	for i, each := range needs {
		at := s.chunkPath(each)
		if i == 0 || each[0] != needs[i-1][0] {
			var err error
			if names, err = readNames(filepath.Dir(at)); errors.Is(err, fs.ErrNotExist) {
				return false, nil
			} else if err != nil {
				return false, err
			}
		}
		if _, there := slices.BinarySearch(names, filepath.Base(at)); !there {
			return false, nil
		}
	}
	return true, nil
}

// Copy keeps under a name what a tree of the store holds.
func (s *Store) Copy(from, name string) error {
	err := os.Link(s.in(treesDir, from), s.in(treesDir, name))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.SyncFolder(s.in(treesDir))
}

// Kept is what a tree holds.
type Kept struct {
	// Root is the folder that it is of, Label and About what its keeper has said of it.
	Root, Label, About string
	Content            Content
}

// Load returns what is kept under a name. The error is fs.ErrNotExist where there is no such tree,
// and a DamageError where it is not as it was made.
func (s *Store) Load(name string) (Kept, error) {
	t, err := s.tree(name)
	if err != nil {
		return Kept{}, err
	}
	return Kept{t.Root, t.Label, t.About, t.State.content()}, nil
}

func (s *Store) tree(name string) (t tree, err error) {
	raw, err := os.ReadFile(s.in(treesDir, name))
	if err != nil {
		return t, err
	}
	if t, err = decodeTree(raw); err != nil {
		err = &DamageError{fmt.Sprintf("%s: %v", s.in(treesDir, name), err)}
	}
	return t, err
}

// Names are those of all trees.
func (s *Store) Names() ([]string, error) {
	names, err := readNames(s.in(treesDir))
	return slices.DeleteFunc(names, isTemporary), err
}

// isTemporary says that a name is of a file that is being written: see package durable.
func isTemporary(name string) bool { return strings.HasPrefix(name, ".") }

func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// Drop lets go of what is kept under these names; the space is free after a Sweep. A name that is
// not there is no error.
func (s *Store) Drop(names ...string) error {
	for _, name := range names {
		for _, at := range []string{s.ticket(name), s.in(treesDir, name)} {
			if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return durable.SyncFolder(s.in(treesDir))
}

// Check is a DamageError where a file of a content is not as it was kept.
func (s *Store) Check(ctx context.Context, c Content, p *Progress) error {
	p.begin("checking the copy")
	for _, at := range sorted(c) {
		e := c[at]
		if e.Kind != File || e.Same != "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := eachChunk(e, s.get, func(int64, []byte) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// ReadFile returns what a file of a tree holds.
func (s *Store) ReadFile(e Entry) ([]byte, error) {
	content := make([]byte, e.Size)
	err := eachChunk(e, s.get, func(at int64, data []byte) error {
		copy(content[at:], data)
		return nil
	})
	return content, err
}

// list is all chunks that a content needs, sorted.
func (s *Store) list(c Content) ([]sum, error) {
	needed := map[sum]bool{}
	for _, e := range c {
		if e.Kind != File {
			continue
		}
		name, err := nameOf(e)
		if err != nil {
			return nil, err
		}
		if needed[name] {
			continue
		}
		needed[name] = true
		if !isList(e.Size) {
			continue
		}
		data, err := s.get(name)
		if err != nil {
			return nil, err
		}
		names, err := splitList(e, data)
		if err != nil {
			return nil, err
		}
		for _, chunk := range names {
			needed[chunk] = chunk != (sum{})
		}
	}
	delete(needed, sum{})
	all := make([]sum, 0, len(needed))
	for name := range needed {
		all = append(all, name)
	}
	slices.SortFunc(all, compareSums)
	return all, nil
}

// put keeps a chunk; it is durable after a sync.
func (s *Store) put(name sum, data []byte) error {
	at := s.chunkPath(name)
	if _, err := os.Lstat(at); err == nil {
		return nil
	}
	staged := s.in(newDir, rand.Text())
	if err := os.WriteFile(staged, data, 0o400); err != nil {
		return errors.Join(err, os.Remove(staged))
	}
	err := os.Rename(staged, at)
	if errors.Is(err, fs.ErrNotExist) { // the first with these two digits
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return err
		}
		err = os.Rename(staged, at)
	}
	return err
}

// get returns a chunk, or a DamageError where it is not as it was put.
func (s *Store) get(name sum) ([]byte, error) {
	data, err := os.ReadFile(s.chunkPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		data, err = os.ReadFile(s.in(trashDir, name.String()))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &DamageError{fmt.Sprintf("chunk %s is gone from %s", name, s.dir)}
	}
	if err == nil && sha256.Sum256(data) != name {
		return nil, &DamageError{fmt.Sprintf("chunk %s in %s is not as it was written", name, s.dir)}
	}
	return data, err
}

// sync makes durable all that was put.
func (s *Store) sync() error {
	f, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

func (s *Store) latestOf(root Root) string {
	name := sha256.Sum256([]byte(root.Path))
	return s.in(latestDir, hex.EncodeToString(name[:16]))
}

// latest is what the last tree of a folder says; nil where nothing is known. It only saves work.
func (s *Store) latest(root Root) *state {
	name, err := os.ReadFile(s.latestOf(root))
	if err != nil {
		return nil
	}
	t, err := s.tree(string(name))
	if err != nil || t.Root != root.Path {
		return nil
	}
	return &t.State
}

// Sweep removes the chunks that no tree needs.
func (s *Store) Sweep() error {
	needed, err := s.needed()
	if err != nil {
		return err
	}
	folders, err := readNames(s.in(chunksDir))
	if err != nil {
		return err
	}
	for _, two := range folders {
		names, err := readNames(s.in(chunksDir, two))
		if err != nil {
			return err
		}
		for _, rest := range names {
			raw, err := hex.DecodeString(two + rest)
			if err != nil || len(raw) != sha256.Size || needed[sum(raw)] {
				continue
			}
			if err := os.Rename(s.in(chunksDir, two, rest), s.in(trashDir, two+rest)); err != nil &&
				!errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return errors.Join(s.emptyTrash(), s.removeStale())
}

// removeStale removes what killed processes were writing.
func (s *Store) removeStale() error {
	const age = time.Hour
	for _, dir := range []string{newDir, treesDir, latestDir} {
		entries, err := os.ReadDir(s.in(dir))
		if err != nil {
			return err
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || dir != newDir && !isTemporary(e.Name()) || time.Since(info.ModTime()) < age {
				continue
			}
			if err := os.Remove(s.in(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// emptyTrash removes the chunks that were moved aside, and puts back what a tree needs that was made
// meanwhile.
func (s *Store) emptyTrash() error {
	needed, err := s.needed()
	if err != nil {
		return err
	}
	names, err := readNames(s.in(trashDir))
	if err != nil {
		return err
	}
	for _, name := range names {
		at := s.in(trashDir, name)
		if raw, err := hex.DecodeString(name); err == nil && len(raw) == sha256.Size && needed[sum(raw)] {
			err = os.Rename(at, s.chunkPath(sum(raw)))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// needed are the chunks of all trees.
func (s *Store) needed() (map[sum]bool, error) {
	names, err := s.Names()
	if err != nil {
		return nil, err
	}
	all := map[sum]bool{}
	for _, name := range names {
		raw, err := os.ReadFile(s.in(treesDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		needs, err := decodeNeeds(raw)
		if err != nil { // what it needs, nobody knows
			return nil, &DamageError{fmt.Sprintf("%s: %v", s.in(treesDir, name), err)}
		}
		for _, chunk := range needs {
			all[chunk] = true
		}
	}
	return all, nil
}
