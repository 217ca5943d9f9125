package helper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/layer"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// rootWrite is a write of layer Upto and all below it into the container's own root. Layers are those that the root lacked
// when it began, the oldest first.
type rootWrite struct {
	Upto   int   `json:"upto"`
	Layers []int `json:"layers"`
}

// commit makes the work of checkpoints names part of the container's own filesystem, so that a restart keeps it.
// Checkpoints stay usable: see [lockedBook.writeToRoot]. If no process uses the layers any more they are unmounted, and off
// is true. Otherwise they stay, and their content is written all the same.
func (o *lockedBook) commit(ctx context.Context, names []string) (off bool, err error) {
	if o.Upper == 0 && o.Landing == nil {
		return true, nil
	}
	if o.target == nil { // cannot be written now; see reconcile
		o.Owed = true
		return false, o.writeBook(o.dir, false)
	}
	if o.Upper == 0 { // a rollback in place was interrupted
		return true, o.writeToRoot(o.Landing.Upto)
	}
	if other := o.otherUser(names); other != "" { // its step's work is not committed yet
		return false, o.writeToRoot(o.Marks[other])
	}
	waits, cancel := context.WithTimeout(ctx, min(o.leaving, time.Second))
	defer cancel()
	if gone, err := o.target.WaitUnused(waits, *o.shown); err != nil {
		return false, err
	} else if !gone {
		return false, o.commitInUse()
	}
	upto, err := o.freezeTop(ctx)
	if err != nil {
		return false, err
	}
	if err := o.writeToRoot(upto); err != nil {
		return false, err
	}
	if users, err := o.target.Users(*o.shown); err != nil || users > 0 {
		o.Owed = true
		return false, errors.Join(err, o.writeBook(o.dir, false))
	}
	return true, o.removeStack(ctx)
}

// otherUser is a checkpoint, not one of names, whose step may be using the top.
func (o *lockedBook) otherUser(names []string) (guest string) {
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

// commitInUse writes a copy of a top that is still written to. Later writes reach the root when the container has been
// restarted, or with the next commit.
func (o *lockedBook) commitInUse() error {
	n, _, err := o.copyUpper()
	if err != nil {
		return errors.Join(err, o.sweepLayers())
	}
	o.Below[n], o.Owed = o.Lower, true
	return o.writeToRoot(n)
}

// freezeTop replaces the top, and returns the newest layer of what the container shows once nothing writes to it.
func (o *lockedBook) freezeTop(ctx context.Context) (newest int, err error) {
	untouched, err := o.target.Untouched(o.view(o.Lower, o.Upper))
	if err != nil || untouched {
		return o.Lower, err
	}
	if err := o.showTop(ctx, topChange{Lower: o.newestLayer()}); err != nil {
		return 0, err
	}
	return o.Lower, o.surveyTops()
}

// writeToRoot writes layer upto, with all below it, into the container's own root. First it saves what that changes there
// as a layer below all others: over that one, every layer looks as before, over the old root, the new one and every state
// between. So it does not matter how far an interrupted write got, and it can start again.
func (o *lockedBook) writeToRoot(upto int) error {
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
		o.Landing = &rootWrite{upto, layers}
		if err := o.writeBook(o.dir, false); err != nil {
			return err
		}
	}
	point.Reach("overlay.commit:kept")
	if err := o.target.Base().Flatten(o.dir, o.Landing.Layers); err != nil {
		return err
	}
	point.Reach("overlay.commit:written")
	o.Base, o.Landing = upto, nil
	return o.writeBook(o.dir, false)
}

// keepReverse inserts, below all others, a layer that undoes what layers are about to change in the container's own root.
func (o *lockedBook) keepReverse(layers []int) error {
	if err := o.checkRoom(0); err != nil {
		return err
	}
	n := o.Next
	o.Next++
	err := o.removeLayer(n) // a helper killed before it wrote its book may have used the number
	if err == nil {
		err = o.target.Base().Reverse(o.dir, layers, n)
	}
	if err != nil {
		return errors.Join(err, o.removeLayer(n))
	}
	point.Reach("overlay.commit:reversed")
	o.insertReverse(n)
	return nil
}

// removeStack unmounts the stack when the container's own root has all that its lower layers hold.
func (o *lockedBook) removeStack(ctx context.Context) error {
	o.Doing = &topChange{Old: o.shown, Born: o.born}
	if err := o.writeBook(o.dir, false); err != nil {
		return err
	}
	point.Reach("overlay.commit:taking-off")
	if err := o.target.MoveTopAside(); err != nil {
		return err
	}
	point.Reach("overlay.commit:aside")
	if err := o.surveyTops(); err != nil {
		return err
	}
	return o.removeTopAside(ctx)
}

// removeTopAside unmounts a stack whose top has been moved aside, or has gone with a restart. It waits for processes that
// entered before, and writes what they wrote into the container's own root too. A process that stays makes it an InUse
// failure.
func (o *lockedBook) removeTopAside(ctx context.Context) error {
	if top := o.survey.Aside; top != nil {
		waits, cancel := context.WithTimeout(ctx, o.leaving)
		defer cancel()
		if gone, err := o.target.WaitUnused(waits, *top); err != nil {
			return err
		} else if !gone {
			return newFailure(InUse, "a process that entered the container while its layers were being unmounted is still running: "+
				"they are unmounted when it ends or the container is restarted")
		}
	}
	if err := o.writeAllToRoot(); err != nil {
		return err
	}
	if o.survey.Aside != nil {
		if err := o.target.RemoveAside(); err != nil {
			return err
		}
	}
	return errors.Join(o.completeChange(ctx, *o.Doing, false), os.RemoveAll(filepath.Join(o.dir, spareName)))
}

// writeAllToRoot writes a stack that nothing writes to any more.
func (o *lockedBook) writeAllToRoot() error {
	upto := o.Upper
	if untouched, err := o.target.Untouched(o.view(o.Lower, o.Upper)); err != nil {
		return err
	} else if untouched {
		upto = o.Lower
	}
	return o.writeToRoot(upto)
}

// commitOwed does after a restart what a commit could not: nothing uses the layers now.
func (o *lockedBook) commitOwed(ctx context.Context) error {
	if err := o.writeAllToRoot(); err != nil {
		return err
	}
	return o.completeChange(ctx, topChange{}, false)
}

// restoreInPlace restores a checkpoint by writing it into the container's own root, with no layers mounted.
func (o *lockedBook) restoreInPlace(ctx context.Context, c topChange) error {
	if c.Keep != "" {
		o.Marks[c.Keep] = 0
		c.Keep = ""
	}
	if err := o.writeToRoot(c.Lower); err != nil {
		return err
	}
	c.Lower = 0
	return o.completeChange(ctx, c, false)
}

var errNoRoot = newFailure(Unfit, "the container is not running, and its files after the commit of its layers cannot be read: start it")

// view of the container's own root where a commit has written to it: see [book.history].
func (o *lockedBook) drift(now []int, at int, skips, timeless func(string) bool) ([]layer.Change, error) {
	if o.target == nil {
		return nil, errNoRoot
	}
	return o.target.Base().Drift(o.dir, layersOf(now), o.chain(at), skips, timeless)
}
