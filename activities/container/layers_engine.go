package container

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/stack"
	"github.com/seed-62bf7108/unwind/activities/container/readonly"
)

// layeredEngine is the engine as it would be if it knew of the layers over its containers: it copies, commits and exports
// what a container's own root holds, and nothing of what is over it.
type layeredEngine struct {
	engine.Client
	choice *choice
}

// files is the manifest of a running container, where a helper can look into it; one with layers only a helper can tell.
func (e *layeredEngine) files(ctx context.Context, id string, ignore []string) (m manifest, ok bool, err error) {
	over, err := e.choice.over(ctx, id)
	if err != nil {
		return nil, false, err
	}
	if over == nil && !e.choice.able() {
		return nil, false, nil
	}
	a, err := e.choice.layers.ask(ctx, helper.Request{Op: helper.Files, Container: id, Skip: append([]string{"/dev", "/proc", "/sys"}, ignore...)})
	if over == nil && (err != nil || !tellsNames(a.Files)) { // the engine can tell as well
		return nil, false, nil //nolint:nilerr // see above
	}
	return exported(a.Files, ignore), true, err
}

// tellsNames says that all names are as they are in the container: a helper's answers are JSON, which has only text.
func tellsNames(files []stack.RootEntry) bool {
	return !slices.ContainsFunc(files, func(f stack.RootEntry) bool {
		return strings.ContainsRune(f.Path, utf8.RuneError) || strings.ContainsRune(f.Link, utf8.RuneError)
	})
}

// CopyFromContainer asks a sidecar where there is one: an engine starts a program for each file. It has no content for
// anything but regular files.
func (e *layeredEngine) CopyFromContainer(ctx context.Context, id, at string) (io.ReadCloser, container.PathStat, error) {
	over, err := e.choice.over(ctx, id)
	if err != nil {
		return nil, container.PathStat{}, err
	}
	if over == nil && !e.choice.able() {
		return e.Client.CopyFromContainer(ctx, id, at)
	}
	a, err := e.choice.layers.ask(ctx, helper.Request{Op: helper.Read, Container: id, Path: at, Limit: readonly.MaxProgram})
	if err != nil && over == nil { // such as that it does not run
		return e.Client.CopyFromContainer(ctx, id, at)
	}
	if err != nil {
		return nil, container.PathStat{}, err
	}
	return copied(a.File, at)
}

// copied is a file as an engine copies it.
func copied(f stack.File, at string) (io.ReadCloser, container.PathStat, error) {
	if f.Mode == 0 {
		return nil, container.PathStat{}, nothingThere{at}
	}
	stat := container.PathStat{Name: path.Base(f.Name), Size: f.Size, Mode: modeOf(f.Mode)}
	if f.Name != path.Clean(at) { // whoever asks wants to know where it is
		stat.Mode, stat.LinkTarget = fs.ModeSymlink|fs.ModePerm, f.Name
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: stat.Name, Mode: int64(f.Mode & 0o7777), Size: int64(len(f.Content)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = w.Write(f.Content)
	}
	return io.NopCloser(&b), stat, err
}

// nothingThere is an error as an engine has it for a path.
type nothingThere struct{ path string }

func (n nothingThere) Error() string { return "nothing is at " + n.path }
func (nothingThere) NotFound()       {}

func modeOf(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return m
	case unix.S_IFDIR:
		return m | fs.ModeDir
	}
	return m | fs.ModeIrregular
}

// ContainerExecCreate makes sure that what enters a container stands in its layers, also after a restart.
func (e *layeredEngine) ContainerExecCreate(ctx context.Context, id string, o container.ExecOptions) (container.ExecCreateResponse, error) {
	if over, err := e.choice.over(ctx, id); over != nil || err != nil {
		if err == nil {
			err = over.settle(ctx, id)
		}
		if err != nil {
			return container.ExecCreateResponse{}, err
		}
	}
	return e.Client.ContainerExecCreate(ctx, id, o)
}

// ContainerStart shows the layers again.
func (e *layeredEngine) ContainerStart(ctx context.Context, name string, o container.StartOptions) error {
	if err := e.Client.ContainerStart(ctx, name, o); err != nil {
		return err
	}
	started, err := e.ContainerInspect(ctx, name)
	if engine.IsNotFound(err) { // someone has removed it since
		return nil
	}
	if err != nil {
		return err
	}
	over, err := e.choice.over(ctx, started.ID)
	if over == nil || err != nil {
		return err
	}
	return over.settle(ctx, started.ID)
}

// ContainerCommit is for containers whose layers can be written into their own filesystem first.
func (e *layeredEngine) ContainerCommit(ctx context.Context, id string, o container.CommitOptions) (container.CommitResponse, error) {
	over, err := e.choice.over(ctx, id)
	if err == nil && over != nil {
		err = over.takeOff(ctx, id)
	}
	if err != nil {
		return container.CommitResponse{}, err
	}
	return e.Client.ContainerCommit(ctx, id, o)
}

// takeOff refuses where layers stay over a container: an image of it would lack them.
func (l *layers) takeOff(ctx context.Context, id string) error {
	all, err := l.ask(ctx, helper.Request{Op: helper.Named, Container: id})
	if err != nil {
		return err
	}
	off, err := l.commitIn(ctx, id, all.IDs)
	if err == nil && !off || helper.KindOf(err) == helper.InUse {
		err = activities.Errorf(activities.Refused, "an image of container %s would lack what processes that are left in its layers write; end them first", id[:12])
	}
	return err
}
