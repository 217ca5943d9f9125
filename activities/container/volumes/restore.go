package volumes

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/stack"
	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Restore says what to bring back.
type Restore struct {
	// Root is the volume, Copy a copy of it, and Want what was in that when it was made.
	Root, Copy string
	Want       Content
	// Seen, where it is set, is what the volume held when it was decided to overwrite it: what is neither so nor as Want says
	// is somebody's newer work, and nothing is done.
	Seen Content
	// Stage is a folder beside the volume for those who restore it, of this copy's own.
	Stage string
	// Over says, as an error, that the volume has been restored already, or must not be. It is asked when the stage stands:
	// what makes it say so has to be there before the stages are cleared.
	Over func() error
}

// DriftError says that somebody has changed a volume since it was decided to overwrite it.
type DriftError struct{ Paths []string }

func (d *DriftError) Error() string {
	return "changed meanwhile: " + strings.Join(d.Paths, ", ")
}

// Run brings back what differs, and says what then still does. Called again it does what is left. An error that is a DamageError
// or a DriftError says that nothing was changed by this call. The stages are left to Clear.
func (r Restore) Run() (differs []string, err error) {
	kept, err := Of(r.Copy)
	if err != nil {
		return nil, &DamageError{err.Error()}
	}
	if differs := r.Want.differs(kept); len(differs) > 0 {
		return nil, &DamageError{fmt.Sprintf("%d paths of the copy %s are not as they were kept, among them %s", len(differs), r.Copy, differs[0])}
	}
	s, err := r.begin()
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := r.Over(); err != nil {
		return nil, err
	}
	now, err := Of(r.Root)
	if err != nil {
		return nil, err
	}
	todo := r.Want.differs(now)
	if newer := r.newer(now, todo); len(newer) > 0 {
		return nil, &DriftError{newer}
	}
	if err := s.bring(now, todo); err != nil {
		return nil, fmt.Errorf("bringing volume %s back: %w", r.Root, err)
	}
	if now, err = Of(r.Root); err != nil {
		return nil, err
	}
	return r.Want.differs(now), nil
}

// newer are the paths of those to do that are neither as they were seen nor as they are to be.
func (r Restore) newer(now Content, todo []string) (paths []string) {
	if r.Seen == nil {
		return nil
	}
	for _, at := range todo {
		is, has := now[at]
		seen, had := r.Seen[at]
		want, wanted := r.Want[at]
		switch {
		case has == had && is == seen, !has && !wanted:
		case has && is.folder() && (had && half(is, seen, want) || wanted && !had && want.folder()):
		default:
			paths = append(paths, at)
		}
	}
	return paths
}

// half says that a folder may be on the way from one to the other: it is made so in several steps, and its time goes with
// all that is done in it.
func half(is, seen, want Entry) bool {
	return seen.folder() && (is.UID == seen.UID || is.UID == want.UID) && (is.GID == seen.GID || is.GID == want.GID) &&
		(is.Mode == seen.Mode || is.Mode == want.Mode)
}

