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
	"strconv"
	"strings"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/stack"
)

// take keeps what the container shows now under a name; once. What is written from now on is not part of it.
func (o *open) take(ctx context.Context, name string) error {
	if _, taken := o.Marks[name]; taken {
		return nil
	}
	if err := o.fit(); err != nil {
		return err
	}
	if o.shown == nil {
		return o.show(ctx, change{Mark: name, Takes: true})
	}
	untouched, err := o.target.Untouched(o.view(o.Lower, o.Upper))
	if err != nil {
		return err
	}
	users, err := o.target.Users(*o.shown)
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
	const tries = 3
	n := o.Next
	o.Next++
	if err := o.write(o.dir, false); err != nil { // so that the number is never used again
		return err
	}
	if err := stack.MakeLayer(o.dir, n); err != nil {
		return err
	}
	for range tries {
		before, err := stack.Changes(o.dir, []int{o.Upper}, nothing)
		if err != nil {
			continue // a file went while it was looked at
		}
		if err := stack.Copy(stack.Content(o.dir, o.Upper), stack.Content(o.dir, n)); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return err
		}
		copied, err := stack.Changes(o.dir, []int{n}, nothing)
		if err != nil {
			return err
		}
		after, err := stack.Changes(o.dir, []int{o.Upper}, nothing)
		if err == nil && slices.Equal(before, copied) && slices.Equal(copied, after) {
			o.Below[n] = o.Lower
			o.Marks[name], o.Doors[name] = n, o.Upper
			return o.write(o.dir, false)
		}
	}
	return errors.Join(o.sweep(o.dir), failure(InUse, "a process that an earlier step has left in the container writes all the time: there is no moment to keep"))
}

func nothing(string) bool { return false }

// enter returns a folder in the container that leads to workdir for as long as the checkpoint's step may enter. A command
// that starts there does not start in a container that has been brought back.
func (o *open) enter(name, workdir string) (string, error) {
	if upper, ok := o.Doors[name]; !ok || upper != o.number() {
		return "", failure(Fenced, "the step may not enter the container: it has been rolled back, or another step has begun in the container")
	}
	sum := sha256.Sum256([]byte(workdir))
	link := filepath.Join(strconv.Itoa(o.Upper), hex.EncodeToString(sum[:8]))
	if err := os.Symlink(workdir, filepath.Join(doorOf(o.dir, o.Upper), link)); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return filepath.Join(stack.Doorway, link), nil
}

// changes lists what differs from a checkpoint, without what is below skip.
func (o *open) changes(name string, skip []string) ([]stack.Change, error) {
	mark, ok := o.Marks[name]
	if !ok {
		return nil, unknown(name)
	}
	was, now, common := o.chain(mark), o.chain(o.newest()), 0
	for common < len(was) && common < len(now) && was[common] == now[common] {
		common++
	}
	skips := func(at string) bool {
		return slices.ContainsFunc(skip, func(s string) bool { return at == s || strings.HasPrefix(at, s+"/") })
	}
	had, err := stack.Changes(o.dir, was[common:], skips)
	if err != nil {
		return nil, err
	}
	has, err := stack.Changes(o.dir, now[common:], skips)
	if err != nil {
		return nil, err
	}
	return difference(had, has), nil
}

// difference lists what is in has and not in had, and as gone what is in had alone. Both are sorted by path.
func difference(had, has []stack.Change) []stack.Change {
	was, is := map[string]stack.Change{}, map[string]bool{}
	for _, c := range had {
		was[c.Path] = c
	}
	differs := []stack.Change{}
	for _, c := range has {
		is[c.Path] = true
		if was[c.Path] != c {
			differs = append(differs, c)
		}
	}
	for _, c := range had {
		if !is[c.Path] {
			differs = append(differs, stack.Change{Path: c.Path, Kind: stack.KindGone})
		}
	}
	slices.SortStableFunc(differs, func(a, b stack.Change) int { return strings.Compare(a.Path, b.Path) })
	return differs
}

func unknown(name string) error {
	return failure(Unknown, "there is no checkpoint %s of the container", name)
}

// restore brings the container back to a checkpoint, once for each turn, and ends every process that has entered it. The
// step of the checkpoint may enter again where again is set. With keep set, what is taken away is kept under that name.
func (o *open) restore(ctx context.Context, name, turn, keep string, again bool) error {
	key := name + " " + turn
	if o.Turns[key] {
		return nil
	}
	mark, ok := o.Marks[name]
	if !ok {
		return unknown(name)
	}
	for _, n := range o.chain(mark) {
		if _, err := os.Stat(stack.Content(o.dir, n)); err != nil {
			return failure(Damaged, "a layer of checkpoint %s is gone: %v", name, err)
		}
	}
	c := change{Lower: mark, Ends: true, Turn: key, Keep: keep}
	if again {
		c.Mark = name
	}
	return o.show(ctx, c)
}

// drop lets go of checkpoints.
func (o *open) drop(names []string) error {
	for _, name := range names {
		delete(o.Marks, name)
		delete(o.Doors, name)
		for turn := range o.Turns {
			if strings.HasPrefix(turn, name+" ") {
				delete(o.Turns, turn)
			}
		}
	}
	if err := o.write(o.dir, false); err != nil {
		return err
	}
	return o.sweep(o.dir)
}

// flatten writes what the layers hold into the container's own filesystem and takes the stack off. It leaves all as it is
// and says InUse where a checkpoint or a process is in the way.
func (o *open) flatten(ctx context.Context) error {
	if len(o.Marks) > 0 {
		return failure(InUse, "%d checkpoints of the container are kept", len(o.Marks))
	}
	if o.shown == nil {
		return nil
	}
	if err := o.fit(); err != nil {
		return err
	}
	if err := o.unused(); err != nil {
		return err
	}
	if untouched, err := o.target.Untouched(o.view(o.Lower, o.Upper)); err != nil {
		return err
	} else if !untouched { // from here on nobody writes to what is copied
		if err := o.show(ctx, change{Lower: o.newest()}); err != nil {
			return err
		}
	}
	if err := o.target.Flatten(o.dir, o.chain(o.Lower)); err != nil {
		return err
	}
	if untouched, err := o.target.Untouched(o.view(o.Lower, o.Upper)); err != nil || !untouched {
		return errors.Join(err, failure(InUse, "somebody writes in the container"))
	}
	if err := o.unused(); err != nil {
		return err
	}
	o.Doing = &change{} // to no layers at all
	if err := o.write(o.dir, false); err != nil {
		return err
	}
	if err := o.target.Lift(); err != nil {
		return err
	}
	return o.complete(ctx, *o.Doing)
}

func (o *open) unused() error {
	users, err := o.target.Users(*o.shown)
	if err == nil && users > 0 {
		err = failure(InUse, "%d processes stand in the layers of the container", users)
	}
	return err
}
