package folder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
	"github.com/seed-62bf7108/unwind/internal/childenv"
)

// asGit is the label of a checkpoint of a git repository that left out what git ignores, and
// wholeGit that of one with all files.
const (
	asGit    = "git"
	wholeGit = "git, with ignored files"
)

// objects are where a repository has its objects. A restore adds what is missing and removes
// nothing: other repositories may borrow them, and what nothing refers to does no harm.
const objects = "/.git/objects"

// look says how a folder is looked at by a step: what of it is left alone.
type look struct {
	// label is that of the checkpoint.
	label string
	// ignored are the paths that git ignores by the rules of the checkpoint.
	ignored map[string]bool
	// want is what the folder is to hold, which is never left alone; nil: whatever it holds.
	want snapshot.Content
}

// leaves says whether a path is left alone.
func (l look) leaves(at string) bool {
	if e, wanted := l.want[at]; wanted && e.Kind != snapshot.Left {
		return false
	}
	if l.label != "" && l.want != nil && strings.HasPrefix(at, objects+"/") {
		return true
	}
	for ; at != "/"; at = path.Dir(at) {
		if l.ignored[at] {
			return true
		}
	}
	return false
}

// lookAt looks at a folder of which a checkpoint with this label is to be made.
func lookAt(ctx context.Context, at location, label string) (l look, err error) {
	l = look{label: label, ignored: map[string]bool{}}
	if label == "" {
		return l, nil
	}
	if err := checkRepository(at); err != nil || label != asGit {
		return l, err
	}
	ignored, err := listFiles(ctx, at, "--others", "--ignored", "--exclude-standard", "--directory")
	for _, name := range ignored {
		l.ignored[name] = true
	}
	return l, err
}

// lookBack looks at a folder that is to hold what a checkpoint has: what git ignores is what it
// would ignore by the rules of then, for these are what the folder gets back.
func (w *world) lookBack(ctx context.Context, at location, kept snapshot.Kept) (l look, err error) {
	if l, err = lookAt(ctx, at, kept.Label); err != nil || kept.Label == "" {
		return l, err
	}
	now := l.ignored
	l.want, l.ignored = kept.Content, map[string]bool{}
	for name, e := range kept.Content {
		if e.Kind == snapshot.Left {
			l.ignored[name] = true
		}
	}
	if kept.Label != asGit {
		return l, nil
	}
	others, err := listFiles(ctx, at, "--cached", "--others", "--exclude-standard")
	if err != nil {
		return l, err
	}
	r, err := w.openRules(kept.Content)
	if err != nil {
		return l, err
	}
	defer r.close()
	asked := slices.DeleteFunc(append(others, slices.Collect(maps.Keys(now))...), l.isSettled)
	if err := l.ask(ctx, r, at, asked); err != nil {
		return l, err
	}
	// What is in a folder that git ignores now, and would not by the rules of then.
	var inside []string
	for folder := range now {
		if l.isSettled(folder) {
			continue
		}
		err := filepath.WalkDir(at.root().At+folder, func(name string, _ fs.DirEntry, err error) error {
			inside = append(inside, strings.TrimPrefix(name, at.root().At))
			return err
		})
		if err != nil {
			return l, err
		}
	}
	return l, l.ask(ctx, r, at, slices.DeleteFunc(inside, l.isSettled))
}

// isSettled says that a path is in the checkpoint, or is known to be ignored.
func (l look) isSettled(at string) bool {
	_, known := l.want[at]
	return known || l.leaves(at)
}

// ask adds to what is known to be ignored those of some paths of the folder that the rules say.
func (l look) ask(ctx context.Context, r rules, at location, paths []string) error {
	ignored, err := r.ignored(ctx, at, paths)
	for _, name := range ignored {
		l.ignored[name] = true
	}
	return err
}

// checkRepository refuses what is no repository of its own, and one that git is changing.
func checkRepository(at location) error {
	var st unix.Stat_t
	err := unix.Lstat(at.root().At+"/.git", &st)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return activities.RefuseCurrent(at.key, "git: %s is no git repository: it has no .git", at.path)
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return activities.RefuseCurrent(at.key,
			"git: %s is a worktree or a submodule, whose commits are in another repository; name that", at.path)
	}
	if isChanging(at) {
		return activities.RefuseCurrent(at.key, "git: "+changing, at.path)
	}
	return nil
}

// isChanging says that a git command is at work in a repository.
func isChanging(at location) bool {
	_, err := os.Lstat(at.root().At + "/.git/index.lock")
	return err == nil
}

const changing = "a git command is changing %s, or was killed: .git/index.lock is there; wait for it, or remove the " +
	"file"

