package stack

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Unfinished says that a Show was cut short: what is to be the top, or was, stands at the doorway, or beneath the top.
func (s Survey) Unfinished() bool { return len(s.Tops) > 1 || len(s.Tops) == 1 && s.Aside != nil }

// Finish clears away what a Show that was cut short has left. Whether it had got as far as changing the tops, the survey
// tells then.
func (t *Target) Finish() error {
	for {
		s, err := t.Survey()
		switch {
		case err != nil || !s.Unfinished():
			return err
		case s.Aside != nil:
			err = t.Clear()
		default: // what is newer stands below what it replaces
			err = t.Lift()
		}
		if err != nil {
			return err
		}
	}
}

// Lift takes the topmost overlay of ours off; what is below it shows. The container's own root is never taken off.
func (t *Target) Lift() error { return t.withTop(takeOff) }

// SetAside moves the top to the doorway of the container's own root, which shows from then on. Who stands in the top stays
// there, and finds all as it was; who enters stands on the container's own root.
func (t *Target) SetAside() error {
	return t.withTop(func(top int) error {
		how := unix.MOVE_MOUNT_F_EMPTY_PATH
		return wrap("setting the container's top aside", unix.MoveMount(top, "", t.root, doorway, how))
	})
}

// Clear takes off what stands at the doorway of the container.
func (t *Target) Clear() error {
	return onThread(func() error {
		return errors.Join(t.enter(), wrap("clearing "+Doorway, unix.Unmount(Doorway, unix.MNT_DETACH)))
	})
}

// withTop has something done with the topmost overlay of ours, on a thread in the container's namespace.
func (t *Target) withTop(do func(top int) error) error {
	s, err := t.Survey()
	if err != nil {
		return err
	}
	if len(s.Tops) == 0 {
		return errors.New("nothing of ours stands over the container's root")
	}
	return onThread(func() error {
		var fds handles
		defer fds.close()
		if err := t.enter(); err != nil {
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
			return errors.New("the container's top has changed meanwhile")
		}
		return do(top)
	})
}
