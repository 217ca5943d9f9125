package stack

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
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
	base, err := openItem(t.root, ".")
	if err != nil {
		return wrap("the container's root", err)
	}
	defer base.close()
	to, err := openItem(unix.AT_FDCWD, Content(dir, into))
	if err != nil {
		return err
	}
	defer to.close()
	r := &reverser{copier{late: base.tellsTimesLate(), first: map[uint64]item{}}}
	defer r.close()
	for _, n := range layers {
		if err := r.layer(Content(dir, n), base, to); err != nil {
			return fmt.Errorf("keeping what layer %d changes: %w", n, err)
		}
	}
	folder, err := to.open()
	if err != nil {
		return err
	}
	defer folder.Close()
	return wrap("keeping what layers change", unix.Syncfs(int(folder.Fd())))
}

// reverser copies out of the container's own filesystem what layers change there.
type reverser struct{ copier }

func (r *reverser) layer(content string, base, to item) error {
	layer, err := openItem(unix.AT_FDCWD, content)
	if err != nil {
		return err
	}
	defer layer.close()
	return r.merged(layer, base, to)
}

// merged keeps what a folder of a layer changes in a folder that it is merged with.
func (r *reverser) merged(layer, base, to item) error {
	into, err := to.open()
	if err != nil {
		return err
	}
	defer into.Close()
	err = layer.each(func(name string, sub item) error {
		return wrap(name, r.change(sub, base, int(into.Fd()), name))
	})
	if err != nil {
		return err
	}
	return r.like(base, to)
}

// change keeps what a folder has under the name of something in a layer.
func (r *reverser) change(by, base item, in int, name string) error {
	was, err := openItem(base.fd, name)
	if errors.Is(err, unix.ENOENT) {
		return r.nothing(by, in, name)
	}
	if err != nil {
		return err
	}
	defer was.close()
	has, err := by.attributes()
	if err != nil {
		return err
	}
	if by.kind() != unix.S_IFDIR || was.kind() != unix.S_IFDIR || string(has[opaque]) == "y" {
		return r.whole(was, in, name)
	}
	to, all, err := r.into(in, name)
	if err != nil || all {
		return err
	}
	defer to.close()
	return r.merged(by, was, to)
}

// nothing keeps that there is nothing under a name.
func (r *reverser) nothing(by item, in int, name string) error {
	if by.gone() { // nor will there be
		return nil
	}
	err := unix.Mknodat(in, name, unix.S_IFCHR, 0)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// into opens the folder of a name, and makes it where there is none. All says that it holds everything already.
func (r *reverser) into(in int, name string) (to item, all bool, err error) {
	if err := unix.Mkdirat(in, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return to, false, err
	}
	if to, err = openItem(in, name); err != nil {
		return to, false, err
	}
	has, err := to.attributes()
	if all = string(has[opaque]) == "y"; all || err != nil {
		to.close()
	}
	return to, all, err
}

// whole keeps something with all that is in it, but for what is kept already.
func (r *reverser) whole(was item, in int, name string) error {
	if was.kind() != unix.S_IFDIR {
		if kept, err := openItem(in, name); err == nil {
			kept.close()
			return nil
		}
		return r.one(was, in, name)
	}
	to, all, err := r.into(in, name)
	if err != nil || all {
		return err
	}
	defer to.close()
	into, err := to.open()
	if err != nil {
		return err
	}
	defer into.Close()
	err = was.each(func(name string, sub item) error { return wrap(name, r.whole(sub, int(into.Fd()), name)) })
	if err == nil { // an overlay lists those of a folder that is merged with none
		err = to.each(func(name string, sub item) error {
			if sub.gone() {
				return remove(int(into.Fd()), name)
			}
			return nil
		})
	}
	if err == nil {
		err = unix.Setxattr(to.path(), opaque, []byte("y"), 0)
	}
	if err != nil {
		return err
	}
	return r.like(was, to)
}
