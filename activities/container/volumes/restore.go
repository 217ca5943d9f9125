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

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/layer"
	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Restore says what to bring back.
type Restore struct {
	// Root is the volume, Copy a copy of it, and Want what was in that when it was made.
	Root, Copy string
	Want       Content
	// Seen, where it is set, is what the volume held when it was decided to overwrite it: what is
	// neither so nor as Want says is somebody's newer work, and nothing is done.
	Seen Content
	// Stage is a folder beside the volume for those who restore it, of this copy's own.
	Stage string
	// Over says, as an error, that the volume has been restored already, or must not be. It is asked
	// when the stage stands: what makes it say so has to be there before the stages are cleared.
	Over func() error
	// Progress, if set, is told how far the restore has come.
	Progress *Progress
}

// DriftError says that somebody has changed a volume since it was decided to overwrite it.
type DriftError struct{ Paths []string }

func (d *DriftError) Error() string {
	return "changed meanwhile: " + strings.Join(d.Paths, ", ")
}

// Run brings back what differs, and says what then still does. Called again it does what is left.
// An error that is a DamageError or a DriftError says that nothing was changed by this call. The
// stages are left to Clear.
func (r Restore) Run() (differs []string, err error) {
	if err := r.checkCopy(); err != nil {
		return nil, err
	}
	s, err := r.openStaging()
	if err != nil {
		return nil, err
	}
	defer s.closeFolders()
	if err := r.Over(); err != nil {
		return nil, err
	}
	r.Progress.begin("comparing the volume with the copy")
	now, err := Of(r.Root)
	if err != nil {
		return nil, err
	}
	todo := r.Want.differs(now)
	if newer := r.newer(now, todo); len(newer) > 0 {
		return nil, &DriftError{newer}
	}
	s.tally = r.Progress.begin("putting back " + activities.CountOf(len(todo), "path"))
	if err := s.restorePaths(now, todo); err != nil {
		return nil, fmt.Errorf("bringing volume %s back: %w", r.Root, err)
	}
	r.Progress.begin("comparing the volume with the copy again")
	if now, err = Of(r.Root); err != nil {
		return nil, err
	}
	return r.Want.differs(now), nil
}

