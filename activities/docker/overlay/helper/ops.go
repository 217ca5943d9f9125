package helper

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// takeCheckpoint keeps what the container shows now under a name, once. Later writes are not part
// of it.
func (o *lockedBook) takeCheckpoint(ctx context.Context, name string) error {
	if _, taken := o.Marks[name]; taken {
		return nil
	}
	users, err := o.checkFit(ctx)
	if err != nil {
		return err
	}
	if err := o.checkRoom(0); err != nil {
		return err
	}
	if err := o.keepSpare(); err != nil {
		return err
	}
	if o.shown == nil {
		return o.showTop(ctx, topChange{Mark: name, Takes: true})
	}
	untouched, err := o.target.Untouched(o.view(o.Lower, o.Upper))
	if err != nil {
		return err
	}
	switch {
	case untouched && users == 0: // an empty layer needs none above it
		o.Marks[name], o.Doors[name] = o.Lower, o.Upper
		return o.writeBook()
	case users == 0:
		return o.showTop(ctx, topChange{Lower: o.newestLayer(), Mark: name, Takes: true})
	}
	return o.copyTop(name)
}

// copyTop keeps a copy of the upper layer, to which processes left by an earlier step go on
// writing.
func (o *lockedBook) copyTop(name string) error {
	n, settled, err := o.copyUpper()
	if err == nil && !settled {
		err = newFailure(InUse,
			"a process left by an earlier step writes to the container all the time: no consistent copy can be made")
	}
	if err != nil {
		return errors.Join(err, o.sweepLayers())
	}
	o.Below[n] = o.Lower
	o.Marks[name], o.Doors[name], o.Busy[name] = n, o.Upper, true
	return o.writeBook()
}

// copyUpper copies the upper layer, and reports whether the copy is consistent.
func (o *lockedBook) copyUpper() (n int, settled bool, err error) {
	const tries = 3
	n = o.Next
	o.Next++
	if err := o.writeBook(); err != nil { // so that the number is never reused
		return n, false, err
	}
	if err := layer.Make(o.dir, n); err != nil {
		return n, false, err
	}
	whole := false
	for range tries {
		before, err := layer.Changes(o.dir, []int{o.Upper}, skipNothing)
		if err != nil {
			continue // a file vanished while it was read
		}
		size, err := layer.Size(o.dir, o.Upper)
		if err != nil {
			continue
		}
		if err := o.checkRoom(size); err != nil {
			return n, false, err
		}
		whole = false
		if err := filetree.CopyTo(layer.Content(o.dir, o.Upper), layer.Content(o.dir, n), nil); errors.Is(err,
			fs.ErrNotExist) {
			continue
		} else if err != nil {
			return n, false, err
		}
		whole = true
		copied, err := layer.Changes(o.dir, []int{n}, skipNothing)
		if err != nil {
			return n, false, err
		}
		after, err := layer.Changes(o.dir, []int{o.Upper}, skipNothing)
		if err == nil && slices.Equal(before, copied) && slices.Equal(copied, after) {
			return n, true, nil
		}
	}
	if !whole {
		err = newFailure(InUse,
			"files of the container come and go too fast to be copied: a process left by a step writes all the time")
	}
	return n, false, err
}

func skipNothing(string) bool { return false }

// openDoor returns a folder in the container that leads to workdir for as long as the checkpoint's
// step may enter. A command started there cannot start in a container that has been restored.
func (o *lockedBook) openDoor(name, workdir string) (string, error) {
	if upper, ok := o.Doors[name]; !ok || upper != o.shownLayer() {
		return "", newFailure(Fenced,
			"the step may no longer enter the container: it has been rolled back, or another step has begun there")
	}
	sum := sha256.Sum256([]byte(workdir))
	link := filepath.Join(o.doorFolder(o.Upper), hex.EncodeToString(sum[:8]))
	if err := os.Symlink(workdir, filepath.Join(doorOf(o.dir, o.Upper), link)); err != nil &&
		!errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return filepath.Join(stack.Doorway, link), nil
}

// restoreCheckpoint brings the container back to a checkpoint, once for each turn, and ends every
// process that has entered it.
func (o *lockedBook) restoreCheckpoint(ctx context.Context, r Request) error {
	key := r.Name + " " + r.Turn
	if o.Turns[key] {
		return nil
	}
	mark, ok := o.Marks[r.Name]
	if !ok {
		return unknownCheckpoint(r.Name)
	}
	if _, stands := o.Marks[r.Door]; r.Door != "" && (!stands || o.Over[r.Door]) {
		return newFailure(Fenced, "the step of checkpoint %s has been undone", r.Door)
	}
	for _, n := range o.chain(mark) {
		if _, err := os.Stat(layer.Content(o.dir, n)); err != nil && !slices.Contains(o.Bare, n) {
			return newFailure(Damaged, "a layer of checkpoint %s is gone: %v", r.Name, err)
		}
	}
	c := topChange{Lower: mark, Ends: true, Turn: key, Keep: r.Keep, Mark: r.Door}
	if r.Door == "" {
		c.Over = r.Name
		var err error
		if c.Others, err = o.foreignAbove(mark, true, skipNothing); err != nil {
			return err
		}
	}
	if o.shown == nil && o.target != nil { // after a commit
		if _, err := o.checkFit(ctx); stack.IsUnfit(err) && r.Door == "" {
			return o.restoreInPlace(ctx, c)
		} else if err != nil {
			return err
		}
	}
	return o.showTop(ctx, c)
}

// endProcesses ends the container's processes that have a variable.
func (o *lockedBook) endProcesses(ctx context.Context, variable string) (ended bool, err error) {
	if o.target == nil || variable == "" {
		return false, nil
	}
	return o.target.EndMarked(ctx, variable)
}

// dropCheckpoints removes checkpoints.
func (o *lockedBook) dropCheckpoints(names []string) error {
	for _, name := range names {
		o.dropCheckpoint(name)
	}
	if err := o.writeBook(); err != nil {
		return err
	}
	return o.sweepLayers()
}
