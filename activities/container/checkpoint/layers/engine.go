package layers

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

	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
)

// Engine is an engine as it would be if it knew of the layers over its containers: it copies,
// commits and exports what a container's own root holds, and nothing of what is over it.
type Engine struct {
	engine.Client
	layers *Backend
}

// NewEngine makes the engine that knows of the layers of a backend over the plain one that this
// has.
func NewEngine(b *Backend) *Engine { return &Engine{b.engine, b} }

// IsCovered says whether a container has layers, or checkpoints of them.
func (e *Engine) IsCovered(ctx context.Context, id string) (bool, error) {
	return e.layers.isOver(ctx, id)
}

// CanLook says that a helper can look into running containers, without waiting for the first.
func (e *Engine) CanLook() bool { return e.layers.CanAsk() }

// EndMarked ends the processes of a running container that have a variable ("NAME=value") in their
// environment. Where ok is false, only a command in the container can.
func (e *Engine) EndMarked(ctx context.Context, id, variable string) (ended, ok bool, err error) {
	covered, err := e.layers.isOver(ctx, id)
	if err != nil || !covered && !e.CanLook() {
		return false, false, err
	}
	a, err := e.layers.ask(ctx, helper.Request{Op: helper.End, Container: id, Name: variable})
	if !covered && err != nil {
		return false, false, nil //nolint:nilerr // a command in the container is the other way
	}
	return a.Yes, true, err
}

// ListFiles is the manifest of a running container, where a helper can look into it; of one with
// layers only a helper has it.
func (e *Engine) ListFiles(ctx context.Context, id string, ignore []string) (m manifest.Manifest, ok bool, err error) {
	covered, err := e.layers.isOver(ctx, id)
	if err != nil {
		return nil, false, err
	}
	if !covered && !e.CanLook() {
		return nil, false, nil
	}
	a, err := e.layers.ask(ctx,
		helper.Request{Op: helper.Files, Container: id, Skip: append([]string{"/dev", "/proc", "/sys"}, ignore...)})
	if !covered && (err != nil || !hasNames(a.Files)) { // the engine can tell as well
		return nil, false, nil //nolint:nilerr // see above
	}
	return manifest.FromFiles(a.Files, ignore), true, err
}

// hasNames says that all names are as they are in the container: a helper's answers are JSON, which
// has only text.
func hasNames(files []stack.RootEntry) bool {
	return !slices.ContainsFunc(files, func(f stack.RootEntry) bool {
		return strings.ContainsRune(f.Path, utf8.RuneError) || strings.ContainsRune(f.Link, utf8.RuneError)
	})
}

// CopyFromContainer asks a sidecar where there is one: an engine starts a program for each file. It
// has no content for anything but regular files.
func (e *Engine) CopyFromContainer(ctx context.Context, id, at string) (io.ReadCloser, container.PathStat, error) {
	covered, err := e.layers.isOver(ctx, id)
	if err != nil {
		return nil, container.PathStat{}, err
	}
	if !covered && !e.CanLook() {
		return e.Client.CopyFromContainer(ctx, id, at)
	}
	a, err := e.layers.ask(ctx, helper.Request{Op: helper.Read, Container: id, Path: at, Limit: engine.MaxProgram})
	if err != nil && !covered { // such as that it does not run
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
	err := w.WriteHeader(&tar.Header{Name: stat.Name, Mode: int64(f.Mode & 0o7777), Size: int64(len(f.Content)),
		Typeflag: tar.TypeReg})
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

// ContainerExecCreate makes sure that what enters a container stands in its layers, also after a
// restart.
func (e *Engine) ContainerExecCreate(ctx context.Context, id string,
	o container.ExecOptions) (container.ExecCreateResponse, error) {
	if covered, err := e.layers.isOver(ctx, id); covered || err != nil {
		if err == nil {
			err = e.layers.showLayers(ctx, id)
		}
		if err != nil {
			return container.ExecCreateResponse{}, err
		}
	}
	return e.Client.ContainerExecCreate(ctx, id, o)
}

// ContainerStart shows the layers again.
func (e *Engine) ContainerStart(ctx context.Context, name string, o container.StartOptions) error {
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
	covered, err := e.layers.isOver(ctx, started.ID)
	if !covered || err != nil {
		return err
	}
	return e.layers.showLayers(ctx, started.ID)
}

// ContainerCommit is for containers whose layers can be written into their own filesystem first.
func (e *Engine) ContainerCommit(ctx context.Context, id string, o container.CommitOptions) (container.CommitResponse,
	error) {
	covered, err := e.layers.isOver(ctx, id)
	if err == nil && covered {
		err = e.layers.takeOff(ctx, id)
	}
	if err != nil {
		return container.CommitResponse{}, err
	}
	return e.Client.ContainerCommit(ctx, id, o)
}
