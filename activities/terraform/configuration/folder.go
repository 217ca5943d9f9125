package configuration

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
)

// Files are those of a configuration's folder, by their path in it.
type Files map[string]BundleFile

// stagePrefix begins the name of a folder, beside the files, from which and to which all renames go
// that put files back.
const stagePrefix = ".unwind-"

// ReadFolder reads the configuration in a folder as it is to be put back: a link would not come back
// as one, and is refused.
func ReadFolder(dir string) (Bundle, error) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		switch {
		case d.IsDir() && isLeft(dir, path):
			return fs.SkipDir
		case d.IsDir() || d.Type().IsRegular() || notConfiguration(d.Name()):
			return nil
		}
		return activities.Errorf(activities.Refused,
			"dir: %s is neither a file nor a folder, and could not be put back as it is; keep only files in %s", path, dir)
	})
	if err != nil {
		return Bundle{}, err
	}
	return Read(dir, nil, nil, nil)
}

// Differs are the paths at which two folders differ, sorted.
func (f Files) Differs(o Files) (paths []string) {
	for at, is := range f {
		if other, both := o[at]; !both || !is.equals(other) {
			paths = append(paths, at)
		}
	}
	for at := range o {
		if _, both := f[at]; !both {
			paths = append(paths, at)
		}
	}
	slices.Sort(paths)
	return paths
}

// Changes has a line for each path at which o differs from f.
func (f Files) Changes(o Files) (lines []string) {
	for _, at := range f.Differs(o) {
		_, had := f[at]
		_, has := o[at]
		switch {
		case !had:
			lines = append(lines, "+ file "+at)
		case !has:
			lines = append(lines, "- file "+at)
		default:
			lines = append(lines, "~ file "+at)
		}
	}
	return lines
}

// Digest covers paths, contents and modes.
func (f Files) Digest() activities.Digest {
	var parts [][]byte
	for _, at := range slices.Sorted(maps.Keys(f)) {
		parts = append(parts, []byte(at), f[at].Content, fmt.Append(nil, f[at].Mode))
	}
	return activities.DigestOf(parts...)
}

func (f BundleFile) equals(o BundleFile) bool {
	return f.Mode == o.Mode && bytes.Equal(f.Content, o.Content)
}

// Newer are the paths at which going from now to want would overwrite what is neither as it was seen
// nor as it is to be.
func (f Files) Newer(want, seen Files) (paths []string) {
	for _, at := range want.Differs(f) {
		is, has := f[at]
		was, had := seen[at]
		if has != had || !is.equals(was) {
			paths = append(paths, at)
		}
	}
	return paths
}

// Back are the files that an undo leaves of a folder that holds f now: what changed from before to
// after is as before, and all else as it is.
func (f Files) Back(before, after Files) Files {
	want := maps.Clone(f)
	for _, at := range before.Differs(after) {
		if was, had := before[at]; had {
			want[at] = was
		} else {
			delete(want, at)
		}
	}
	return want
}

// ChangedError says that somebody has changed a file meanwhile.
type ChangedError struct{ Path string }

func (c *ChangedError) Error() string { return c.Path + " was changed meanwhile" }

// Placement makes a folder hold files.
type Placement struct {
	Dir, Token string
	Want, Seen Files
	// Over says, as an error, that the files must not be put back any more. It is asked when the stage
	// stands: what makes it say so has to be there before ClearStage is called.
	Over func() error
}

// ClearStage removes the stage of a token in a folder. A placement that is under way there does no
// more.
func ClearStage(dir, token string) error {
	const tries = 100 // somebody may be putting more into it
	stage := stageOf(dir, token)
	for range tries {
		err := os.RemoveAll(stage)
		if !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return fmt.Errorf("somebody keeps writing to %s", stage)
}

func stageOf(dir, token string) string { return filepath.Join(dir, stagePrefix+token) }

// Run puts back what differs. Called again it does what is left.
func (p Placement) Run() (err error) {
	stage := stageOf(p.Dir, p.Token)
	if err := os.Mkdir(stage, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	mine, err := os.MkdirTemp(stage, "")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = ClearStage(p.Dir, p.Token)
			return
		}
		_ = os.RemoveAll(mine) // nobody needs what is in it
		_ = os.Remove(stage)   // unless others have theirs in it
	}()
	if err := p.Over(); err != nil {
		return err
	}
	now, err := ReadFolder(p.Dir)
	if err != nil {
		return err
	}
	is := Files(now.Files)
	if newer := is.Newer(p.Want, p.Seen); len(newer) > 0 {
		return &ChangedError{newer[0]}
	}
	return p.place(mine, is)
}

