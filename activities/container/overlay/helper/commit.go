package helper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/stack"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// landing is what is being written into the container's own root: layer Upto and all below it. Layers are those of them that
// the root lacked when that began, the oldest first.
type landing struct {
	Upto   int   `json:"upto"`
	Layers []int `json:"layers"`
}

// commit makes what the steps of checkpoints names have done a part of the container's own filesystem, which then shows it
// after a restart too. Each checkpoint stays: see [open.land]. Where nobody stands in the layers any more they are taken off,
// and it is true. Else they stay, and what is in them is written all the same.
func (o *open) commit(ctx context.Context, names []string) (off bool, err error) {
	if o.Upper == 0 && o.Landing == nil {
		return true, nil
	}
	if o.target == nil { // nothing can be written now; see settle
		o.Owed = true
		return false, o.write(o.dir, false)
	}
	if o.Upper == 0 { // a rollback in place was cut short
		return true, o.land(o.Landing.Upto)
	}
	if other := o.guest(names); other != "" { // what its step does is not committed yet
		return false, o.land(o.Marks[other])
	}
	waits, cancel := context.WithTimeout(ctx, min(o.leaving, time.Second))
	defer cancel()
	if gone, err := o.target.Deserted(waits, *o.shown); err != nil {
		return false, err
	} else if !gone {
		return false, o.commitInUse()
	}
	upto, err := o.freeze(ctx)
	if err != nil {
		return false, err
	}
	if err := o.land(upto); err != nil {
		return false, err
	}
	if users, err := o.target.Users(*o.shown); err != nil || users > 0 {
		o.Owed = true
		return false, errors.Join(err, o.write(o.dir, false))
	}
	return true, o.takeOff(ctx)
}

// guest is a checkpoint, not one of names, whose step may be at work in the top.
func (o *open) guest(names []string) (guest string) {
	for mark, upper := range o.Doors {
		if upper != o.Upper || slices.Contains(names, mark) {
			continue
		}
		if guest == "" || len(o.chain(o.Marks[mark])) < len(o.chain(o.Marks[guest])) {
			guest = mark
		}
	}
	return guest
}

// commitInUse writes a copy of the top, in which somebody goes on writing. What he writes later is written when the container
// has been restarted, or by the next commit.
func (o *open) commitInUse() error {
	n, _, err := o.copyUpper()
	if err != nil {
		return errors.Join(err, o.sweep(o.dir))
	}
	o.Below[n], o.Owed = o.Lower, true
	return o.land(n)
}

// freeze returns the newest layer of what the container shows, when nobody writes to it any more.
func (o *open) freeze(ctx context.Context) (newest int, err error) {
	untouched, err := o.target.Untouched(o.view(o.Lower, o.Upper))
	if err != nil || untouched {
		return o.Lower, err
	}
	if err := o.show(ctx, change{Lower: o.newest()}); err != nil {
		return 0, err
	}
	return o.Lower, o.look()
}

// land writes layer upto, with all below it, into the container's own root. First it keeps what that changes there, as a
// layer below all others: with that one below, each layer shows what it showed before, over the root as it was, as it is to
// be, and as it is at any moment between. So nothing depends on how far the writing has got, and it can be begun again.
func (o *open) land(upto int) error {
	if l := o.Landing; l == nil || l.Upto != upto {
		layers := o.chain(upto)
		if i := slices.Index(layers, o.Base); i >= 0 {
			layers = layers[i+1:]
		}
		if len(layers) == 0 {
			return nil
		}
		if err := o.keepReverse(layers); err != nil {
			return err
		}
		o.Landing = &landing{upto, layers}
		if err := o.write(o.dir, false); err != nil {
			return err
		}
	}
	point.Reach("overlay.commit:kept")
	if err := o.target.Flatten(o.dir, o.Landing.Layers); err != nil {
		return err
	}
	point.Reach("overlay.commit:written")
	o.Base, o.Landing = upto, nil
	return o.write(o.dir, false)
}

// keepReverse puts a layer below all others that takes back what layers are about to change in the container's own root.
func (o *open) keepReverse(layers []int) error {
	if err := o.enough(0); err != nil {
		return err
	}
	n := o.Next
	o.Next++
	err := o.remove(n) // a helper that was killed before it wrote its book may have used the number
	if err == nil {
		err = o.target.Reverse(o.dir, layers, n)
	}
	if err != nil {
		return errors.Join(err, o.remove(n))
	}
	point.Reach("overlay.commit:reversed")
	o.book.keepReverse(n)
	return nil
}

// takeOff takes the stack off when all that its lower layers hold is in the container's own root.
func (o *open) takeOff(ctx context.Context) error {
	o.Doing = &change{Old: o.shown, Born: o.born}
	if err := o.write(o.dir, false); err != nil {
		return err
	}
	point.Reach("overlay.commit:taking-off")
	if err := o.target.SetAside(); err != nil {
		return err
	}
	point.Reach("overlay.commit:aside")
	if err := o.look(); err != nil {
		return err
	}
	return o.lift(ctx)
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
	if err := o.landAll(); err != nil {
		return err
	}
	if o.survey.Aside != nil {
		if err := o.target.Clear(); err != nil {
			return err
		}
	}
	return errors.Join(o.complete(ctx, *o.Doing, false), os.RemoveAll(filepath.Join(o.dir, spareName)))
}

// landAll lands a stack to which nobody writes any more.
func (o *open) landAll() error {
	upto := o.Upper
	if untouched, err := o.target.Untouched(o.view(o.Lower, o.Upper)); err != nil {
		return err
	} else if untouched {
		upto = o.Lower
	}
	return o.land(upto)
}

// commitOwed does what a commit could not, after a restart: nobody stands in the layers now.
func (o *open) commitOwed(ctx context.Context) error {
	if err := o.landAll(); err != nil {
		return err
	}
	return o.complete(ctx, change{}, false)
}

// restoreInPlace brings a checkpoint back by writing it into the container's own root: no layers may stand there.
func (o *open) restoreInPlace(ctx context.Context, c change) error {
	if c.Keep != "" {
		o.Marks[c.Keep] = 0
		c.Keep = ""
	}
	if err := o.land(c.Lower); err != nil {
		return err
	}
	c.Lower = 0
	return o.complete(ctx, c, false)
}

var errNoRoot = failure(Unfit, "the container does not run, and what it holds since its layers were written into it cannot be seen: start it")

// view of the container's own root where a commit has written to it: see [book.history].
func (o *open) drift(now []int, at int, skips, timeless func(string) bool) ([]stack.Change, error) {
	if o.target == nil {
		return nil, errNoRoot
	}
	return o.target.Drift(o.dir, layersOf(now), o.chain(at), skips, timeless)
}
