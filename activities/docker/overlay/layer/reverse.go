package layer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Reverse makes layer into, which undoes what layers, the oldest first, are about to change in the
// container's own filesystem. It saves what that filesystem has now at each path they change;
// mounted over it, the container looks as it does now, however many of the layers have been written
// meanwhile. It is synced when Reverse returns. The layers must not change.
//
// It costs what it copies: the former content of what is changed or removed, nothing for what is
// new.
func (b Base) Reverse(dir string, layers []int, into int) error {
	if err := Make(dir, into); err != nil {
		return err
	}
	base, err := b.open()
	if err != nil {
		return err
	}
	defer base.Close()
	to, err := filetree.Open(unix.AT_FDCWD, Content(dir, into))
	if err != nil {
		return err
	}
	defer to.Close()
	r := newReverser(base)
	defer r.Close()
	for _, n := range layers {
		if err := r.keepLayer(Content(dir, n), base, to); err != nil {
			return fmt.Errorf("keeping what layer %d changes: %w", n, err)
		}
	}
	return wrap("keeping what layers change", to.SyncFilesystem())
}

// reverser copies out of the container's own filesystem what layers change there.
type reverser struct{ filetree.Copier }

func newReverser(base filetree.Node) *reverser {
	late := tellsTimesLate(base)
	return &reverser{filetree.Copier{Spare: isMark, Attributes: func(attributes map[string][]byte) map[string][]byte {
		own := withoutMarks(attributes)
		if late {
			own[toldLate] = []byte("y")
		}
		return own
	}}}
}

func (r *reverser) keepLayer(content string, base, to filetree.Node) error {
	layer, err := filetree.Open(unix.AT_FDCWD, content)
	if err != nil {
		return err
	}
	defer layer.Close()
	return r.keepMergedFolder(layer, base, to)
}

// keepMergedFolder saves what a merged folder of a layer changes.
func (r *reverser) keepMergedFolder(layer, base, to filetree.Node) error {
	into, err := to.OpenContent()
	if err != nil {
		return err
	}
	defer into.Close()
	err = layer.Each(func(name string, sub filetree.Node) error {
		return wrap(name, r.keepEntry(sub, base, int(into.Fd()), name))
	})
	if err != nil {
		return err
	}
	return r.CopyMetadata(base, to)
}

// keepEntry saves what a folder has under the name of an entry of a layer.
func (r *reverser) keepEntry(by, base filetree.Node, in int, name string) error {
	was, err := filetree.Open(base.FD, name)
	if errors.Is(err, unix.ENOENT) {
		return r.keepAbsence(by, in, name)
	}
	if err != nil {
		return err
	}
	defer was.Close()
	has, err := by.Attributes()
	if err != nil {
		return err
	}
	if by.Kind() != unix.S_IFDIR || was.Kind() != unix.S_IFDIR || string(has[opaque]) == "y" {
		return r.keepTree(was, in, name)
	}
	to, all, err := r.openFolder(in, name)
	if err != nil || all {
		return err
	}
	defer to.Close()
	return r.keepMergedFolder(by, was, to)
}

// keepAbsence records that a name does not exist.
func (r *reverser) keepAbsence(by filetree.Node, in int, name string) error {
	if isWhiteout(by) { // nor will it exist later
		return nil
	}
	err := unix.Mknodat(in, name, unix.S_IFCHR, 0)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// openFolder opens or makes a folder. All reports whether it was complete already.
func (r *reverser) openFolder(in int, name string) (to filetree.Node, all bool, err error) {
	if err := unix.Mkdirat(in, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return to, false, err
	}
	if to, err = filetree.Open(in, name); err != nil {
		return to, false, err
	}
	has, err := to.Attributes()
	if all = string(has[opaque]) == "y"; all || err != nil {
		to.Close()
	}
	return to, all, err
}

// keepTree saves something with all that is in it, except what is saved already.
func (r *reverser) keepTree(was filetree.Node, in int, name string) error {
	if was.Kind() != unix.S_IFDIR {
		if kept, err := filetree.Open(in, name); err == nil {
			kept.Close()
			return nil
		}
		return r.Copy(was, in, name)
	}
	to, all, err := r.openFolder(in, name)
	if err != nil || all {
		return err
	}
	defer to.Close()
	into, err := to.OpenContent()
	if err != nil {
		return err
	}
	defer into.Close()
	err = was.Each(func(name string, sub filetree.Node) error { return wrap(name, r.keepTree(sub, int(into.Fd()), name)) })
	if err == nil { // an overlay lists the whiteouts of a folder that is not merged
		err = to.Each(func(name string, sub filetree.Node) error {
			if isWhiteout(sub) {
				return removeTree(int(into.Fd()), name)
			}
			return nil
		})
	}
	if err == nil {
		err = unix.Setxattr(to.Path(), opaque, []byte("y"), 0)
	}
	if err != nil {
		return err
	}
	return r.CopyMetadata(was, to)
}
