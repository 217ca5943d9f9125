package layers

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
)

// Release lets go of a token's checkpoints, wherever they are. From a container that nobody has a
// checkpoint of any more what an unwound task has left standing is taken off.
func (b *Backend) Release(ctx context.Context, token string) error {
	known, err := b.notes.list()
	if err != nil {
		return err
	}
	for _, id := range known {
		covered, err := b.isOver(ctx, id)
		if err != nil {
			return err
		}
		if !covered {
			continue
		}
		if err := b.releaseIn(ctx, id, token); err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) releaseIn(ctx context.Context, id, token string) error {
	now, err := b.engine.ContainerInspect(ctx, id)
	if engine.IsNotFound(err) {
		b.processes.forget(id)
		if _, err := b.helper.Ask(ctx, helper.Request{Op: helper.Forget, Container: id}); err != nil {
			return explain(id[:12], err)
		}
		return b.notes.remove(id)
	}
	if err != nil {
		return engine.Explain("looking at the container", err)
	}
	// without its process: nothing but its book is read
	all, err := b.helper.Ask(ctx, helper.Request{Op: helper.Named, Container: id})
	if err != nil {
		return explain(engine.NameOf(now), err)
	}
	mine := slices.DeleteFunc(slices.Clone(all.IDs), func(name string) bool {
		return name != token && !strings.HasPrefix(name, salvageName(token, ""))
	})
	if len(mine) > 0 {
		if _, err := b.helper.Ask(ctx, helper.Request{Op: helper.Drop, Container: id, Names: mine}); err != nil {
			return explain(engine.NameOf(now), err)
		}
	}
	if len(mine) < len(all.IDs) || !now.State.Running || now.State.Paused {
		return nil
	}
	_, err = b.commitLayers(ctx, id, nil)
	if k := helper.KindOf(err); k == helper.InUse || k == helper.Unfit {
		return nil // at the release of another
	}
	return err
}

// sizeLimit bounds how long a helper is asked for a size.
const sizeLimit = 2 * time.Second

// Bytes is what the layers of the token's checkpoint take, wherever it is.
func (b *Backend) Bytes(token string) (sum int64) {
	ctx, cancel := context.WithTimeout(context.Background(), sizeLimit)
	defer cancel()
	known, _ := b.notes.list()
	for _, id := range known {
		if covered, err := b.isOver(ctx, id); !covered || err != nil {
			continue
		}
		a, _ := b.helper.Ask(ctx, helper.Request{Op: helper.Weigh, Container: id, Name: token, Keep: salvageName(token, "")})
		sum += a.Bytes
	}
	return sum
}