// listFiles asks git which files of a repository it lists; of a folder that is listed, the folder.
func listFiles(ctx context.Context, at location, options ...string) ([]string, error) {
	out, err := runGit(ctx, at.root().At, ".git", gitInput{}, append([]string{"ls-files", "-z"}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("asking git about %s: %w", at.path, err)
	}
	return splitNames(out), nil
}

func splitNames(out []byte) (paths []string) {
	for name := range strings.SplitSeq(string(out), "\x00") {
		if name != "" {
			paths = append(paths, path.Clean("/"+name))
		}
	}
	return paths
}

// index is the file of what is staged.
const index = "/.git/index"

// forgiveRefresh takes the index as the step left it where it differs only in what it remembers of
// the files' times: each git status writes that anew.
func (a *restore) forgiveRefresh(ctx context.Context, at location, s *step, now snapshot.Content) error {
	left, is := s.after[index], now[index]
	if s.label == "" || left == is || left.Kind != snapshot.File || is.Kind != snapshot.File {
		return nil
	}
	dir, err := os.MkdirTemp("", "unwind-git-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	content, err := a.store.ReadFile(left)
	if err != nil {
		return explain(err)
	}
	file := filepath.Join(dir, "index")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	wasStaged, err := listStaged(ctx, at, "GIT_INDEX_FILE="+file)
	if err != nil {
		return nil // then it is another
	}
	isStaged, err := listStaged(ctx, at)
	if err == nil && bytes.Equal(wasStaged, isStaged) {
		s.after[index] = is
	}
	return nil
}

func listStaged(ctx context.Context, at location, env ...string) ([]byte, error) {
	return runGit(ctx, at.root().At, ".git", gitInput{env: env}, "ls-files", "-z", "--stage", "-v")
}

// gitInput is what a git command gets besides its arguments.
type gitInput struct {
	stdin []byte
	env   []string
}

// runGit runs git in a work tree. Neither hooks nor programs that a config names run, and nothing is
// written.
func runGit(ctx context.Context, work, dir string, in gitInput, args ...string) ([]byte, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, activities.Errorf(activities.Refused,
			"git: there is no git on this worker's PATH, which says what it ignores; install it, or say ignored: true")
	}
	cmd := exec.CommandContext(ctx, git, append([]string{"-c", "safe.directory=*", "-c", "core.fsmonitor=false",
		"-c", "core.bare=false", "-c", "protocol.allow=never", "--git-dir=" + dir, "--work-tree=."}, args...)...)
	cmd.Dir = work
	env := childenv.Minimal()
	env["GIT_OPTIONAL_LOCKS"], env["GIT_NO_LAZY_FETCH"] = "0", "1"
	cmd.Env = append(childenv.List(env), in.env...)
	cmd.Stdin = bytes.NewReader(in.stdin)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return out, err
}

// rules are what a checkpoint says about ignored files: an empty repository with its .gitignore
// files, its excludes and its config.
type rules struct{ dir string }

func (w *world) openRules(of snapshot.Content) (r rules, err error) {
	if r.dir, err = os.MkdirTemp("", "unwind-git-"); err != nil {
		return r, err
	}
	write := func(name string, content []byte) error {
		at := filepath.Join(r.dir, name)
		return errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, content, 0o600))
	}
	err = write("git/HEAD", []byte("ref: refs/heads/main\n"))
	for _, folder := range []string{"git/refs", "git/objects", "work"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(r.dir, folder), 0o700))
	}
	for at, e := range of {
		to := filepath.Join("work", at)
		switch {
		case at == "/.git/config", at == "/.git/info/exclude":
			to = strings.TrimPrefix(at, "/.")
		case path.Base(at) != ".gitignore" || strings.HasPrefix(at, "/.git/"):
			continue
		}
		if e.Kind != snapshot.File {
			continue
		}
		content, readErr := w.store.ReadFile(e)
		err = errors.Join(err, explain(readErr), write(to, content))
	}
	if err != nil {
		r.close()
	}
	return r, err
}

func (r rules) close() { os.RemoveAll(r.dir) }

// ignored are those of some paths of a folder that git ignores.
func (r rules) ignored(ctx context.Context, at location, paths []string) ([]string, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	var asked bytes.Buffer
	for _, name := range paths {
		// Whether a name is that of a folder decides whether a rule is about it.
		if info, err := os.Lstat(at.root().At + name); err == nil && info.IsDir() {
			if err := os.MkdirAll(filepath.Join(r.dir, "work", name), 0o700); err != nil {
				return nil, err
			}
		}
		asked.WriteString(strings.TrimPrefix(name, "/") + "\x00")
	}
	out, err := runGit(ctx, filepath.Join(r.dir, "work"), filepath.Join(r.dir, "git"),
		gitInput{stdin: asked.Bytes()}, "check-ignore", "--no-index", "-z", "--stdin")
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() == 1 { // none is
		return nil, nil
	}
	return splitNames(out), err
}

// commitOf is the commit that is checked out in a repository that was kept, read without git; empty
// where there is none, or where its refs are kept otherwise than as files.
func (w *world) commitOf(content snapshot.Content) (string, error) {
	read := func(name string) (string, error) {
		e, there := content["/.git/"+name]
		if !there || e.Kind != snapshot.File {
			return "", nil
		}
		raw, err := w.store.ReadFile(e)
		return strings.TrimSpace(string(raw)), err
	}
	head, err := read("HEAD")
	ref, isRef := strings.CutPrefix(head, "ref: ")
	if err != nil || !isRef {
		return head, err
	}
	if commit, err := read(ref); err != nil || commit != "" {
		return commit, err
	}
	packed, err := read("packed-refs")
	for line := range strings.Lines(packed) {
		if commit, name, _ := strings.Cut(strings.TrimSpace(line), " "); name == ref {
			return commit, err
		}
	}
	return "", err
}
