package container

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/container/lease"
	"github.com/seed-62bf7108/unwind/activities/container/readonly"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// execAction is container.exec.
type execAction struct {
	engine  engine.Client
	host    string
	journal *journal.Journal
	leases  *lease.Leases
	// backend is that of docker commit; it also knows which container took the place of which. See keeper.
	backend *commits
	choice  *choice
	prover  *readonly.Prover
	// lookAfter is when a late sweep looks for a checkpoint that has come late.
	lookAfter time.Duration
}

func (x *execAction) Spec() activities.Spec {
	return activities.Spec{
		Name:    "container.exec",
		Summary: "Run a command in a running container.",
		Params:  activities.ParamsSchema[params](),
		Outputs: map[string]string{
			"stdout":    "what the command wrote to standard output, at most its first 8 KiB",
			"exit_code": "its exit status: 0, for any other fails the step",
			"changed":   "whether anything in the container's filesystem is another than before",
			"log":       "where on the worker's host all of its output is kept until the step's record is dropped",
			"kept_by":   "how the container as it was before the command is kept: layers, or docker commit; none where the command only read",
			"checkpoint": "id of an image of the container as it was before the command, until the step's record is dropped; " +
				"none where the checkpoint is a layer, or the command only read",
		},
		UndoParams: []string{"container"},
		Keys:       []activities.Key{{Prefix: "container:", Param: "container"}},
		HostBound:  true,
		Commits:    true,
		Risk:       activities.Low,
		Strategy:   activities.Snapshot,
		Undo: "The container is made anew from a checkpoint of its filesystem, with the same name and settings. " + noProcess +
			"its program starts again, and whatever else runs in it is ended. Volumes, binds and effects outside are not rolled back.",
		Reset: "The container is made anew from the image that it was made from, with the same name, settings, networks and volumes: " +
			"everything that was done in it since is lost, by this step and by all others.",
		Redo: "The command does not run again: the container is made anew from an image of its filesystem that the rollback kept, " +
			"with the same name and settings. One that has changed since the rollback is left alone. With volumes: snapshot it runs again.",
	}
}

// Plan looks at the container and reads its filesystem; it leaves nothing behind.
func (x *execAction) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := decode(s)
	if err != nil {
		return activities.Change{}, err
	}
	t, err := x.token(ctx, e)
	if err != nil {
		return activities.Change{}, err
	}
	if err := t.CheckOpen(); err != nil {
		return activities.Change{}, err
	}
	again, err := x.comebackOf(ctx, e)
	if err != nil {
		return activities.Change{}, err
	}
	if again != nil {
		return x.planAgain(ctx, p, again)
	}
	target, err := x.find(ctx, p.Container)
	if err != nil {
		return activities.Change{}, err
	}
	change := activities.Change{
		Diff:     p.describe(target),
		Keys:     []string{"container:" + p.Container},
		Strategy: activities.NoUndo,
		Risk:     activities.Low,
		Undo:     "nothing: the command only reads",
		Facts:    []string{"every program in the command is known to change nothing with these arguments, and is that of the container's image"},
	}
	by, reads, err := x.chooseFor(ctx, p, target)
	if err != nil {
		return activities.Change{}, err
	}
	title := titleOf(activities.MaskerFrom(ctx).String(p.String()))
	var before manifest
	if reads {
		change.Summary = fmt.Sprintf("read in %s: %s", nameOf(target), title)
	} else {
		if before, err = takeManifest(ctx, x.engine, target.ID, p.ignored()); err != nil {
			return activities.Change{}, err
		}
		kept, err := x.volumesOf(ctx, p, target)
		if err != nil {
			return activities.Change{}, err
		}
		if err := errors.Join(before.addVolumes(kept), before.weigh(kept)); err != nil {
			return activities.Change{}, err
		}
		change.Summary = fmt.Sprintf("run in %s: %s", nameOf(target), title)
		change.Strategy, change.Risk = activities.Snapshot, activities.Medium
		change.Undo, change.Losses = x.undoOf(by, target, p.ignored(), kept...)
		change.Facts = []string{by.fact()}
		if !by.Layers {
			change.Facts = append(change.Facts, "the command cannot be proven to change nothing")
		}
		change.Facts = append(change.Facts, p.costs(kept)...)
	}
	change.Digest = changeDigest(ctx, p, target, before, "")
	return change, nil
}

