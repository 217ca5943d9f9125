package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/volumes"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// Plan looks at the container and reads its filesystem; it leaves nothing behind.
func (x *execAction) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := decode(s)
	if err != nil {
		return activities.Change{}, err
	}
	t, err := x.store.Open(ctx, e)
	if err != nil {
		return activities.Change{}, err
	}
	if err := t.CheckOpen(); err != nil {
		return activities.Change{}, err
	}
	rec, again, err := x.locate(ctx, e, p)
	if err != nil {
		return activities.Change{}, err
	}
	if again != nil {
		return x.planAgain(ctx, p, again)
	}
	in, by := rec.Container, x.backends.Of(rec.Backend).Traits()
	change := activities.Change{
		Diff: p.describe(in),
		Keys: []string{"container:" + p.Container},
		Undo: "nothing: the command only reads",
		Facts: []string{
			"every program in the command is known to change nothing with these arguments, and is that of the " +
				"container's image"},
	}
	var before manifest.Manifest
	if rec.ReadOnly {
		change.Summary = fmt.Sprintf("read in %s: %s", engine.NameOf(in), p.title(ctx))
	} else {
		if before, err = manifest.Take(ctx, x.engine, in.ID, rec.Ignore); err != nil {
			return activities.Change{}, err
		}
		if err := errors.Join(volumes.AddTo(ctx, before, rec.Volumes), volumes.Weigh(before, rec.Volumes)); err != nil {
			return activities.Change{}, err
		}
		change.Summary = fmt.Sprintf("run in %s: %s", engine.NameOf(in), p.title(ctx))
		change.Undo, change.Losses = x.describeUndo(rec.Backend, in, rec.Ignore, rec.Volumes...)
		change.Facts = []string{rec.Backend.Fact()}
		if by.Forward != "" {
			change.Facts = append(change.Facts, by.Forward)
		}
		if !by.Cheap {
			change.Facts = append(change.Facts, "the command cannot be proven to change nothing")
		}
		change.Facts = append(change.Facts, p.costs(rec.Volumes)...)
	}
	weighed := weigh(rec.ReadOnly)
	change.Strategy, change.Risk, change.Digest = weighed.Strategy, weighed.Risk, changeDigest(ctx, p, in, before, "")
	return change, nil
}

// weigh returns what says whether a person must approve a command.
func weigh(readsOnly bool) activities.Change {
	if readsOnly {
		return activities.Change{Strategy: activities.NoUndo, Risk: activities.Low}
	}
	return activities.Change{Strategy: activities.Snapshot, Risk: activities.Medium}
}

// planAgain is the plan of a redo.
func (x *execAction) planAgain(ctx context.Context, p params, again *feasibleRedo) (activities.Change, error) {
	now, err := again.read(ctx)
	if err != nil {
		return activities.Change{}, err
	}
	if err := again.checkUnchanged(now); err != nil {
		return activities.Change{}, err
	}
	undo, losses := x.describeUndo(again.backend, again.target, again.ignore)
	change := again.change(now, losses)
	change.Keys, change.Undo = []string{"container:" + p.Container}, undo
	change.Digest = changeDigest(ctx, p, again.target, now, again.Kept.After)
	return change, nil
}

// changeDigest covers what would run, where, and the filesystem that it would find; and of a redo,
// what would be put back. Secrets in the command count as what they are called, not by their
// values.
func changeDigest(ctx context.Context, p params, in container.InspectResponse, before manifest.Manifest,
	kept activities.Digest) activities.Digest {
	said, _ := json.Marshal(p) // strings, lists and a map of strings always marshal
	said = []byte(activities.MaskerFrom(ctx).String(string(said)))
	found := activities.Digest("")
	if before != nil {
		found = before.Digest()
	}
	parts := [][]byte{[]byte("container.exec"), said, []byte(in.ID), []byte(found)}
	if kept != "" {
		parts = append(parts, []byte(kept))
	}
	return activities.DigestOf(parts...)
}

// describe is what a person reads before approving.
func (p params) describe(in container.InspectResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "container  %s (%s, image %s)\n", engine.NameOf(in), in.ID[:12], in.Config.Image)
	if p.User != "" {
		fmt.Fprintf(&b, "user       %s\n", p.User)
	}
	if p.Workdir != "" {
		fmt.Fprintf(&b, "workdir    %s\n", p.Workdir)
	}
	for _, v := range p.environ() {
		fmt.Fprintf(&b, "env        %s\n", v)
	}
	if p.Command != "" {
		fmt.Fprintf(&b, "sh -c\n%s\n", p.Command)
	} else {
		fmt.Fprintf(&b, "argv       %q\n", p.Argv)
	}
	return b.String()
}
