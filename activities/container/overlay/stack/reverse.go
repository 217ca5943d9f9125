package stack

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Reverse makes layer into, which takes back what layers, the oldest first, are about to change in the container's own
// filesystem. It holds what that filesystem has now at each path that they change: over it the container is as it is now,
// whatever part of the layers has been written meanwhile. It is on the disk when Reverse returns. Nothing may write to the
// layers.
//
// It costs what it copies: the former content of what is changed or removed, and nothing for what is new.
func (t *Target) Reverse(dir string, layers []int, into int) error {
	if err := MakeLayer(dir, into); err != nil {
		return err
	}
	base, err := filetree.Open(t.root, ".")
	if err != nil {
		return wrap("the container's root", err)
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
		if err := r.layer(Content(dir, n), base, to); err != nil {
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

func (r *reverser) layer(content string, base, to filetree.Node) error {
	layer, err := filetree.Open(unix.AT_FDCWD, content)
	if err != nil {
		return err
	}
	defer layer.Close()
	return r.merged(layer, base, to)
}

// merged keeps what a folder of a layer changes in a folder that it is merged with.
func (r *reverser) merged(layer, base, to filetree.Node) error {
	into, err := to.OpenContent()
	if err != nil {
		return err
	}
	defer into.Close()
	err = layer.Each(func(name string, sub filetree.Node) error {
		return wrap(name, r.change(sub, base, int(into.Fd()), name))
	})
	if err != nil {
		return err
	}
	return r.CopyMetadata(base, to)
}

// change keeps what a folder has under the name of something in a layer.
func (r *reverser) change(by, base filetree.Node, in int, name string) error {
	was, err := filetree.Open(base.FD, name)
	if errors.Is(err, unix.ENOENT) {
		return r.nothing(by, in, name)
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
		return r.whole(was, in, name)
	}
	to, all, err := r.into(in, name)
	if err != nil || all {
		return err
	}
	defer to.Close()
	return r.merged(by, was, to)
}

// nothing keeps that there is nothing under a name.
func (r *reverser) nothing(by filetree.Node, in int, name string) error {
	if isWhiteout(by) { // nor will there be
		return nil
	}
	err := unix.Mknodat(in, name, unix.S_IFCHR, 0)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// into opens the folder of a name, and makes it where there is none. All says that it holds everything already.
func (r *reverser) into(in int, name string) (to filetree.Node, all bool, err error) {
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

// whole keeps something with all that is in it, but for what is kept already.
func (r *reverser) whole(was filetree.Node, in int, name string) error {
	if was.Kind() != unix.S_IFDIR {
		if kept, err := filetree.Open(in, name); err == nil {
			kept.Close()
			return nil
		}
		return r.Copy(was, in, name)
	}
	to, all, err := r.into(in, name)
	if err != nil || all {
		return err
	}
	defer to.Close()
	into, err := to.OpenContent()
	if err != nil {
		return err
	}
	defer into.Close()
	err = was.Each(func(name string, sub filetree.Node) error { return wrap(name, r.whole(sub, int(into.Fd()), name)) })
	if err == nil { // an overlay lists those of a folder that is merged with none
		err = to.Each(func(name string, sub filetree.Node) error {
			if isWhiteout(sub) {
				return remove(int(into.Fd()), name)
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
