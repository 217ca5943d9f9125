package snapshot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Restore says what to bring back.
type Restore struct {
	// Root is the folder, and Want what it is to hold.
	Root Root
	Want Content
	// From keeps the content of files.
	From *Store
	// Seen, where it is set, is what the folder held when it was decided to overwrite it: what is
	// neither so nor as Want says is somebody's newer work, and nothing is done.
	Seen Content
	// Stage is a folder beside the folder for those who restore it, of this restore's own.
	Stage string
	// Over says, as an error, that the folder has been restored already, or must not be. It is asked
	// when the stage stands: what makes it say so has to be there before the stages are cleared.
	Over func() error

	Look
}

// DriftError says that somebody has changed a folder since it was decided to overwrite it.
type DriftError struct{ Paths []string }

func (d *DriftError) Error() string {
	return "changed meanwhile: " + strings.Join(d.Paths, ", ")
}

// Run brings back what differs, and says what then still does. Called again it does what is left.
// An error that is a DamageError or a DriftError says that nothing was changed by this call. The
// stages are left to Clear.
func (r Restore) Run(ctx context.Context) (differs []string, err error) {
	s, err := r.openStaging()
	if err != nil {
		return nil, err
	}
	defer func() {
		s.closeFolders()
		if err != nil { // nobody needs what is in it
			_ = os.RemoveAll(s.at.Name())
			_ = os.Remove(r.Stage) // unless others have theirs in it
		}
	}()
	if err := r.Over(); err != nil {
		return nil, err
	}
	was, err := scan(ctx, r.Root, r.From.latest(r.Root), r.reading("comparing the folder with the copy"))
	if err != nil {
		return nil, err
	}
	now := was.content()
	if r.Want, _, err = r.Want.Around(now); err != nil {
		return nil, err
	}
	s.Restore = r
	todo := r.Want.Differs(now)
	if newer := r.newer(now, todo); len(newer) > 0 {
		return nil, &DriftError{newer}
	}
	todo = s.withNames(todo)
	if err := r.checkTodo(ctx, todo); err != nil {
		return nil, err
	}
	s.tally = r.Progress.begin("putting back " + activities.CountOf(len(todo), "path"))
	if err := s.restorePaths(now, todo); err != nil {
		return nil, fmt.Errorf("bringing folder %s back: %w", r.Root.Path, err)
	}
	if err := unix.Syncfs(int(s.root.Fd())); err != nil {
		return nil, err
	}
	if was, err = scan(ctx, r.Root, was, r.reading("comparing the folder with the copy again")); err != nil {
		return nil, err
	}
	return r.Want.Differs(was.content()), nil
}

// checkTodo looks, before anything is touched, whether all is there that is needed.
func (r Restore) checkTodo(ctx context.Context, todo []string) error {
	needed := Content{}
	for _, at := range todo {
		if want, wanted := r.Want[at]; wanted {
			needed[at] = want
		}
	}
	return r.From.Check(ctx, needed, r.Progress)
}

// Newer are the paths of a folder that holds now at which the restore would overwrite somebody's
// newer work.
func (r Restore) Newer(now Content) []string { return r.newer(now, r.Want.Differs(now)) }

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
	for _, dir := range []string{r.Stage, at} { // no MkdirAll: if the folder is gone, nothing must take its place
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	s := &staging{Restore: r}
	var err error
	if s.at, err = os.Open(at); err != nil {
		return nil, err
	}
	if s.root, err = openFolder(r.Root.at()); err != nil {
		s.at.Close()
		return nil, err
	}
	return s, nil
}

// openFolder opens a folder, and not where a link in its place leads.
func openFolder(at string) (*os.File, error) {
	return os.OpenFile(at, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

func (s *staging) closeFolders() { s.root.Close(); s.at.Close() }

// restorePaths restores the paths in todo: it removes, then adds, then sets the attributes of
// folders.
func (s *staging) restorePaths(now Content, todo []string) error {
	for _, at := range slices.Backward(todo) { // what is in a folder before the folder
		if _, wanted := s.Want[at]; !wanted {
			if err := s.takeOut(at, now[at]); err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
			point.Reach("snapshot:taken-out")
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
		point.Reach("snapshot:put-in")
	}
	point.Reach("snapshot:paths-restored")
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

// openParent opens the folder of a path in the root. No link is followed, whoever has put one
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

// takeOut moves what is at a path out of the folder, into the stage.
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

// matches says that what was moved out of the folder is what was seen there. A folder's time
// changes with its content.
func (s *staging) matches(as string, is Entry, has bool) bool {
	var st unix.Stat_t
	if !has || unix.Fstatat(int(s.at.Fd()), as, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	if is.folder() {
		return st.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	return st.Mtim.Nano() == is.MTime && (is.Kind != File || st.Size == is.Size)
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
	} else if err := s.From.create(want, int(s.at.Fd()), as, s.tally); err != nil {
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
		err = s.Want[at].giveMetadata(int(dir.Fd()), ".")
		dir.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// errLate is that of a call that another has overtaken.
var errLate = errors.New("another call restores the folder, or has done so")

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

func (e Entry) folder() bool { return e.Kind == Folder }
