package target

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
	"github.com/seed-62bf7108/unwind/activities/container/command"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// Scene implements [activities.Scene].
type Scene struct {
	Engine engine.Client
	// Container is the id of the one that checks look into.
	Container string
	// Prepare, where it is set, makes the command of a check one that may run now.
	Prepare func(context.Context, command.Command) (command.Command, error)
}

var _ activities.Scene = Scene{}

// Check runs a step's checks of a kind; those that do not say of which they are, are of the kind
// otherwise. One that does not hold is the step's failure; any other error is not.
func (s Scene) Check(ctx context.Context, checks []activities.Check, when,
	otherwise activities.When) (*activities.Error, error) {
	// What runs inside the container could run there as a step too.
	err := activities.RunChecks(activities.WithCheckCommands(ctx, []string{"*"}), checks, when, otherwise, s)
	var failed *activities.Error
	if errors.As(err, &failed) && failed.Type.Final() {
		return failed, nil
	}
	return nil, err
}

// Target is empty: a command has no one file.
func (s Scene) Target() string { return "" }

const (
	maxCheckedFile = 8 << 20
	maxSymlinks    = 40
)

// ReadFile reads a file in the container, its mounts included, and follows symbolic links.
func (s Scene) ReadFile(ctx context.Context, name string) ([]byte, error) {
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

func (s Scene) readOnce(ctx context.Context, name string) (content []byte, link string, err error) {
	stream, stat, err := s.Engine.CopyFromContainer(ctx, s.Container, name)
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
		return nil, "", activities.Errorf(activities.Refused, "%s has %s; a check reads at most %d", name,
			activities.CountOf(stat.Size, "byte"), maxCheckedFile)
	}
	r := tar.NewReader(stream)
	if _, err := r.Next(); err != nil {
		return nil, "", fmt.Errorf("reading %s in the container: %w", name, err)
	}
	content, err = io.ReadAll(r)
	return content, "", err
}

// Run runs a program in the container.
func (s Scene) Run(ctx context.Context, argv []string) ([]byte, error) {
	c := command.Command{Argv: argv}
	if s.Prepare != nil {
		var err error
		if c, err = s.Prepare(ctx, c); err != nil {
			return nil, err
		}
	}
	out := &bytes.Buffer{}
	log := command.NewLog(out)
	exit, err := command.Run(ctx, s.Engine, s.Container, c, log, log)
	if err == nil {
		err = log.Finish()
	}
	if err == nil && exit != 0 {
		err = fmt.Errorf("exit status %d", exit)
	}
	if errors.Is(err, command.ErrNotRun) {
		return nil, err
	}
	return out.Bytes(), err
}
