package readonly

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"io"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// file is what is at a path.
type file struct {
	// name is where it is after all links; digest is empty where nothing is.
	name    string
	digest  activities.Digest
	content []byte
	// odd says that it is no regular file, or too large to be a program.
	odd bool
}

func (f *file) there() bool { return f.digest != "" }

// tree looks at the files of a container, or of an image.
type tree struct {
	engine engine.Client
	// id is the container's; an image has one that was never started, from the first look that needs
	// it on.
	id, image string
	known     *images
}

func liveTree(e engine.Client, id string) *tree { return &tree{engine: e, id: id} }

// images remembers what was seen in images: these never change. Contents are not kept.
type images struct {
	mu   sync.Mutex
	seen map[string]*file
}

func (i *images) tree(e engine.Client, image string) *tree {
	return &tree{engine: e, image: image, known: i}
}

func (i *images) findFile(key string) *file {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.seen[key]
}

func (i *images) keepFile(key string, f *file) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.seen == nil {
		i.seen = map[string]*file{}
	}
	i.seen[key] = &file{name: f.name, digest: f.digest, odd: f.odd}
}

// findFile reads the file at a path, following symbolic links.
func (t *tree) findFile(ctx context.Context, at string) (*file, error) {
	if t.known == nil {
		return t.readFile(ctx, at)
	}
	key := t.image + " " + at
	if f := t.known.findFile(key); f != nil {
		return f, nil
	}
	if t.id == "" {
		if err := t.openArchive(ctx); err != nil {
			return nil, err
		}
	}
	f, err := t.readFile(ctx, at)
	if err == nil {
		t.known.keepFile(key, f)
	}
	return f, err
}

func (t *tree) readFile(ctx context.Context, at string) (*file, error) {
	for range 2 { // an engine follows all links at once
		f, link, err := t.readOnce(ctx, at)
		if err != nil || link == "" {
			return f, err
		}
		at = link
	}
	return &file{name: at, odd: true}, nil
}

func (t *tree) readOnce(ctx context.Context, at string) (f *file, link string, err error) {
	stream, stat, err := t.engine.CopyFromContainer(ctx, t.id, at)
	switch {
	case engine.IsNotFound(err):
		return &file{name: at}, "", nil
	case ctx.Err() != nil || client.IsErrConnectionFailed(err):
		return nil, "", engine.Explain("looking at "+at+" in the container", err)
	case err != nil:
		return &file{name: at, odd: true}, "", nil
	}
	defer stream.Close()
	if stat.Mode&fs.ModeSymlink != 0 {
		return nil, stat.LinkTarget, nil
	}
	f = &file{name: at, odd: !stat.Mode.IsRegular() || stat.Size > engine.MaxProgram}
	if f.odd {
		return f, "", nil
	}
	r := tar.NewReader(stream)
	if _, err = r.Next(); err == nil {
		f.content, err = io.ReadAll(r)
	}
	f.digest = activities.DigestOf(f.content)
	return f, "", engine.Explain("reading "+at+" in the container", err)
}

// Containers that show an image's files have this in their name and are never started.
const lookers = "unwind-look-"

// lookLimit is after how long a looker counts as left over by a process that has died.
const lookLimit = 10 * time.Minute

// openArchive creates a container to read from, and removes those that earlier proofs left.
func (t *tree) openArchive(ctx context.Context) error {
	left, err := t.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("name", "^/"+lookers), filters.Arg("status", "created"),
	)})
	if err != nil {
		return engine.Explain("looking for what was left over", err)
	}
	for _, c := range left {
		if time.Since(time.Unix(c.Created, 0)) > lookLimit {
			if err := t.remove(ctx, c.ID); err != nil {
				return err
			}
		}
	}
	made, err := t.engine.ContainerCreate(ctx, &container.Config{Image: t.image, Cmd: []string{"-"}},
		&container.HostConfig{NetworkMode: "none"}, nil, nil, lookers+strings.ToLower(rand.Text()))
	if err != nil {
		return engine.Explain("looking into image "+t.image, err)
	}
	t.id = made.ID
	return nil
}

// close removes the container that was made to look into an image.
func (t *tree) close(ctx context.Context) error {
	if t.image == "" || t.id == "" {
		return nil
	}
	return t.remove(context.WithoutCancel(ctx), t.id)
}

// remove takes the volumes along that the image asks for: they were made for this container.
func (t *tree) remove(ctx context.Context, id string) error {
	err := t.engine.ContainerRemove(ctx, id, container.RemoveOptions{RemoveVolumes: true})
	if err == nil || engine.IsNotFound(err) || engine.IsConflict(err) {
		return nil
	}
	return engine.Explain("removing container "+id[:12], err)
}
