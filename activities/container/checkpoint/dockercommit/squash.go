package dockercommit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// snapshot makes an image of a container. Each rollback that another step follows adds a layer to
// those that a container stands on, and an engine takes about 125: there all of them are squashed
// into one.
func (b *Backend) snapshot(ctx context.Context, id, ref, comment string) (string, error) {
	made, err := b.engine.ContainerCommit(ctx, id, container.CommitOptions{Reference: ref, Comment: comment, Pause: true})
	if err == nil || !strings.Contains(err.Error(), "max depth exceeded") {
		return made.ID, err
	}
	return b.squash(ctx, id, ref, comment)
}

// unsettled are the paths at which a container may write while it is squashed.
var unsettled = target.DefaultIgnore()

// squash makes an image of one layer from what the engine exports of a container. The container is
// not paused meanwhile, as it is for a commit: nobody would wake it after the worker's death. So it
// is read twice, and the engine gets the end of the image only if each file was the same both
// times: then all of them were so at once.
func (b *Backend) squash(ctx context.Context, id, ref, comment string) (made string, err error) {
	const tries = 3
	for range tries {
		first, err := manifest.Take(ctx, b.engine, id, unsettled)
		if err != nil {
			return "", err
		}
		stream, err := b.engine.ContainerExport(ctx, id)
		if err != nil {
			return "", engine.Explain("reading the filesystem of the container", err)
		}
		again := reread(stream, first)
		made, err = engine.Import(ctx, b.engine, again, ref, comment)
		if again.close(); err == nil || !again.differs.Load() {
			return made, engine.Explain("squashing the container's layers", err)
		}
	}
	return "", activities.Errorf(activities.ActionFailed,
		"the container's image has as many layers as the engine takes, and they cannot be squashed while the container "+
			"writes all the time; stop what writes in it, or make it anew from a flat image (docker export, docker import)")
}

// rereading is an exported filesystem that is read for the second time. It has no end, but an
// error, where it is not as it was the first time.
type rereading struct {
	io.Reader

	stream  io.Closer
	copied  *io.PipeWriter
	verdict func() error
	differs atomic.Bool // the transport reads in a goroutine of its own
}

func reread(stream io.ReadCloser, first manifest.Manifest) *rereading {
	seen, copied := io.Pipe()
	is := make(chan error, 1)
	go func() {
		m, err := manifest.Read(seen, unsettled)
		if lines := first.Diff(m); err == nil && len(lines) > 0 {
			err = fmt.Errorf("%s changed meanwhile: %s", activities.CountOf(len(lines), "path"),
				strings.Join(manifest.Few(lines), "; "))
		}
		_, _ = io.Copy(io.Discard, seen) // what comes after the archive's own end
		is <- err
	}()
	return &rereading{
		Reader: io.TeeReader(stream, copied), stream: stream, copied: copied,
		verdict: sync.OnceValue(func() error { return <-is }),
	}
}

func (r *rereading) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	r.copied.Close()
	if failed := r.verdict(); failed != nil {
		r.differs.Store(true)
		return n, failed
	}
	return n, io.EOF
}

func (r *rereading) close() {
	r.copied.Close()
	r.stream.Close()
}
