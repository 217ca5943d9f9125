package file

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/childenv"
	"github.com/seed-62bf7108/unwind/internal/shortlived"
)

// scene is what checks read: what is staged, if there is a draft, otherwise the files themselves.
type scene struct {
	world *world
	root  *root
	draft *draft
	// target is the step's only file, as the step names it; empty if it has several.
	target string
}

func (a *action) stagedScene(d *draft) scene {
	s := scene{world: a.world, root: d.root, draft: d}
	if len(d.rec.Given) == 1 {
		s.target = d.rec.Given[0].Path
	}
	return s
}

func (a *action) liveScene(r *root, step activities.Step) scene {
	s := scene{world: a.world, root: r}
	p, err := activities.DecodeParams[struct {
		content
		Files []content `json:"files"`
		Paths []string  `json:"paths"`
	}](step.With)
	switch {
	case err != nil:
	case p.Path != "":
		s.target = p.Path
	case len(p.Files) == 1:
		s.target = p.Files[0].Path
	case len(p.Paths) == 1:
		s.target = p.Paths[0]
	}
	return s
}

func (s scene) Target() string { return s.target }

// find resolves a path in this scene.
func (s scene) find(path string) (in *os.Root, rel string, err error) {
	at, err := s.world.locate("check", path)
	if err != nil {
		return nil, "", err
	}
	if s.draft == nil || at.root != s.root {
		return at.dir, at.rel, nil
	}
	for i, o := range s.draft.rec.Ops {
		if !isWithin(o.Target, at.rel) {
			continue
		}
		below, err := filepath.Rel(o.Target, at.rel)
		return s.draft.store, filepath.Join(s.draft.ticket(i), below), err
	}
	return at.dir, at.rel, nil
}

func (s scene) ReadFile(_ context.Context, path string) ([]byte, error) {
	in, rel, err := s.find(path)
	if err != nil {
		return nil, err
	}
	f, err := in.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, activities.ErrIsFolder
	case !info.Mode().IsRegular():
		return nil, activities.Errorf(activities.CheckFailed, "%s is not a regular file", path)
	case info.Size() > maxChecked:
		return nil, activities.Errorf(activities.CheckFailed, "%s has %s, more than a check reads (%d)", path,
			activities.CountOf(info.Size(), "byte"), maxChecked)
	}
	return io.ReadAll(f)
}

// maxChecked limits what a check reads of a file.
const maxChecked = 16 << 20

// Run runs a program on the worker's host, in the minimal environment.
func (s scene) Run(ctx context.Context, argv []string) ([]byte, error) {
	args := make([]string, len(argv))
	for i, arg := range argv {
		if strings.Contains(arg, "{path}") {
			at, err := s.onlyFile()
			if err != nil {
				return nil, err
			}
			arg = strings.ReplaceAll(arg, "{path}", at)
		}
		args[i] = s.redirectToStage(arg)
	}
	return shortlived.Output(ctx, s.root.path, childenv.Minimal(), args...)
}

// redirectToStage replaces each path of the step's own files in an argument with the path of its
// staged copy: a program knows nothing of stages, and would read the live file.
func (s scene) redirectToStage(arg string) string {
	if s.draft == nil || !strings.Contains(arg, "/") {
		return arg
	}
	staged := map[string]string{}
	for i, o := range s.draft.rec.Ops {
		for _, base := range []string{s.root.path, s.root.given} {
			staged[filepath.Join(base, o.Target)] = filepath.Join(s.root.store.Name(), s.draft.ticket(i))
		}
	}
	for _, g := range s.draft.rec.Given {
		staged[filepath.Clean(g.Path)] = filepath.Join(s.root.store.Name(), s.draft.ticket(g.Op), g.Below)
	}
	names := slices.SortedFunc(maps.Keys(staged), func(a, b string) int { return len(b) - len(a) })
	var out strings.Builder
	for at := 0; at < len(arg); {
		i := slices.IndexFunc(names, func(name string) bool { return namesPath(arg, at, name) })
		if i < 0 {
			out.WriteByte(arg[at])
			at++
			continue
		}
		out.WriteString(staged[names[i]])
		at += len(names[i])
	}
	return out.String()
}

// namesPath reports whether a path, or one below it, stands at a place in an argument, and not only
// the beginning of a longer name.
func namesPath(arg string, at int, path string) bool {
	if !strings.HasPrefix(arg[at:], path) {
		return false
	}
	isName := func(c byte) bool {
		return c >= 0x80 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
			strings.IndexByte("._-", c) >= 0
	}
	end := at + len(path)
	return (at == 0 || !isName(arg[at-1]) && arg[at-1] != '/') && (end == len(arg) || !isName(arg[end]))
}

// onlyFile is the path of the step's only file, for a program.
func (s scene) onlyFile() (string, error) {
	if s.target == "" {
		return "", activities.Errorf(activities.Refused,
			"command: {path} stands for the step's only file, and this step has several; name each by its path")
	}
	in, rel, err := s.find(s.target)
	if err != nil {
		return "", err
	}
	return filepath.Join(in.Name(), rel), nil
}
