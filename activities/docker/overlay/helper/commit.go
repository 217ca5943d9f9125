package helper

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// rootWrite is a write of layer Upto and all below it into the container's own root. Layers are
// those that the root lacked when it began, the oldest first.
type rootWrite struct {
	Upto   int   `json:"upto"`
	Layers []int `json:"layers"`
	// Names are the checkpoints whose steps are committed by it; none is all.
	Names []string `json:"names,omitempty"`
}

// commit makes the work of checkpoints names part of the container's own filesystem, so that a
// restart keeps it. Checkpoints stay usable: see [lockedBook.writeToRoot]. If no process uses the
// layers any more they are unmounted, and Yes of the answer is set. Otherwise they stay, and their
// content is written all the same.
func (o *lockedBook) commit(ctx context.Context, names []string, a *Answer) error {
	err := o.commitNow(ctx, names, a)
	for _, name := range names {
		a.Paths = append(a.Paths, o.Others[name]...)
	}
	slices.Sort(a.Paths)
	a.Paths = slices.Compact(a.Paths)
	return err
}

func (o *lockedBook) commitNow(ctx context.Context, names []string, a *Answer) (err error) {
	if o.Upper == 0 && o.Landing == nil {
		a.Yes = true
		return nil
	}
	if o.target == nil { // cannot be written now; see reconcile
		o.Owed = true
		return o.writeBook()
	}
	if o.Upper == 0 { // a rollback in place was interrupted
		a.Yes = true
		return o.writeToRoot(o.Landing.Upto, o.Landing.Names)
	}
	if other := o.otherUser(names); other != "" { // its step's work is not committed yet
		return o.writeToRoot(o.Marks[other], names)
	}
	waits, cancel := context.WithTimeout(ctx, min(o.leaving, time.Second))
	defer cancel()
	if gone, err := o.target.WaitUnused(waits, *o.shown); err != nil {
		return err
	} else if !gone {
		return errors.Join(o.commitInUse(names), o.nameUsers(a))
	}
	upto, err := o.freezeTop(ctx)
	if err != nil {
		return err
	}
	if err := o.writeToRoot(upto, names); err != nil {
		return err
	}
	if users, err := o.target.Users(*o.shown); err != nil || users > 0 {
		o.Owed = true
		return errors.Join(err, o.writeBook(), o.nameUsers(a))
	}
	a.Yes = true
	return o.removeStack(ctx, names)
}

