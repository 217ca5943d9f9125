package stack

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sourcePrefix begins the mount source of our overlays; Top.Name follows.
const sourcePrefix = "unwind:"

// View describes a top to be mounted.
type View struct {
	// Dir holds the layers: see [layer.Make]. All of it is on one filesystem.
	Dir string
	// Name identifies this top: [Survey] returns it.
	Name string
	// Lower are the layers between the base and the upper one, the oldest first. They must not change.
	// The kernel allows fewer than 500.
	Lower []int
	// Upper is the layer written to.
	Upper int
	// Door is a folder to be mounted read-only at Doorway.
	Door string
}

// makeOverlay makes a detached overlay of the layers below the working directory, with b as the
// lowest.
func makeOverlay(name string, lower []int, upper, attributes int) (int, error) {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, wrap("making an overlay", err)
	}
	defer unix.Close(fs)
	n := strconv.Itoa(upper)
	settings := [][2]string{{"source", sourcePrefix + name}}
	for _, below := range slices.Backward(lower) {
		settings = append(settings, [2]string{"lowerdir+", strconv.Itoa(below) + "/u"})
	}
	settings = append(settings,
		[2]string{"lowerdir+", "b"}, [2]string{"upperdir", n + "/u"}, [2]string{"workdir", n + "/w"},
		// Override kernel build options: a layer must not depend on inodes of others.
		[2]string{"index", "off"}, [2]string{"metacopy", "off"}, [2]string{"redirect_dir", "nofollow"}, [2]string{"xino",
			"off"},
	)
	for _, s := range settings {
		if err := unix.FsconfigSetString(fs, s[0], s[1]); err != nil {
			return -1, fmt.Errorf("overlay: %s=%s: %w%s", s[0], s[1], err, kernelMessage(fs))
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("overlay of %d layers: %w%s", len(lower)+1, err, kernelMessage(fs))
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return fd, wrap("overlay", err)
	}
	if err := checkWritable(fd, n+"/w"); attributes&unix.MOUNT_ATTR_RDONLY == 0 && err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// checkWritable fails if the overlay is read-only: a kernel that cannot make its folder in work
// makes it so without an error.
func checkWritable(overlay int, work string) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(overlay, &fs); err != nil || fs.Flags&unix.ST_RDONLY == 0 {
		return wrap("overlay", err)
	}
	try := work + "/try"
	if err := unix.Mkdir(try, 0); err != nil {
		return wrap("the overlay would be read-only", err)
	}
	return errors.Join(errors.New("the kernel made the overlay read-only"), unix.Rmdir(try))
}

// kernelMessage is what the kernel says of the last failure.
func kernelMessage(fs int) string {
	said := make([]byte, 512)
	n, err := unix.Read(fs, said)
	if err != nil || n <= 0 {
		return ""
	}
	return " (" + strings.TrimSpace(string(said[:n])) + ")"
}

// Show mounts v as the top in place of the former one, which s describes. It prepares the new top,
// and calls ready before it changes anything in the container. Processes keep their root; with
// carry, those whose root is the former top get the new one, which is meant for those that enter at
// this moment. Vacant reports that the kernel unmounted the former top as unused. An interrupted
// Show has to be finished first ([Target.FinishShow]).
func (t *Target) Show(s Survey, v View, carry bool, ready func() error) (top Top, vacant bool, err error) {
	if s.InterruptedShow() {
		return top, false, errors.New("an earlier change of the container's top is not finished")
	}
	change := (*Target).mountFirstTop
	switch {
	case len(s.Tops) > 0 && carry:
		change = (*Target).pivotRoot
	case len(s.Tops) > 0:
		change = (*Target).mountBeneath
	}
	err = onThread(func() (err error) {
		top, vacant, err = t.show(s, v, change, ready, func() {})
		return err
	})
	return top, vacant, err
}

