package disk

import (
	"context"
	"errors"

	"github.com/seed-62bf7108/unwind/activities"
)

// Preflight checks the parameters, that qemu-img is there, and that the image is one that can be
// kept, without holding it: a machine that has it open may be stopped before the step.
func (a *action) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := a.decode(o.Step)
	problems := []error{err, checkProgram(), activities.CheckPrograms(ctx, o.Checks)}
	if err == nil && !o.Awaits("disk") {
		problems = append(problems, a.preflightDisk(p.Disk))
	}
	for param, name := range map[string]string{"checkpoint": p.Checkpoint, "with": p.With} {
		if name != "" && !o.Awaits(param) {
			_, err := tokenOf(name)
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// decode decodes the parameters of a step of any of the actions.
func (a *action) decode(s activities.Step) (allParams, error) { return decode(a.spec.Name, s) }

func decode(action string, s activities.Step) (all allParams, err error) {
	switch action {
	case keepName:
		p, err := activities.DecodeParams[keepParams](s.With)
		return allParams{compareParams{Disk: p.Disk}, p.Memory}, err
	case compareName:
		all.compareParams, err = activities.DecodeParams[compareParams](s.With)
		return all, err
	}
	p, err := activities.DecodeParams[restoreParams](s.With)
	return allParams{compareParams{Disk: p.Disk, Checkpoint: p.Checkpoint}, p.Memory}, err
}

func (a *action) preflightDisk(given string) error {
	path, err := a.locateThere(given)
	if err != nil {
		return err
	}
	i, err := openImage(path)
	if err != nil {
		return refuseCurrent(given, err)
	}
	defer i.close()
	return refuseCurrent(given, a.checkFit(i, true))
}