// place makes all changes by renames from or to a folder of the stage.
func (p Placement) place(stage string, is Files) error {
	from, err := os.Open(stage)
	if err != nil {
		return err
	}
	defer from.Close()
	root, err := os.OpenRoot(p.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for n, at := range p.Want.Differs(is) {
		one := exchange{root: root, stage: from, as: fmt.Sprint(n), at: at}
		want, wanted := p.Want[at]
		was, had := is[at]
		if wanted {
			err = one.putIn(want, was, had)
		} else {
			err = one.takeOut(was)
		}
		if err != nil {
			return err
		}
	}
	return unix.Syncfs(int(from.Fd()))
}

// exchange changes one file.
type exchange struct {
	root   *os.Root
	stage  *os.File
	as, at string
}

func (x exchange) staged() string { return filepath.Join(x.stage.Name(), x.as) }

// rename moves the file from the stage to its place, or back.
func (x exchange) rename(flags uint, out bool) error {
	folder, err := x.root.Open(path.Dir(x.at))
	if err != nil {
		return err
	}
	defer folder.Close()
	from, name, to, as := int(x.stage.Fd()), x.as, int(folder.Fd()), path.Base(x.at)
	if out {
		from, name, to, as = to, as, from, name
	}
	if err := unix.Renameat2(from, name, to, as, flags); err != nil {
		return &os.LinkError{Op: "rename", Old: x.as, New: x.at, Err: err}
	}
	return nil
}

func (x exchange) putIn(want, was BundleFile, had bool) error {
	if err := x.root.MkdirAll(path.Dir(x.at), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(x.staged(), want.Content, 0o600); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(x.staged(), want.Mode), x.giveOwner(had)); err != nil {
		return err
	}
	if !had {
		return x.rename(unix.RENAME_NOREPLACE, false)
	}
	if err := x.rename(unix.RENAME_EXCHANGE, false); err != nil {
		return err
	}
	return x.checkOut(was, unix.RENAME_EXCHANGE)
}

// giveOwner gives the staged file the owner of the one in its place, or else of the folder.
func (x exchange) giveOwner(had bool) error {
	of := path.Dir(x.at)
	if had {
		of = x.at
	}
	there, err := x.root.Open(of)
	if err != nil {
		return err
	}
	defer there.Close()
	var is, wanted unix.Stat_t
	err = errors.Join(unix.Fstat(int(there.Fd()), &wanted), unix.Stat(x.staged(), &is))
	if err != nil || is.Uid == wanted.Uid && is.Gid == wanted.Gid {
		return err
	}
	return os.Chown(x.staged(), int(wanted.Uid), int(wanted.Gid))
}

func (x exchange) takeOut(was BundleFile) error {
	if err := x.rename(unix.RENAME_NOREPLACE, true); err != nil {
		return err
	}
	if err := x.checkOut(was, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	dir := path.Dir(x.at)
	for dir != "." && x.root.Remove(dir) == nil { // until there is something else in it
		dir = path.Dir(dir)
	}
	return nil
}

// checkOut puts back what came out, if it is not what was seen.
func (x exchange) checkOut(was BundleFile, flags uint) error {
	content, err := os.ReadFile(x.staged())
	if err != nil || bytes.Equal(content, was.Content) {
		return err
	}
	return errors.Join(&ChangedError{x.at}, x.rename(flags, false))
}

// StateNames are the names of the places where the configuration in dir keeps its state, as far as
// its text says.
func StateNames(dir string) (names []string, err error) {
	backends, err := Backends(dir, nil)
	for _, b := range backends {
		if file := b.StateFile(); file != "" {
			names = append(names, file)
		} else {
			names = append(names, b.Name())
		}
	}
	if len(names) == 0 {
		names = []string{StateName}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}
