package containers

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
)

// load is what a container's processes have written into it.
type load struct {
	name  string
	files int
	size  int64 // of each file
	large bool  // left out where it has to be quick
}

func (l load) bytes() int64 { return int64(l.files) * l.size }

var loads = []load{
	{name: "0"},
	{name: "15 MB", files: 1, size: 15 << 20},
	{name: "200 MB", files: 4, size: 50 << 20},
	{name: "1 GB", files: 16, size: 64 << 20, large: true},
	{name: "20,000 files", files: 20_000, size: 4 << 10},
}

// source makes the folder that a load is copied from, of bytes that nothing compresses.
func (r *run) source(l load) (dir string, err error) {
	if dir, err = os.MkdirTemp(r.dir, "source-"); err != nil {
		return "", err
	}
	content := make([]byte, l.size)
	_, _ = rand.Read(content) // it never fails
	for i := range l.files {
		in := filepath.Join(dir, "load", fmt.Sprint(i/1000))
		if err := os.MkdirAll(in, 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(in, fmt.Sprint(i)), content, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// box starts a container that sees the source, and whose first process lets signals pass it by that
// ask it to end.
func (r *run) box(ctx context.Context, ref, source string) (id string, err error) {
	return r.running(ctx, ref, source, "sleep", "infinity")
}

// server starts one that has more processes than the first, as servers do: they would not see what
// a layer holds.
func (r *run) server(ctx context.Context, ref, source string) (id string, err error) {
	return r.running(ctx, ref, source, "sh", "-c", "sleep infinity & exec sleep infinity")
}

func (r *run) running(ctx context.Context, ref, source string, program ...string) (id string, err error) {
	made, err := r.ContainerCreate(ctx,
		&container.Config{Image: ref, Cmd: program, StopSignal: "SIGWINCH"},
		&container.HostConfig{NetworkMode: "none", Binds: []string{source + ":/source:ro"}}, nil, nil, "")
	if err != nil {
		return "", err
	}
	return made.ID, r.ContainerStart(ctx, made.ID, container.StartOptions{})
}

// fill copies the source into a container, by a process of the container's.
func (r *run) fill(ctx context.Context, id string, l load) error {
	if l.files == 0 {
		return nil
	}
	return r.exec(ctx, id, "cp -r /source/load /load")
}

// respite is how long an engine gets to put away what it needed for a command.
const respite = 100 * time.Millisecond

// exec runs a command in a container to its end, and gives the engine its respite.
func (r *run) exec(ctx context.Context, id, command string) error {
	made, err := r.ContainerExecCreate(ctx, id,
		container.ExecOptions{Cmd: []string{"sh", "-c", command}, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	stream, err := r.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer stream.Close()
	said, err := io.ReadAll(stream.Reader)
	if err != nil {
		return err
	}
	for {
		seen, err := r.ContainerExecInspect(ctx, made.ID)
		switch {
		case err != nil:
			return err
		case seen.Running:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * time.Millisecond):
			}
		case seen.ExitCode != 0:
			return fmt.Errorf("%s: exit status %d: %s", command, seen.ExitCode, said)
		default:
			<-time.After(respite)
			return ctx.Err()
		}
	}
}

// remove removes a container, if there is one.
func (r *run) remove(id string) {
	if id != "" {
		_ = r.ContainerRemove(context.Background(), id, container.RemoveOptions{Force: true}) // it may be gone
	}
}

func (r *run) drop(ref string) error {
	_, err := r.ImageRemove(context.Background(), ref, image.RemoveOptions{Force: true, PruneChildren: true})
	return err
}