// planAgain is the plan of a redo.
func (x *execAction) planAgain(ctx context.Context, p params, again *comeback) (activities.Change, error) {
	now, err := again.look(ctx)
	if err != nil {
		return activities.Change{}, err
	}
	if err := again.unchanged(now); err != nil {
		return activities.Change{}, err
	}
	undo, losses := x.undoOf(again.chosen, again.target, again.ignore)
	change := again.change(now, losses)
	change.Keys, change.Undo = []string{"container:" + p.Container}, undo
	change.Digest = changeDigest(ctx, p, again.target, now, again.Kept.After)
	return change, nil
}

// changeDigest covers what would run, where, and the filesystem that it would find; and of a redo, what would be put
// back. Secrets in the command count as what they are called, not by their values.
func changeDigest(ctx context.Context, p params, target container.InspectResponse, before manifest, kept activities.Digest) activities.Digest {
	said, _ := json.Marshal(p) // strings, lists and a map of strings always marshal
	said = []byte(activities.MaskerFrom(ctx).String(string(said)))
	found := activities.Digest("")
	if before != nil {
		found = before.digest()
	}
	parts := [][]byte{[]byte("container.exec"), said, []byte(target.ID), []byte(found)}
	if kept != "" {
		parts = append(parts, []byte(kept))
	}
	return activities.DigestOf(parts...)
}

// find resolves the container of a step, or says why the step cannot run in it.
func (x *execAction) find(ctx context.Context, name string) (container.InspectResponse, error) {
	if _, err := hex.DecodeString(name); err == nil && len(name) == 64 {
		standing, err := x.backend.standing(ctx, name)
		if err != nil {
			return container.InspectResponse{}, err
		}
		name = standing
	}
	c, err := x.engine.ContainerInspect(ctx, name)
	if engine.IsNotFound(err) {
		return c, activities.Errorf(activities.Refused, "container: the engine has no container %q; docker ps --all lists those that it has", name)
	}
	if err != nil {
		return c, engine.Explain("looking for container "+name, err)
	}
	if !c.State.Running {
		return c, activities.Errorf(activities.Refused, "container: %s is not running (%s); docker start %[1]s starts it", name, c.State.Status)
	}
	return c, awake(c, name)
}

// awake refuses a container that an engine lets nobody make a copy of in peace.
func awake(c container.InspectResponse, name string) error {
	switch {
	case c.State.Paused:
		return activities.Errorf(activities.Refused, "container: %s is paused; docker unpause %[1]s wakes it", name)
	case c.State.Restarting:
		return activities.Errorf(activities.Refused, "container: %s keeps restarting; docker logs %[1]s may say why", name)
	}
	return nil
}

func nameOf(c container.InspectResponse) string { return strings.TrimPrefix(c.Name, "/") }

// describe is what a person reads before approving.
func (p params) describe(target container.InspectResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "container  %s (%s, image %s)\n", nameOf(target), target.ID[:12], target.Config.Image)
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

// outside names what this container has that is not rolled back.
func outside(c container.InspectResponse, ignore []string) []string {
	var lost []string
	for _, m := range c.Mounts {
		switch {
		case !m.RW:
		case m.Type == mount.TypeVolume:
			lost = append(lost, fmt.Sprintf("volume %s at %s is not rolled back", m.Name, m.Destination))
		default:
			lost = append(lost, fmt.Sprintf("%s %s at %s is not rolled back", m.Type, m.Source, m.Destination))
		}
	}
	for at := range c.HostConfig.Tmpfs {
		lost = append(lost, fmt.Sprintf("tmpfs at %s is lost when the container is made anew", at))
	}
	return append(lost, ignoring(ignore)...)
}

func ignoring(ignore []string) []string {
	if len(ignore) == 0 {
		return nil
	}
	return []string{"what is written below " + strings.Join(ignore, ", ") + " is neither compared nor kept: it is thrown away"}
}
