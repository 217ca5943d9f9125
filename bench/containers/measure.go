package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
)

// destroy is what a failed command has done.
const destroy = "rm -rf /load; echo failed >/written"

// measure measures one load, each way in containers of its own.
func (r *run) measure(ctx context.Context, l load) (f figures, err error) {
	source, err := r.source(l)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	var commits, stops, checkpoints, rollbacks []float64
	for i := range r.rounds { // side by side
		progressf("%s: round %d of %d", l.name, i+1, r.rounds)
		if err := r.rest(); err != nil {
			return f, err
		}
		commit, stop, err := r.byHand(ctx, l, source, 0)
		if err != nil {
			return f, err
		}
		if err := r.rest(); err != nil {
			return f, err
		}
		checkpoint, rollback, err := r.byLayers(ctx, l, source)
		if err != nil {
			return f, err
		}
		commits, stops = append(commits, commit), append(stops, stop)
		checkpoints, rollbacks = append(checkpoints, checkpoint), append(rollbacks, rollback)
	}
	progressf("%s: stop with ten seconds of grace", l.name)
	grace, err := r.graceful(ctx, l, source)
	return figures{
		Load: l.name, Commit: median(commits), Stop: median(stops), Grace: grace, Checkpoint: median(checkpoints),
		Rollback: median(rollbacks),
		bytes:    l.bytes(),
	}, err
}

// rest returns when the disk is at rest, or does not come to it: each way leaves it something to
// write, or to free, that takes longer than the way itself.
func (r *run) rest() error {
	unix.Sync()
	probe, err := os.CreateTemp(r.dir, "probe-")
	if err != nil {
		return err
	}
	defer os.Remove(probe.Name())
	defer probe.Close()
	const calm, enough, most = 2 * time.Millisecond, 20, 2000
	for quiet, i := 0, 0; quiet < enough && i < most; i++ {
		began := time.Now()
		if _, err := probe.WriteAt(make([]byte, 512), 0); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(probe.Fd())); err != nil {
			return err
		}
		if quiet++; time.Since(began) > calm {
			quiet = 0
		}
	}
	return nil
}