// show calls half between the halves of a change, where tests interrupt it.
func (t *Target) show(s Survey, v View, change topSwitch, ready func() error, half func()) (shown Top, vacant bool,
	err error) {
	if err := t.CopyRootMetadata(v); err != nil {
		return shown, false, wrap("the new layer's own attributes", err)
	}
	var fds handles
	defer fds.close()
	host := fds.open(unix.AT_FDCWD, "/")
	layers := fds.cloneTree(unix.AT_FDCWD, v.Dir, 0)
	door := fds.cloneTree(unix.AT_FDCWD, v.Door, 0)
	if fds.err != nil {
		return shown, false, fds.err
	}
	err = unix.MountSetattr(door, "", unix.AT_EMPTY_PATH,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV})
	if err != nil {
		return shown, false, wrap("the door", err)
	}
	if err := t.enterMountNamespace(); err != nil {
		return shown, false, err
	}
	top := fds.open(unix.AT_FDCWD, "/") // of the container, from here on
	former := -1
	if len(s.Tops) > 0 {
		former = fds.cloneTree(top, "", unix.AT_EMPTY_PATH) // see formerTops
	}
	base := fds.cloneTree(t.root, "", unix.AT_EMPTY_PATH)
	direct, inDev := s.mountsOnTop()
	subs := make([]int, 0, len(direct)+len(inDev))
	for i, m := range append(direct, inDev...) {
		deep := uint(0)
		if i < len(direct) {
			deep = unix.AT_RECURSIVE
		}
		subs = append(subs,
			fds.cloneTree(top, strings.TrimPrefix(m.at, "/"), deep|unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT))
	}
	if fds.err != nil {
		return shown, false, fds.err
	}
	if err := unix.Mkdirat(top, doorway, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return shown, false, wrap("making "+Doorway, err)
	}
	attributes, err := attributesOf(t.root)
	if err != nil {
		return shown, false, err
	}
	if err := isolateMounts(layers, base); err != nil {
		return shown, false, err
	}
	over, err := makeOverlay(v.Name, v.Lower, v.Upper, attributes)
	if err != nil {
		return shown, false, err
	}
	fds.all = append(fds.all, over)
	if err := unix.MoveMount(over, "", unix.AT_FDCWD, "r", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return shown, false, wrap("attaching the overlay", err)
	}
	for i, m := range append(direct, inDev...) {
		if err := unix.MoveMount(subs[i], "", over, strings.TrimPrefix(m.at, "/"), unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return shown, false, wrap("attaching "+m.at, err)
		}
	}
	if err := unix.MoveMount(door, "", over, doorway, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return shown, false, wrap("attaching the door", err)
	}
	whole := fds.cloneTree(over, "", unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
	if fds.err != nil {
		return shown, false, fds.err
	}
	if shown, err = topOf(whole, v.Name); err != nil {
		return shown, false, err
	}
	if err := t.enterMountNamespace(); err != nil {
		return shown, false, err
	}
	if err := ready(); err != nil {
		return shown, false, err
	}
	old, err := change(t, host, top, whole, half)
	if err != nil || len(s.Tops) == 0 {
		return shown, true, err
	}
	vacant, err = old.unmountFormerTop(s, top, &fds, half)
	openFormerTops.add(fds.take(former), layers)
	return shown, vacant, err
}

// topOf is the top whose root fd is.
func topOf(fd int, name string) (Top, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID|unix.STATX_BASIC_STATS, &st)
	id := int(st.Mnt_id) //nolint:gosec // the kernel counts mounts in an int
	return Top{Name: name, Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), id: id}, wrap("the new top", err)
}

// CopyRootMetadata gives the root of v's upper layer the metadata of what it covers.
func (t *Target) CopyRootMetadata(v View) error {
	return t.Base().CopyRootMetadata(v.Dir, v.Lower, v.Upper)
}

// Untouched reports whether the upper layer of v is still empty.
func (t *Target) Untouched(v View) (bool, error) { return t.Base().Untouched(v.Dir, v.Lower, v.Upper) }

// A topSwitch mounts the tree whole over the container's root, and returns where the former top is
// now. The thread is in the container's namespace; host is a root outside it. Afterwards the thread
// uses nothing in the former top but the descriptor top.
type topSwitch func(t *Target, host, top, whole int, half func()) (old mountPoint, err error)

// mountPoint is where a mount can be unmounted: a name in an open folder.
type mountPoint struct {
	folder int
	name   string
}

// doorway is [Doorway] relative to a root.
var doorway = strings.TrimPrefix(Doorway, "/")

// mountFirstTop mounts the first top over the base.
func (t *Target) mountFirstTop(_, top, whole int, _ func()) (none mountPoint, err error) {
	how := unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	return none, wrap("covering the container's root", unix.MoveMount(whole, "", top, "", how))
}

// mountBeneath mounts the new top beneath the old one.
func (t *Target) mountBeneath(host, top, whole int, half func()) (old mountPoint, err error) {
	// The kernel refuses to mount beneath the root of the calling thread.
	if err := errors.Join(unix.Fchdir(host), unix.Chroot(".")); err != nil {
		return old, wrap("leaving the container's root", err)
	}
	how := unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH | moveMountBeneath
	if err := unix.MoveMount(whole, "", top, "", how); err != nil {
		return old, wrap("changing the container's top", err)
	}
	half()
	return mountPoint{t.root, "."}, nil // umount takes the topmost one there
}

