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

	"github.com/seed-62bf7108/unwind/activities/container/overlay/stack"
	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// take keeps what the container shows now under a name; once. What is written from now on is not part of it.
func (o *open) take(ctx context.Context, name string) error {
	if _, taken := o.Marks[name]; taken {
		return nil
	}
	users, err := o.fit(ctx)
	if err != nil {
		return err
	}
	if err := o.enough(0); err != nil {
		return err
	}
	if err := o.keepSpare(); err != nil {
		return err
	}
	if o.shown == nil {
		return o.show(ctx, change{Mark: name, Takes: true})
	}
	untouched, err := o.target.Untouched(o.view(o.Lower, o.Upper))
	if err != nil {
		return err
	}
	switch {
	case untouched && users == 0: // an empty layer needs none above it
		o.Marks[name], o.Doors[name] = o.Lower, o.Upper
		return o.write(o.dir, false)
	case users == 0:
		return o.show(ctx, change{Lower: o.newest(), Mark: name, Takes: true})
	}
	return o.copyTop(name)
}

// copyTop keeps a copy of the upper layer: processes that an earlier step has left stand in it, and go on writing there.
func (o *open) copyTop(name string) error {
	n, settled, err := o.copyUpper()
	if err == nil && !settled {
		err = failure(InUse, "a process that an earlier step has left in the container writes all the time: there is no moment to keep")
	}
	if err != nil {
		return errors.Join(err, o.sweep(o.dir))
	}
	o.Below[n] = o.Lower
	o.Marks[name], o.Doors[name], o.Busy[name] = n, o.Upper, true
	return o.write(o.dir, false)
}

// copyUpper makes a copy of the upper layer, and says whether it is one of a moment.
func (o *open) copyUpper() (n int, settled bool, err error) {
	const tries = 3
	n = o.Next
	o.Next++
	if err := o.write(o.dir, false); err != nil { // so that the number is never used again
		return n, false, err
	}
	if err := stack.MakeLayer(o.dir, n); err != nil {
		return n, false, err
	}
	whole := false
	for range tries {
		before, err := stack.Changes(o.dir, []int{o.Upper}, nothing)
		if err != nil {
			continue // a file went while it was looked at
		}
		size, err := stack.Weigh(o.dir, o.Upper)
		if err != nil {
			continue
		}
		if err := o.enough(size); err != nil {
			return n, false, err
		}
		whole = false
		if err := filetree.CopyTo(stack.Content(o.dir, o.Upper), stack.Content(o.dir, n)); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return n, false, err
		}
		whole = true
		copied, err := stack.Changes(o.dir, []int{n}, nothing)
		if err != nil {
			return n, false, err
		}
		after, err := stack.Changes(o.dir, []int{o.Upper}, nothing)
		if err == nil && slices.Equal(before, copied) && slices.Equal(copied, after) {
			return n, true, nil
		}
	}
	if !whole {
		err = failure(InUse, "files of the container come and go too fast to be copied: a process that a step has left writes all the time")
	}
	return n, false, err
}

func nothing(string) bool { return false }

// enter returns a folder in the container that leads to workdir for as long as the checkpoint's step may enter. A command
// that starts there does not start in a container that has been brought back.
func (o *open) enter(name, workdir string) (string, error) {
	if upper, ok := o.Doors[name]; !ok || upper != o.number() {
		return "", failure(Fenced, "the step may not enter the container: it has been rolled back, or another step has begun in the container")
	}
	sum := sha256.Sum256([]byte(workdir))
	link := filepath.Join(o.room(o.Upper), hex.EncodeToString(sum[:8]))
	if err := os.Symlink(workdir, filepath.Join(doorOf(o.dir, o.Upper), link)); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return filepath.Join(stack.Doorway, link), nil
}

// restore brings the container back to a checkpoint, once for each turn, and ends every process that has entered it.
func (o *open) restore(ctx context.Context, r Request) error {
	key := r.Name + " " + r.Turn
	if o.Turns[key] {
		return nil
	}
	mark, ok := o.Marks[r.Name]
	if !ok {
		return unknown(r.Name)
	}
	if _, stands := o.Marks[r.Door]; r.Door != "" && (!stands || o.Over[r.Door]) {
		return failure(Fenced, "the step of checkpoint %s has been taken back", r.Door)
	}
	for _, n := range o.chain(mark) {
		if _, err := os.Stat(stack.Content(o.dir, n)); err != nil && !slices.Contains(o.Bare, n) {
			return failure(Damaged, "a layer of checkpoint %s is gone: %v", r.Name, err)
		}
	}
	c := change{Lower: mark, Ends: true, Turn: key, Keep: r.Keep, Mark: r.Door}
	if r.Door == "" {
		c.Over = r.Name
	}
	if o.shown == nil && o.target != nil { // since a commit
		if _, err := o.fit(ctx); stack.IsUnfit(err) && r.Door == "" {
			return o.restoreInPlace(ctx, c)
		} else if err != nil {
			return err
		}
	}
	return o.show(ctx, c)
}

// end ends the container's processes that have a variable.
func (o *open) end(ctx context.Context, variable string) (ended bool, err error) {
	if o.target == nil || variable == "" {
		return false, nil
	}
	return o.target.EndMarked(ctx, variable)
}

// drop lets go of checkpoints.
func (o *open) drop(names []string) error {
	for _, name := range names {
		o.book.drop(name)
	}
	if err := o.write(o.dir, false); err != nil {
		return err
	}
	return o.sweep(o.dir)
}