// byHand commits a container that holds a load, lets a command destroy it, stops and removes the
// container, and runs one from the image.
func (r *run) byHand(ctx context.Context, l load, source string, grace int) (commit, rollback float64, err error) {
	id, err := r.box(ctx, r.ref, source)
	defer func() { r.remove(id) }()
	if err != nil {
		return 0, 0, err
	}
	if err := r.fill(ctx, id, l); err != nil {
		return 0, 0, err
	}
	ref := r.ref + "-checkpoint"
	commit, err = timed(func() error {
		_, err := r.ContainerCommit(ctx, id, container.CommitOptions{Reference: ref, Pause: true})
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		r.remove(id)
		id = ""
		err = errors.Join(err, r.drop(ref))
	}()
	if err := r.exec(ctx, id, destroy); err != nil {
		return 0, 0, err
	}
	id, rollback, err = r.again(ctx, id, grace, func() (string, error) { return r.box(ctx, ref, source) })
	return commit, rollback, err
}

// graceful is a rollback by hand that gives the processes of the container ten seconds. Once is
// enough: they are ten seconds.
func (r *run) graceful(ctx context.Context, l load, source string) (rollback float64, err error) {
	_, rollback, err = r.byHand(ctx, l, source, 10)
	return rollback, err
}

// again stops and removes a container, and starts another: id is the one that there is then.
func (r *run) again(ctx context.Context, old string, grace int, start func() (string, error)) (id string, took float64,
	err error) {
	id = old
	took, err = timed(func() error {
		if err := r.ContainerStop(ctx, old, container.StopOptions{Timeout: &grace}); err != nil {
			return err
		}
		if err := r.ContainerRemove(ctx, old, container.RemoveOptions{}); err != nil {
			return err
		}
		id, err = start()
		return err
	})
	return id, took, err
}

// byLayers takes a checkpoint of a running container that holds a load in a layer, lets a command
// destroy it, and rolls back.
func (r *run) byLayers(ctx context.Context, l load, source string) (checkpoint, rollback float64, err error) {
	b, err := r.newLayeredBox(ctx, source)
	defer func() { err = errors.Join(err, b.removeBox()) }()
	if err != nil {
		return 0, 0, err
	}
	if _, err := b.takeCheckpoint("empty"); err != nil {
		return 0, 0, err
	}
	if err := r.fill(ctx, b.id, l); err != nil {
		return 0, 0, err
	}
	if checkpoint, err = b.takeCheckpoint("full"); err != nil {
		return 0, 0, err
	}
	if err := r.exec(ctx, b.id, destroy); err != nil {
		return 0, 0, err
	}
	rollback, err = b.askHelper(helper.Request{Op: helper.Restore, Name: "full", Turn: "undo"})
	return checkpoint, rollback, err
}

// layeredBox is a running container, with the helper that puts layers over it.
type layeredBox struct {
	*run
	ctx context.Context //nolint:containedctx // of one measurement
	id  string
	pid int
}

func (r *run) newLayeredBox(ctx context.Context, source string) (b layeredBox, err error) {
	b = layeredBox{run: r, ctx: ctx}
	if b.id, err = r.box(ctx, r.ref, source); err != nil {
		return b, err
	}
	now, err := r.ContainerInspect(ctx, b.id)
	if err == nil {
		b.pid = now.State.Pid
		_, err = b.takeCheckpoint("warm") // the first one starts the helper
	}
	return b, err
}

func (b layeredBox) takeCheckpoint(name string) (float64, error) {
	return b.askHelper(helper.Request{Op: helper.Take, Name: name})
}

func (b layeredBox) askHelper(q helper.Request) (float64, error) {
	q.Container, q.PID = b.id, b.pid
	return timed(func() error {
		_, err := b.helper.Ask(b.ctx, q)
		return err
	})
}

// removeBox removes the container and its layers.
func (b layeredBox) removeBox() error {
	b.remove(b.id)
	_, err := b.helper.Ask(context.WithoutCancel(b.ctx), helper.Request{Op: helper.Forget, Container: b.id})
	return err
}

// piled is how many checkpoints pile up.
const piled = 20

// pile are the checkpoints of one container that writes 10 MB between any two, in milliseconds
// each.
type pile struct {
	Commits []float64 `json:"commit_ms"`
	Layers  []float64 `json:"layer_checkpoint_ms"`
}

func (r *run) pile(ctx context.Context) (p pile, err error) {
	source, err := r.source(load{files: 1, size: 10 << 20})
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	id, err := r.box(ctx, r.ref, source)
	var refs []string
	defer func() {
		r.remove(id)
		for _, ref := range slices.Backward(refs) {
			err = errors.Join(err, r.drop(ref))
		}
	}()
	if err != nil {
		return p, err
	}
	b, err := r.newLayeredBox(ctx, source)
	defer func() { err = errors.Join(err, b.removeBox()) }()
	if err != nil {
		return p, err
	}
	for i := range piled {
		write := fmt.Sprintf("cp -r /source/load /load-%d", i)
		if err := r.exec(ctx, id, write); err != nil {
			return p, err
		}
		ref := fmt.Sprintf("%s-%d", r.ref, i)
		took, err := timed(func() error {
			_, err := r.ContainerCommit(ctx, id, container.CommitOptions{Reference: ref, Pause: true})
			return err
		})
		if err != nil {
			return p, err
		}
		refs, p.Commits = append(refs, ref), append(p.Commits, took)
		if err := r.exec(ctx, b.id, write); err != nil {
			return p, err
		}
		if took, err = b.takeCheckpoint(fmt.Sprint(i)); err != nil {
			return p, err
		}
		p.Layers = append(p.Layers, took)
	}
	return p, nil
}

func timed(f func() error) (milliseconds float64, err error) {
	began := time.Now()
	err = f()
	return float64(time.Since(began).Microseconds()) / 1000, err
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

func sum(all []float64) (s float64) {
	for _, v := range all {
		s += v
	}
	return s
}
