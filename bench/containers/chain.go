package containers

import (
	"context"
	"fmt"
	"os"

	"github.com/docker/docker/api/types/container"
)

// chainTarget is how many times what a link of the chain takes docker's usual way must take, from chainFrom bytes on.
const (
	chainTarget = 10
	chainFrom   = 200 << 20
)

// chain is a container that stands on an image of its last checkpoint, so that its own layer holds only what was written since.
// A checkpoint is an image of that, and a container from it that takes the place of the one before; all of them share the
// network of one more, which stays.
type chain struct {
	*run
	ctx    context.Context //nolint:containedctx // of one load
	source string
	base   string // the image that holds the load
	holder string // the container that has the network
	name   string
}

// link is one checkpoint of a chain, and one rollback to it, in milliseconds.
type link struct {
	Freeze  float64 `json:"freeze_ms"`
	Commit  float64 `json:"commit_ms"`
	Standby float64 `json:"standby_ms"`
	Swap    float64 `json:"swap_ms"`
	// Foreground is what is waited for where all of that is; Background, where commit and standby were done before the next
	// command came.
	Foreground float64 `json:"foreground_ms"`
	Background float64 `json:"background_ms"`
	Rollback   float64 `json:"rollback_ms"`
}

// chained makes what the links over one load have in common.
func (r *run) chained(ctx context.Context, l load, source string) (c chain, err error) {
	c = chain{run: r, ctx: ctx, source: source, base: r.ref + "-base", name: fmt.Sprintf("unwind-bench-%d", os.Getpid())}
	if c.holder, err = r.box(ctx, r.ref, source); err != nil {
		return c, err
	}
	id, err := r.box(ctx, r.ref, source)
	defer func() { r.remove(id) }()
	if err != nil {
		return c, err
	}
	if err := r.fill(ctx, id, l); err != nil {
		return c, err
	}
	_, err = r.ContainerCommit(ctx, id, container.CommitOptions{Reference: c.base})
	return c, err
}

// link lets a command write a little over what has piled up, takes a checkpoint, lets another command destroy everything,
// and rolls back.
func (c chain) link() (l link, err error) {
	ref := c.ref + "-link"
	defer func() {
		c.remove(c.name)
		c.remove(c.standby())
		if failed := c.drop(ref); err == nil {
			err = failed
		}
	}()
	if err := c.start(c.base, c.name); err != nil {
		return l, err
	}
	if err := c.exec(c.ctx, c.name, "echo done >/written"); err != nil {
		return l, err
	}
	// Frozen, it cannot write what the image would not have. All that runs in it ends with the swap anyway.
	if l.Freeze, err = c.freeze(); err != nil {
		return l, err
	}
	l.Commit, err = timed(func() error {
		_, err := c.ContainerCommit(c.ctx, c.name, container.CommitOptions{Reference: ref})
		return err
	})
	if err != nil {
		return l, err
	}
	if l.Standby, err = timed(func() error { return c.start(ref, c.standby()) }); err != nil {
		return l, err
	}
	if l.Swap, err = c.swap(); err != nil {
		return l, err
	}
	l.Background = l.Freeze + l.Swap
	l.Foreground = l.Background + l.Commit + l.Standby
	// One for the next command, and one for when it fails: this one is started while it runs.
	if err := c.start(ref, c.standby()); err != nil {
		return l, err
	}
	if err := c.exec(c.ctx, c.name, destroy); err != nil {
		return l, err
	}
	freeze, err := c.freeze()
	if err != nil {
		return l, err
	}
	swap, err := c.swap()
	if err != nil {
		return l, err
	}
	l.Rollback = freeze + swap
	return l, c.exec(c.ctx, c.name, `[ "$(cat /written)" = done ]`)
}

func (c chain) start(ref, name string) error {
	_, err := c.named(c.ctx, ref, c.source, container.NetworkMode("container:"+c.holder), name)
	return err
}

func (c chain) standby() string { return c.name + "-standby" }

func (c chain) freeze() (float64, error) {
	return timed(func() error { return c.ContainerPause(c.ctx, c.name) })
}

// swap puts the standby, which runs, in the place of the frozen container: that it ends is waited for by nobody.
func (c chain) swap() (float64, error) {
	before := c.name + "-before"
	took, err := timed(func() error {
		if err := c.ContainerRename(c.ctx, c.name, before); err != nil {
			return err
		}
		return c.ContainerRename(c.ctx, c.standby(), c.name)
	})
	c.remove(before)
	return took, err
}

// end removes what links have in common.
func (c chain) end() error {
	c.remove(c.holder)
	return c.drop(c.base)
}

// typical are the medians of links.
func typical(all []link) (m link) {
	for _, of := range []func(*link) *float64{
		func(l *link) *float64 { return &l.Freeze },
		func(l *link) *float64 { return &l.Commit },
		func(l *link) *float64 { return &l.Standby },
		func(l *link) *float64 { return &l.Swap },
		func(l *link) *float64 { return &l.Foreground },
		func(l *link) *float64 { return &l.Background },
		func(l *link) *float64 { return &l.Rollback },
	} {
		var each []float64
		for i := range all {
			each = append(each, *of(&all[i]))
		}
		*of(&m) = median(each)
	}
	return m
}

// printChain prints what the chain takes against docker's usual way.
func printChain(all []figures) (missed []string) {
	const row = "%-13s %10s %10s %8s %10s %8s | %14s %8s %8s\n"
	fmt.Print("\nA chain: a few bytes more are committed, and a container from that takes over; in the background: it ran before it was needed\n\n")
	fmt.Printf(row, "holds", "commit", "foreground", "ratio", "background", "ratio", "rm, run, -t 0", "swap", "ratio")
	for _, f := range all {
		c := f.Chain
		checkpoint, rollback := f.Commit/c.Background, f.Stop/c.Rollback
		fmt.Printf(row, f.Load, ms(f.Commit), ms(c.Foreground), times(f.Commit/c.Foreground), ms(c.Background), times(checkpoint),
			ms(f.Stop), ms(c.Rollback), times(rollback))
		if f.bytes >= chainFrom {
			missed = append(missed, under(f.Load+": a checkpoint of the chain in the background", checkpoint, chainTarget)...)
			missed = append(missed, under(f.Load+": a rollback of the chain", rollback, chainTarget)...)
		}
	}
	return missed
}
