package container

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// through makes a command one that the step's undo keeps from beginning too late, where the container itself stays.
func (a *application) through(ctx context.Context, c command) (command, error) {
	if !a.rec.Chosen.Layers {
		return c, nil
	}
	return a.choice.layers.through(ctx, a.entry.Token, a.rec.Container, c)
}

// stepScene is the scene of a step whose checks may come too late as well as its command.
type stepScene struct {
	scene
	step *application
}

// Run runs a program in the container.
func (s stepScene) Run(ctx context.Context, argv []string) ([]byte, error) {
	c, err := s.step.through(ctx, command{Argv: argv}.marked(s.step.entry.Token))
	if err != nil {
		return nil, err
	}
	return s.run(ctx, c)
}

// undoOf says how a step in a container would be undone, and what that would not bring back.
func (x *execAction) undoOf(by chosen, c container.InspectResponse, ignore []string, kept ...volume) (undo string, losses []string) {
	c = without(c, kept)
	if !by.Layers {
		return x.Spec().Undo + fromCopies(kept), slices.Concat(x.backend.losses(), uncompared(c), outside(c, ignore))
	}
	return "The layers that the step has written are taken off the container, which stays as it is but for them. " + noProcess +
		"every one that a command has left in it is ended, and the container's own go on. Volumes, binds and effects outside are not rolled back." + fromCopies(kept), slices.Concat(x.choice.layers.losses(), mounted(c), []string{notOnLayers}, ignoring(ignore))
}

// mounted names what is not rolled back because it is not in the own filesystem of a container that stays.
func mounted(c container.InspectResponse) []string {
	var lost []string
	for at := range c.HostConfig.Tmpfs {
		lost = append(lost, fmt.Sprintf("tmpfs at %s is not rolled back", at))
	}
	c.ContainerJSONBase = &container.ContainerJSONBase{HostConfig: &container.HostConfig{}}
	return append(lost, outside(c, nil)...)
}

// notOnLayers is said of each undo by layers.
const notOnLayers = "what the command writes to /etc/hosts, /etc/hostname, /etc/resolv.conf or /dev is not rolled back: the engine mounts them"

// besides lists what of that is not as it was before the step.
func (x *execAction) besides(ctx context.Context, rec record, id string) (differs []string, err error) {
	if rec.Beside == nil {
		return nil, nil
	}
	now, err := x.choice.layers.beside(ctx, id)
	if err != nil || now == nil {
		return nil, err
	}
	for at, was := range rec.Beside {
		switch is, there := now[at]; {
		case !there:
			differs = append(differs, "- "+at)
		case is != was:
			differs = append(differs, "~ "+at)
		}
	}
	for at := range now {
		if _, there := rec.Beside[at]; !there {
			differs = append(differs, "+ "+at)
		}
	}
	slices.Sort(differs)
	return differs, nil
}

// remains are those that are of the step's making: the engine and others write there too.
func (x *execAction) remains(ctx context.Context, t *journal.Token, rec record, id string) ([]string, error) {
	differs, err := x.besides(ctx, rec, id)
	if err != nil || len(differs) == 0 {
		return nil, err
	}
	done, ended, err := readApplied(t)
	if ended {
		differs = slices.DeleteFunc(differs, func(line string) bool { return !slices.Contains(done.Beside, line) })
	}
	return differs, err
}

// exact says what was seen after a rollback that has left the container as it was.
func exact(undone activities.Undone, rec record, back restored) activities.Undone {
	if len(back.Differs) > 0 {
		return undone
	}
	undone.Outcome = activities.Restored
	undone.Observed = fmt.Sprintf("the layers of %s are those before the step, and nothing is written over them", nameOf(rec.Container))
	undone.Losses = mounted(without(rec.Container, rec.Volumes))
	if back.Ended {
		undone.Losses = append(undone.Losses, leftRunning)
	}
	if len(undone.Losses) > 0 {
		undone.Outcome = activities.Compensated
	}
	return undone
}

// lacksLayers says that an image of the container would lack what is in layers over it.
func (x *execAction) lacksLayers(ctx context.Context, rec record, id string) bool {
	over, err := x.choice.over(ctx, id)
	return !rec.Chosen.Layers && (over != nil || err != nil)
}

// release lets go of all that the token has with any backend: its record may be gone.
func (x *execAction) release(ctx context.Context, token string) error {
	return errors.Join(x.backend.release(ctx, token), x.choice.layers.release(ctx, token))
}
