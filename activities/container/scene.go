package container

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
)

// scene is where checks look: into the container that the command has run in.
type scene struct {
	*execAction
	id string
}

// Target is empty: a command has no one file.
func (s scene) Target() string { return "" }

const (
	maxCheckedFile = 8 << 20
	maxSymlinks    = 40
)

// ReadFile reads a file in the container, its mounts included, and follows symbolic links.
func (s scene) ReadFile(ctx context.Context, name string) ([]byte, error) {
	if !path.IsAbs(name) {
		return nil, activities.Errorf(activities.Refused, "%q is not an absolute path in the container", name)
	}
	for range maxSymlinks {
		content, link, err := s.readOnce(ctx, name)
		if err != nil || link == "" {
			return content, err
		}
		if !path.IsAbs(link) {
			link = path.Join(path.Dir(name), link)
		}
		name = link
	}
	return nil, fmt.Errorf("%s: too many symbolic links", name)
}

func (s scene) readOnce(ctx context.Context, name string) (content []byte, link string, err error) {
	stream, stat, err := s.engine.CopyFromContainer(ctx, s.id, name)
	if engine.IsNotFound(err) {
		return nil, "", fs.ErrNotExist
	}
	if err != nil {
		return nil, "", engine.Explain("reading "+name+" in the container", err)
	}
	defer stream.Close()
	switch {
	case stat.Mode.IsDir():
		return nil, "", activities.ErrIsFolder
	case stat.Mode&fs.ModeSymlink != 0:
		return nil, stat.LinkTarget, nil
	case !stat.Mode.IsRegular():
		return nil, "", activities.Errorf(activities.CheckFailed, "%s is no regular file", name)
	case stat.Size > maxCheckedFile:
		return nil, "", activities.Errorf(activities.Refused, "%s has %d bytes; a check reads at most %d", name, stat.Size, maxCheckedFile)
	}
	r := tar.NewReader(stream)
	if _, err := r.Next(); err != nil {
		return nil, "", fmt.Errorf("reading %s in the container: %w", name, err)
	}
	content, err = io.ReadAll(r)
	return content, "", err
}

// Run runs a program in the container.
func (s scene) Run(ctx context.Context, argv []string) ([]byte, error) {
	return s.run(ctx, command{Argv: argv})
}

func (s scene) run(ctx context.Context, c command) ([]byte, error) {
	out := &bytes.Buffer{}
	log := newLog(out)
	exit, err := s.runHere(ctx, s.id, c, log, log)
	if err == nil {
		err = log.finish()
	}
	if err == nil && exit != 0 {
		err = fmt.Errorf("exit status %d", exit)
	}
	if errors.Is(err, errNotRun) {
		return nil, err
	}
	return out.Bytes(), err
}

// runHere runs a command with this process as its only client: for commands whose result may be lost.
func (x *execAction) runHere(ctx context.Context, id string, c command, stdout, stderr io.Writer) (int, error) {
	exec, err := enter(ctx, x.engine, id, c)
	if err != nil {
		return 0, err
	}
	return run(ctx, x.engine, exec, stdout, stderr)
}

var _ activities.Scene = scene{}