// checkCopy is a DamageError where the copy is not as it was kept.
func (r Restore) checkCopy() error {
	r.Progress.begin("checking the copy")
	kept, err := Of(r.Copy)
	if err != nil {
		return &DamageError{err.Error()}
	}
	if differs := r.Want.differs(kept); len(differs) > 0 {
		return &DamageError{fmt.Sprintf("%s changed in the copy %s since it was made, among them %s",
			activities.CountOf(len(differs), "path"), r.Copy, differs[0])}
	}
	return nil
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

// half says that a folder may be on the way from one to the other: it is made so in several steps,
// and its time goes with all that is done in it.
func half(is, seen, want Entry) bool {
	return seen.folder() && (is.UID == seen.UID || is.UID == want.UID) && (is.GID == seen.GID || is.GID == want.GID) &&
		(is.Mode == seen.Mode || is.Mode == want.Mode)
}

// Clear removes all stages, which fences every Restore under way.
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

// staging is one run of a Restore.
type staging struct {
	Restore
	root *os.File
	at   *os.File // its stage
	next int

	tally *filetree.Tally
}

func (r Restore) openStaging() (*staging, error) {
	if err := r.Clear(); err != nil {
		return nil, err
	}
	at := filepath.Join(r.Stage, strings.ToLower(rand.Text()[:8]))
	for _, dir := range []string{r.Stage, at} { // no MkdirAll: if the volume is gone, nothing must take its place
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	s := &staging{Restore: r}
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

func (s *staging) closeFolders() { s.root.Close(); s.at.Close() }

// restorePaths restores the paths in todo: it removes, then adds, then sets the attributes of
// folders.
func (s *staging) restorePaths(now Content, todo []string) error {
	todo = s.withNames(todo)
	for _, at := range slices.Backward(todo) { // what is in a folder before the folder
		if _, wanted := s.Want[at]; !wanted {
			if err := s.takeOut(at, now[at]); err != nil {
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
		if err := s.swapIn(want, is, has); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return s.setFolders(todo)
}

// withNames adds to what is to do the other names of the same files: they become one again.
func (s *staging) withNames(todo []string) []string {
	files, all := map[string]bool{}, map[string]bool{}
	for _, at := range todo {
		all[at] = true
		if e, ok := s.Want[at]; ok && !e.folder() {
			files[firstField(e)] = true
		}
	}
	for at, e := range s.Want {
		if !e.folder() && files[firstField(e)] {
			all[at] = true
		}
	}
	return sorted(all)
}

// firstField is the name by which an entry refers to the first of its hard links.
func firstField(e Entry) string {
	if e.Same != "" {
		return e.Same
	}
	return e.Path
}

// nextName is a new one in the stage.
func (s *staging) nextName() string {
	s.next++
	return strconv.Itoa(s.next)
}

// openParent opens the folder of a path in the volume. No link is followed, whoever has put one
// there.
func (s *staging) openParent(at string) (*os.File, string, error) {
	dir, name := path.Split(at)
	f, err := s.openFolder(dir)
	return f, name, err
}

func (s *staging) openFolder(dir string) (*os.File, error) {
	fd, err := unix.Openat2(int(s.root.Fd()), "./"+strings.Trim(dir, "/"), &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// takeOut moves what is at a path out of the volume, into the stage.
func (s *staging) takeOut(at string, is Entry) error {
	dir, name, err := s.openParent(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	as := s.nextName()
	err = unix.Renameat2(int(dir.Fd()), name, int(s.at.Fd()), as, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.ENOENT) {
		return s.checkFence()
	}
	if err == nil && !s.matches(as, is, true) {
		return errors.Join(errMeanwhile, unix.Renameat2(int(s.at.Fd()), as, int(dir.Fd()), name, unix.RENAME_NOREPLACE))
	}
	return err
}

// errMeanwhile is that of a path which was changed after it was looked at. Who tries again sees
// what it is now.
var errMeanwhile = errors.New("somebody is changing it")

// matches says that what was moved out of the volume is what was seen there. A folder's time
// changes with its content.
func (s *staging) matches(as string, is Entry, has bool) bool {
	var st unix.Stat_t
	if !has || unix.Fstatat(int(s.at.Fd()), as, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	if is.folder() {
		return st.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	return st.Mtim.Nano() == is.MTime && (is.Kind != layer.KindFile || st.Size == is.Size)
}

// swapIn replaces what is at a path by a copy of what was kept.
func (s *staging) swapIn(want, is Entry, has bool) error {
	dir, name, err := s.openParent(want.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	as := s.nextName()
	if want.Same != "" {
		of, same, err := s.openParent(want.Same)
		if err != nil {
			return err
		}
		defer of.Close()
		if err := unix.Linkat(int(of.Fd()), same, int(s.at.Fd()), as, 0); err != nil {
			return err
		}
	} else if err := filetree.Clone(filepath.Join(s.Copy, want.Path), int(s.at.Fd()), as, s.tally); err != nil {
		return err
	}
	from, to := int(s.at.Fd()), int(dir.Fd())
	if err := unix.Renameat2(from, as, to, name, unix.RENAME_EXCHANGE); err == nil && !s.matches(as, is, has) {
		return errors.Join(errMeanwhile, unix.Renameat2(from, as, to, name, unix.RENAME_EXCHANGE))
	} else if !errors.Is(err, unix.ENOENT) {
		return err
	}
	return unix.Renameat2(from, as, to, name, unix.RENAME_NOREPLACE)
}

// setFolders restores the attributes of folders, inner ones first, since each change has touched
// the time of its folder.
func (s *staging) setFolders(todo []string) error {
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
		if err := s.checkFence(); err != nil {
			return err
		}
		dir, err := s.openFolder(at)
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

// checkFence is an error where the stage has been removed.
func (s *staging) checkFence() error {
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
