package stack

import (
	"errors"

	"golang.org/x/sys/unix"
)

// InterruptedShow reports whether a Show was interrupted: the next or former top is at the doorway
// or beneath the top.
func (s Survey) InterruptedShow() bool { return len(s.Tops) > 1 || len(s.Tops) == 1 && s.Aside != nil }

// FinishShow removes what an interrupted Show left. [Target.Survey] then tells which top won.
func (t *Target) FinishShow() error {
	for {
		s, err := t.Survey()
		switch {
		case err != nil || !s.InterruptedShow():
			return err
		case s.Aside != nil:
			err = t.RemoveAside()
		default: // the newer one is beneath the one it replaces
			err = t.RemoveTop()
		}
		if err != nil {
			return err
		}
	}
}

// RemoveTop unmounts our topmost overlay, never the container's own root.
func (t *Target) RemoveTop() error { return t.withTop(unmountRoot) }

// MoveTopAside moves the top to the doorway of the container's own root, which is visible from then
// on. Processes in the top keep it as it was; new ones get the container's own root.
func (t *Target) MoveTopAside() error {
	return t.withTop(func(top int) error {
		how := unix.MOVE_MOUNT_F_EMPTY_PATH
		return wrap("setting the container's top aside", unix.MoveMount(top, "", t.root, doorway, how))
	})
}

// RemoveAside unmounts what is at the doorway of the container.
func (t *Target) RemoveAside() error {
	return onThread(func() error {
		return errors.Join(t.enterMountNamespace(), wrap("clearing "+Doorway, unix.Unmount(Doorway, unix.MNT_DETACH)))
	})
}

// withTop calls do with our topmost overlay, on a thread in the container's namespace.
func (t *Target) withTop(do func(top int) error) error {
	s, err := t.Survey()
	if err != nil {
		return err
	}
	if len(s.Tops) == 0 {
		return errors.New("no overlay of ours is mounted over the container's root")
	}
	return onThread(func() error {
		var fds handles
		defer fds.close()
		if err := t.enterMountNamespace(); err != nil {
			return err
		}
		top := fds.open(unix.AT_FDCWD, "/")
		if fds.err != nil {
			return fds.err
		}
		var st unix.Statx_t
		if err := unix.Statx(top, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
			return err
		}
		if int(st.Mnt_id) != s.topID() { //nolint:gosec // the kernel counts mounts in an int
			return errors.New("the container's top has changed in the meantime")
		}
		return do(top)
	})
}