// nameUsers adds to an answer the processes that use the top.
func (o *lockedBook) nameUsers(a *Answer) (err error) {
	a.Users, err = o.target.NameUsers(*o.shown)
	return err
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

// commitInUse writes a copy of a top that is still written to. Later writes reach the root when the
// container has been restarted, or with the next commit.
func (o *lockedBook) commitInUse(names []string) error {
	n, _, err := o.copyUpper()
	if err != nil {
		return errors.Join(err, o.sweepLayers())
	}
	o.Below[n], o.Owed = o.Lower, true
	return o.writeToRoot(n, names)
}

// freezeTop replaces the top, and returns the newest layer of what the container shows once nothing
// writes to it.
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

// writeToRoot writes layer upto, with all below it, into the container's own root. First it saves
// what that changes there as a layer below all others: over that one, every layer looks as before,
// over the old root, the new one and every state between. So it does not matter how far an
// interrupted write got, and it can start again. What somebody else has changed in the root since
// the layers were put over it stays as it is, and is recorded for the checkpoints names; nil is
// all.
func (o *lockedBook) writeToRoot(upto int, names []string) error {
	if l := o.Landing; l == nil || l.Upto != upto {
		layers := o.chain(upto)
		if i := slices.Index(layers, o.Base); i >= 0 {
			layers = layers[i+1:]
		}
		if len(layers) == 0 {
			return nil
		}
		foreign, err := o.root().Foreign(o.dir, layers, true, skipNothing)
		if err != nil {
			return err
		}
		if err := o.keepReverse(layers); err != nil {
			return err
		}
		o.Except = append(o.Except, foreign...)
		o.Landing = &rootWrite{upto, layers, names}
		if err := o.writeBook(); err != nil {
			return err
		}
	}
	point.Reach("overlay.commit:kept")
	except := func(at string) bool { return isBelow(at, o.Except) }
	if err := o.target.Base().Flatten(o.dir, o.Landing.Layers, except); err != nil {
		return err
	}
	point.Reach("overlay.commit:written")
	for mark := range o.Marks {
		if o.Landing.Names == nil || slices.Contains(o.Landing.Names, mark) {
			o.addOthers(mark, o.Except)
		}
	}
	o.Base, o.Landing, o.Since = upto, nil, time.Now().UnixNano()
	if o.Upper != 0 {
		o.Wrote = upto
	}
	return o.writeBook()
}

// root is the container's own root. What it has of a write that was interrupted cannot be told from
// what others have changed.
func (o *lockedBook) root() layer.Root {
	if o.Landing != nil {
		return layer.Root{Base: o.target.Base()}
	}
	return layer.Root{Base: o.target.Base(), Since: o.Since, Wrote: o.chain(o.Wrote)}
}

// keepReverse inserts, below all others, a layer that undoes what layers are about to change in the
// container's own root.
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
func (o *lockedBook) removeStack(ctx context.Context, names []string) error {
	o.Doing = &topChange{Old: o.shown, Born: o.born}
	if err := o.writeBook(); err != nil {
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
	return o.removeTopAside(ctx, names)
}

// removeTopAside unmounts a stack whose top has been moved aside, or has gone with a restart. It
// waits for processes that entered before, and writes what they wrote into the container's own root
// too. A process that stays makes it an InUse failure.
func (o *lockedBook) removeTopAside(ctx context.Context, names []string) error {
	if top := o.survey.Aside; top != nil {
		waits, cancel := context.WithTimeout(ctx, o.leaving)
		defer cancel()
		if gone, err := o.target.WaitUnused(waits, *top); err != nil {
			return err
		} else if !gone {
			return newFailure(InUse,
				"a process that entered the container while its layers were being unmounted is still running: "+
					"they are unmounted when it ends or the container is restarted")
		}
	}
	if err := o.writeAllToRoot(names); err != nil {
		return err
	}
	if o.survey.Aside != nil {
		if err := o.target.RemoveAside(); err != nil {
			return err
		}
	}
	return errors.Join(o.completeChange(ctx, *o.Doing), os.RemoveAll(filepath.Join(o.dir, spareName)))
}

// writeAllToRoot writes a stack that nothing writes to any more.
func (o *lockedBook) writeAllToRoot(names []string) error {
	upto := o.Upper
	if untouched, err := o.target.Untouched(o.view(o.Lower, o.Upper)); err != nil {
		return err
	} else if untouched {
		upto = o.Lower
	}
	return o.writeToRoot(upto, names)
}

// commitOwed does after a restart what a commit could not: nothing uses the layers now.
func (o *lockedBook) commitOwed(ctx context.Context) error {
	if err := o.writeAllToRoot(nil); err != nil {
		return err
	}
	return o.completeChange(ctx, topChange{})
}

// restoreInPlace restores a checkpoint by writing it into the container's own root, with no layers
// mounted.
func (o *lockedBook) restoreInPlace(ctx context.Context, c topChange) error {
	if c.Keep != "" {
		o.Marks[c.Keep] = 0
		c.Keep = ""
	}
	o.Since = time.Now().UnixNano() // what is to be overwritten has been looked at
	if err := o.writeToRoot(c.Lower, []string{}); err != nil {
		return err
	}
	c.Lower = 0
	return o.completeChange(ctx, c)
}

var errNoRoot = newFailure(Unfit,
	"the container is not running, and its files after the commit of its layers cannot be read: start it")

// view of the container's own root where a commit has written to it: see [book.history].
func (o *lockedBook) drift(now []int, at int, skips, timeless func(string) bool) ([]layer.Change, error) {
	if o.target == nil {
		return nil, errNoRoot
	}
	return o.target.Base().Drift(o.dir, layersOf(now), o.chain(at), skips, timeless)
}