// Clear removes all stages: whoever restores with one of them does no more.
func (r Restore) Clear() error {
	const tries = 100 // somebody may be putting more into it
	for range tries {
		err := os.RemoveAll(r.Stage)
		if !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return fmt.Errorf("somebody keeps writing to %s", r.Stage)
}

// staged is a call of Restore under way.
type staged struct {
	Restore
	root *os.File
	at   *os.File // its stage
	next int
}

func (r Restore) begin() (*staged, error) {
	if err := r.Clear(); err != nil {
		return nil, err
	}
	at := filepath.Join(r.Stage, strings.ToLower(rand.Text()[:8]))
	for _, dir := range []string{r.Stage, at} { // without what is above: where the volume is gone, nothing takes its place
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	s := &staged{Restore: r}
	var err error
	if s.at, err = os.Open(at); err != nil {
		return nil, err
	}
	if s.root, err = os.Open(r.Root); err != nil {
		s.at.Close()
		return nil, err
	}
	return s, nil
}

func (s *staged) close() { s.root.Close(); s.at.Close() }

// bring does all that is left: what goes, then what comes, then what folders are like.
func (s *staged) bring(now Content, todo []string) error {
	todo = s.withNames(todo)
	for _, at := range slices.Backward(todo) { // what is in a folder before the folder
		if _, wanted := s.Want[at]; !wanted {
			if err := s.out(at, now[at]); err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
		}
	}
	for _, at := range todo {
		want, wanted := s.Want[at]
		is, has := now[at]
		if !wanted || has && want.folder() && is.folder() {
			continue
		}
		if err := s.in(want, is, has); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return s.folders(todo)
}

// withNames adds to what is to do the other names of the same files: they become one again.
func (s *staged) withNames(todo []string) []string {
	files, all := map[string]bool{}, map[string]bool{}
	for _, at := range todo {
		all[at] = true
		if e, ok := s.Want[at]; ok && !e.folder() {
			files[first(e)] = true
		}
	}
	for at, e := range s.Want {
		if !e.folder() && files[first(e)] {
			all[at] = true
		}
	}
	return sorted(all)
}

// first is the name of a file that its others are told by.
func first(e Entry) string {
	if e.Same != "" {
		return e.Same
	}
	return e.Path
}

// name is a new one in the stage.
func (s *staged) name() string {
	s.next++
	return strconv.Itoa(s.next)
}

// parent opens the folder of a path in the volume. No link is followed, whoever has put one there.
func (s *staged) parent(at string) (*os.File, string, error) {
	dir, name := path.Split(at)
	f, err := s.open(dir)
	return f, name, err
}

func (s *staged) open(dir string) (*os.File, error) {
	fd, err := unix.Openat2(int(s.root.Fd()), "./"+strings.Trim(dir, "/"), &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// out takes what is at a path out of the volume.
func (s *staged) out(at string, is Entry) error {
	dir, name, err := s.parent(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	as := s.name()
	err = unix.Renameat2(int(dir.Fd()), name, int(s.at.Fd()), as, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.ENOENT) {
		return s.fenced()
	}
	if err == nil && !s.was(as, is, true) {
		return errors.Join(errMeanwhile, unix.Renameat2(int(s.at.Fd()), as, int(dir.Fd()), name, unix.RENAME_NOREPLACE))
	}
	return err
}

// errMeanwhile is that of a path which was changed after it was looked at. Who tries again sees what it is now.
var errMeanwhile = errors.New("somebody is changing it")

// was says that what has come out of the volume is what was seen there. The time of a folder goes with what is done in it.
func (s *staged) was(as string, is Entry, has bool) bool {
	var st unix.Stat_t
	if !has || unix.Fstatat(int(s.at.Fd()), as, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	if is.folder() {
		return st.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	return st.Mtim.Nano() == is.MTime && (is.Kind != stack.KindFile || st.Size == is.Size)
}

// in puts a copy of what was kept at a path in the place of what is there.
func (s *staged) in(want, is Entry, has bool) error {
	dir, name, err := s.parent(want.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	as := s.name()
	if want.Same != "" {
		of, same, err := s.parent(want.Same)
		if err != nil {
			return err
		}
		defer of.Close()
		if err := unix.Linkat(int(of.Fd()), same, int(s.at.Fd()), as, 0); err != nil {
			return err
		}
	} else if err := filetree.Clone(filepath.Join(s.Copy, want.Path), int(s.at.Fd()), as); err != nil {
		return err
	}
	from, to := int(s.at.Fd()), int(dir.Fd())
	if err := unix.Renameat2(from, as, to, name, unix.RENAME_EXCHANGE); err == nil && !s.was(as, is, has) {
		return errors.Join(errMeanwhile, unix.Renameat2(from, as, to, name, unix.RENAME_EXCHANGE))
	} else if !errors.Is(err, unix.ENOENT) {
		return err
	}
	return unix.Renameat2(from, as, to, name, unix.RENAME_NOREPLACE)
}

// folders makes all folders that are wanted what they were, those first that are in others: each has had its time moved.
func (s *staged) folders(todo []string) error {
	dirs := map[string]bool{}
	for _, at := range todo {
		if s.Want[at].folder() {
			dirs[at] = true
		}
		if at != "/" {
			dirs[path.Dir(at)] = true
		}
	}
	for _, at := range slices.Backward(sorted(dirs)) {
		if !s.Want[at].folder() { // it went with what was in it
			continue
		}
		if err := s.fenced(); err != nil {
			return err
		}
		dir, err := s.open(at)
		if err != nil {
			return err
		}
		err = filetree.MakeAlike(filepath.Join(s.Copy, at), int(dir.Fd()), ".")
		dir.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// errLate is that of a call that another has overtaken.
var errLate = errors.New("another call restores the volume, or has done so")

// fenced is an error where the stage has been removed.
func (s *staged) fenced() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.at.Fd()), &st); err != nil {
		return err
	}
	if st.Nlink == 0 {
		return errLate
	}
	return nil
}

func sorted(paths map[string]bool) []string { return slices.Sorted(maps.Keys(paths)) }