// pivotRoot switches tops with pivot_root, which moves every process whose root is the old one. The
// new top is first attached at the doorway of the old one; the old one then goes to the doorway of
// the new one, because a process that enters while the old one is dismantled must find the new one.
func (t *Target) pivotRoot(_, top, whole int, half func()) (old mountPoint, err error) {
	if err := unix.MoveMount(whole, "", top, doorway, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return old, wrap("attaching the new top", err)
	}
	half()
	if err := unix.Fchdir(whole); err != nil {
		return old, wrap("the new top", err)
	}
	if err := unix.PivotRoot(".", doorway); err != nil {
		return old, errors.Join(wrap("changing the container's top", err), unmountRoot(whole))
	}
	half()
	return mountPoint{whole, doorway}, nil
}

// unmountFormerTop unmounts the former top, open as top, after what is mounted on it. If a plain
// umount succeeds, no process uses it: the kernel counts roots, working directories and open files.
func (old mountPoint) unmountFormerTop(s Survey, top int, fds *handles, half func()) (vacant bool, err error) {
	if err := unix.Fchdir(top); err != nil {
		return false, wrap("the old top", err)
	}
	for _, m := range s.mounts {
		if m.parent == s.topID() && m.at != "/" {
			_ = unix.Unmount("."+m.at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // what stays keeps the old top busy
		}
	}
	half()
	if err := unix.Fchdir(old.folder); err != nil {
		return false, wrap("where the old top is", err)
	}
	fds.closeOne(top)
	if err = unix.Unmount(old.name, 0); errors.Is(err, unix.EBUSY) {
		return false, wrap("taking the old top off", unix.Unmount(old.name, unix.MNT_DETACH))
	}
	return err == nil, wrap("taking the old top off", err)
}

// unmountRoot unmounts the mount whose root fd is.
func unmountRoot(fd int) error {
	if err := unix.Fchdir(fd); err != nil {
		return wrap("the old top", err)
	}
	return wrap("taking the old top off", unix.Unmount(".", unix.MNT_DETACH))
}

// isolateMounts gives the thread a private mount namespace, with the layers at its working
// directory and the base at b in it.
func isolateMounts(layers, base int) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return wrap("making a mount namespace", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return wrap("making mounts private", err)
	}
	if err := unix.MoveMount(layers, "", unix.AT_FDCWD, "/proc", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return wrap("attaching the layers", err)
	}
	if err := unix.MoveMount(base, "", unix.AT_FDCWD, "/proc/b", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return wrap("attaching the base", err)
	}
	return wrap("the layers", unix.Chdir("/proc"))
}

// attributesOf returns the mount flags of fd's mount, for a mount that replaces it.
func attributesOf(fd int) (int, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, wrap("the container's root", err)
	}
	attributes := 0
	for flag, attr := range map[int64]int{
		unix.ST_RDONLY: unix.MOUNT_ATTR_RDONLY, unix.ST_NOSUID: unix.MOUNT_ATTR_NOSUID, unix.ST_NODEV: unix.MOUNT_ATTR_NODEV,
		unix.ST_NOEXEC: unix.MOUNT_ATTR_NOEXEC, unix.ST_NOATIME: unix.MOUNT_ATTR_NOATIME,
		unix.ST_NODIRATIME: unix.MOUNT_ATTR_NODIRATIME,
	} {
		if fs.Flags&flag != 0 {
			attributes |= attr
		}
	}
	return attributes, nil
}

// handles are descriptors that are closed together; the first error is kept.
type handles struct {
	all []int
	err error
}

func (h *handles) add(fd int, what string, err error) int {
	if err != nil {
		if h.err == nil {
			h.err = wrap(what, err)
		}
		return -1
	}
	h.all = append(h.all, fd)
	return fd
}

func (h *handles) open(at int, name string) int {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return h.add(fd, name, err)
}

// cloneTree makes a detached copy of a mount.
func (h *handles) cloneTree(at int, name string, how uint) int {
	fd, err := unix.OpenTree(at, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|how)
	return h.add(fd, "copying the mount at /"+strings.TrimPrefix(name, "/"), err)
}

// take hands one of them to the caller.
func (h *handles) take(fd int) int {
	h.all = slices.DeleteFunc(h.all, func(each int) bool { return each == fd })
	return fd
}

// closeOne closes one of them now.
func (h *handles) closeOne(fd int) { unix.Close(h.take(fd)) }

// close closes the rest in the background, because closing the last reference to an overlay syncs
// its disk.
func (h *handles) close() {
	all := h.all
	go func() {
		for _, fd := range all {
			unix.Close(fd)
		}
	}()
}
