package helper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// flatten writes what the layers hold into the container's own filesystem and takes the stack off. It leaves all as it is
// and says InUse where a checkpoint or a process is in the way.
func (o *open) flatten(ctx context.Context) error {
	if len(o.Marks) > 0 {
		return failure(InUse, "%d checkpoints of the container are kept", len(o.Marks))
	}
	if o.shown == nil {
		return nil
	}
	if err := o.unused(ctx); err != nil {
		return err
	}
	if untouched, err := o.target.Untouched(o.view(o.Lower, o.Upper)); err != nil {
		return err
	} else if !untouched { // from here on nobody writes to what is copied
		if err := o.show(ctx, change{Lower: o.newest()}); err != nil {
			return err
		}
		if err := o.look(); err != nil {
			return err
		}
	}
	if err := o.target.Flatten(o.dir, o.chain(o.Lower)); err != nil {
		return err
	}
	if err := o.unused(ctx); err != nil {
		return err
	}
	o.Doing = &change{Old: o.shown, Born: o.born}
	if err := o.write(o.dir, false); err != nil {
		return err
	}
	if err := o.target.SetAside(); err != nil {
		return err
	}
	if err := o.look(); err != nil {
		return err
	}
	return o.lift(ctx)
}

// unused says as an InUse that somebody stands in the layers.
func (o *open) unused(ctx context.Context) error {
	if _, err := o.fit(ctx); err != nil {
		return err
	}
	users, err := o.target.Users(*o.shown)
	if err == nil && users > 0 {
		err = failure(InUse, "%d processes stand in the layers of the container", users)
	}
	return err
}

// lift takes the stack off whose top has been set aside, or has gone with a restart. Who had entered before that is waited
// for, and what he has written is written into the container's own root too. Somebody who stays makes it an InUse.
func (o *open) lift(ctx context.Context) error {
	if top := o.survey.Aside; top != nil {
		waits, cancel := context.WithTimeout(ctx, o.leaving)
		defer cancel()
		if gone, err := o.target.Deserted(waits, *top); err != nil {
			return err
		} else if !gone {
			return failure(InUse, "a process that entered the container when its layers were taken off is still there: "+
				"they go when it ends, or when the container is restarted")
		}
	}
	if untouched, err := o.target.Untouched(o.view(o.Lower, o.Upper)); err != nil {
		return err
	} else if !untouched {
		if err := o.target.Flatten(o.dir, []int{o.Upper}); err != nil {
			return err
		}
	}
	if o.survey.Aside != nil {
		if err := o.target.Clear(); err != nil {
			return err
		}
	}
	return errors.Join(o.complete(ctx, *o.Doing, false), os.RemoveAll(filepath.Join(o.dir, spareName)))
}
