package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// sourcePrefix begins the source of a mount of ours, and Top.Name follows.
const sourcePrefix = "unwind:"

// View is a top to be shown.
type View struct {
	// Dir holds the layers: N/u is the content of layer N, N/w the overlay's own folder beside it. MakeLayer makes both.
	// Dir and all below it are on one filesystem.
	Dir string
	// Name tells this top from others: [Survey] returns it.
	Name string
	// Lower are the layers between the base and the upper one, the oldest first. Nothing may write to them any more. A
	// kernel takes less than 500.
	Lower []int
	// Upper is the layer that is written to.
	Upper int
	// Door is a folder that is shown, read-only, at Doorway.
	Door string
}

// MakeLayer makes layer n in dir, empty.
func MakeLayer(dir string, n int) error {
	for _, d := range []string{"b", "r", filepath.Join(strconv.Itoa(n), "u"), filepath.Join(strconv.Itoa(n), "w")} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Content is the folder with the content of layer n. Its own mode, owner and times are those of the container's root.
func Content(dir string, n int) string { return filepath.Join(dir, strconv.Itoa(n), "u") }

// overlay makes an overlay of the layers below the working directory, and b as the lowest. It is attached nowhere.
func overlay(name string, lower []int, upper, attributes int) (int, error) {
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
		// What a kernel may have been built to do otherwise: each layer is to mean the same without the others' inodes.
		[2]string{"index", "off"}, [2]string{"metacopy", "off"}, [2]string{"redirect_dir", "nofollow"}, [2]string{"xino", "off"},
	)
	for _, s := range settings {
		if err := unix.FsconfigSetString(fs, s[0], s[1]); err != nil {
			return -1, fmt.Errorf("overlay: %s=%s: %w%s", s[0], s[1], err, reason(fs))
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("overlay of %d layers: %w%s", len(lower)+1, err, reason(fs))
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return fd, wrap("overlay", err)
	}
	if err := writable(fd, n+"/w"); attributes&unix.MOUNT_ATTR_RDONLY == 0 && err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// writable says why an overlay may not be written to: a kernel that cannot make a folder of its own in work makes it
// read-only, and says nothing.
func writable(overlay int, work string) error {
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

// reason is what the kernel says of the last failure.
func reason(fs int) string {
	said := make([]byte, 512)
	n, err := unix.Read(fs, said)
	if err != nil || n <= 0 {
		return ""
	}
	return " (" + strings.TrimSpace(string(said[:n])) + ")"
}

// Show makes v the top, in place of the one that was there; s is what stands there. Before it changes anything of the
// container's it waits for ready, which may take its time: the new top is made meanwhile. Processes keep the root that they
// have, unless carry is set: then those whose root is the former top's get the new one, which is for those that enter at this
// very moment. It returns the new top. Vacant is the kernel's word that nobody stood in the former one any more, or held
// anything of it open, when it was taken off. Where a Show was cut short it has to be finished first ([Target.Finish]).
func (t *Target) Show(s Survey, v View, carry bool, ready func() error) (top Top, vacant bool, err error) {
	if s.Unfinished() {
		return top, false, errors.New("an earlier change of the container's top is not finished")
	}
	change := (*Target).cover
	switch {
	case len(s.Tops) > 0 && carry:
		change = (*Target).pivot
	case len(s.Tops) > 0:
		change = (*Target).slip
	}
	err = onThread(func() (err error) {
		top, vacant, err = t.show(s, v, change, ready, func() {})
		return err
	})
	return top, vacant, err
}

// show calls half between the halves of a change: there a test cuts it short.
func (t *Target) show(s Survey, v View, change exchange, ready func() error, half func()) (shown Top, vacant bool, err error) {
	if err := t.Dress(v); err != nil {
		return shown, false, wrap("the new layer's own attributes", err)
	}
	var fds handles
	defer fds.close()
	host := fds.open(unix.AT_FDCWD, "/")
	layers := fds.tree(unix.AT_FDCWD, v.Dir, 0)
	door := fds.tree(unix.AT_FDCWD, v.Door, 0)
	if fds.err != nil {
		return shown, false, fds.err
	}
	err = unix.MountSetattr(door, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV})
	if err != nil {
		return shown, false, wrap("the door", err)
	}
	if err := t.enter(); err != nil {
		return shown, false, err
	}
	top := fds.open(unix.AT_FDCWD, "/") // of the container, from here on
	former := -1
	if len(s.Tops) > 0 {
		former = fds.tree(top, "", unix.AT_EMPTY_PATH) // see lingering
	}
	base := fds.tree(t.root, "", unix.AT_EMPTY_PATH)
	direct, inDev := s.below()
	subs := make([]int, 0, len(direct)+len(inDev))
	for i, m := range append(direct, inDev...) {
		deep := uint(0)
		if i < len(direct) {
			deep = unix.AT_RECURSIVE
		}
		subs = append(subs, fds.tree(top, strings.TrimPrefix(m.at, "/"), deep|unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT))
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
	if err := apart(layers, base); err != nil {
		return shown, false, err
	}
	over, err := overlay(v.Name, v.Lower, v.Upper, attributes)
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
	whole := fds.tree(over, "", unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
	if fds.err != nil {
		return shown, false, fds.err
	}
	if shown, err = topOf(whole, v.Name); err != nil {
		return shown, false, err
	}
	if err := t.enter(); err != nil {
		return shown, false, err
	}
	if err := ready(); err != nil {
		return shown, false, err
	}
	old, err := change(t, host, top, whole, half)
	if err != nil || len(s.Tops) == 0 {
		return shown, true, err
	}
	vacant, err = old.vacate(s, top, &fds, half)
	departed.add(fds.take(former), layers)
	return shown, vacant, err
}

// topOf is the top whose root fd is.
func topOf(fd int, name string) (Top, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID|unix.STATX_BASIC_STATS, &st)
	id := int(st.Mnt_id) //nolint:gosec // the kernel counts mounts in an int
	return Top{Name: name, Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), id: id}, wrap("the new top", err)
}

// Dress makes the root of a new upper layer like the one that it will cover.
func (t *Target) Dress(v View) error {
	from, err := t.rootOf(v)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := openLayer(v.Dir, v.Upper)
	if err != nil {
		return err
	}
	defer to.Close()
	return (&filetree.Copier{Attributes: withoutMarks, Spare: isMark}).CopyMetadata(from, to)
}

// An exchange puts the tree whole over the container's root, and returns where the mount stands that was the top. The thread
// is in the container's namespace; host is a root outside of it. Afterwards nothing of the thread's stands in the former top
// but what is open as top.
type exchange func(t *Target, host, top, whole int, half func()) (old place, err error)

// place is where a mount can be taken off: a name below an open folder.
type place struct {
	folder int
	name   string
}

// doorway is [Doorway] as a name below a root.
var doorway = strings.TrimPrefix(Doorway, "/")

// cover puts the first top over the base.
func (t *Target) cover(_, top, whole int, _ func()) (none place, err error) {
	how := unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	return none, wrap("covering the container's root", unix.MoveMount(whole, "", top, "", how))
}

// slip mounts the new top beneath the old one.
func (t *Target) slip(host, top, whole int, half func()) (old place, err error) {
	// The kernel mounts nothing beneath the root of the calling thread.
	if err := errors.Join(unix.Fchdir(host), unix.Chroot(".")); err != nil {
		return old, wrap("leaving the container's root", err)
	}
	how := unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH | moveMountBeneath
	if err := unix.MoveMount(whole, "", top, "", how); err != nil {
		return old, wrap("changing the container's top", err)
	}
	half()
	return place{t.root, "."}, nil // the kernel takes off what is topmost there
}

// pivot changes the tops with pivot_root, which gives the new root to every process that has the old one. The new top
// needs a place to stand at first: the doorway of the old one; and so does the old one then, for whoever enters while it is
// taken to pieces is to find the new one.
func (t *Target) pivot(_, top, whole int, half func()) (old place, err error) {
	if err := unix.MoveMount(whole, "", top, doorway, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return old, wrap("attaching the new top", err)
	}
	half()
	if err := unix.Fchdir(whole); err != nil {
		return old, wrap("the new top", err)
	}
	if err := unix.PivotRoot(".", doorway); err != nil {
		return old, errors.Join(wrap("changing the container's top", err), takeOff(whole))
	}
	half()
	return place{whole, doorway}, nil
}

// vacate takes the former top off, which is open as top, and first what is mounted on it. Where it can be taken off as any
// mount can that is not in use, nobody is in it: the kernel counts who stands there, and every file that is open.
func (old place) vacate(s Survey, top int, fds *handles, half func()) (vacant bool, err error) {
	if err := unix.Fchdir(top); err != nil {
		return false, wrap("the old top", err)
	}
	for _, m := range s.mounts {
		if m.parent == s.topID() && m.at != "/" {
			_ = unix.Unmount("."+m.at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // what stays keeps the old top in use
		}
	}
	half()
	if err := unix.Fchdir(old.folder); err != nil {
		return false, wrap("where the old top is", err)
	}
	fds.drop(top)
	if err = unix.Unmount(old.name, 0); errors.Is(err, unix.EBUSY) {
		return false, wrap("taking the old top off", unix.Unmount(old.name, unix.MNT_DETACH))
	}
	return err == nil, wrap("taking the old top off", err)
}

// takeOff takes the mount off whose root fd is.
func takeOff(fd int) error {
	if err := unix.Fchdir(fd); err != nil {
		return wrap("the old top", err)
	}
	return wrap("taking the old top off", unix.Unmount(".", unix.MNT_DETACH))
}

// apart gives the thread mounts of its own, with the layers at its working directory and the base at b in it.
func apart(layers, base int) error {
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

// attributesOf are the flags of the mount that fd is on, for a mount in its place.
func attributesOf(fd int) (int, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, wrap("the container's root", err)
	}
	attributes := 0
	for flag, attr := range map[int64]int{
		unix.ST_RDONLY: unix.MOUNT_ATTR_RDONLY, unix.ST_NOSUID: unix.MOUNT_ATTR_NOSUID, unix.ST_NODEV: unix.MOUNT_ATTR_NODEV,
		unix.ST_NOEXEC: unix.MOUNT_ATTR_NOEXEC, unix.ST_NOATIME: unix.MOUNT_ATTR_NOATIME, unix.ST_NODIRATIME: unix.MOUNT_ATTR_NODIRATIME,
	} {
		if fs.Flags&flag != 0 {
			attributes |= attr
		}
	}
	return attributes, nil
}

// handles are descriptors that are closed together; the first error stays.
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

// tree is a copy of a mount, attached nowhere.
func (h *handles) tree(at int, name string, how uint) int {
	fd, err := unix.OpenTree(at, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|how)
	return h.add(fd, "copying the mount at /"+strings.TrimPrefix(name, "/"), err)
}

// take leaves one of them to the caller.
func (h *handles) take(fd int) int {
	h.all = slices.DeleteFunc(h.all, func(each int) bool { return each == fd })
	return fd
}

// drop closes one of them at once.
func (h *handles) drop(fd int) { unix.Close(h.take(fd)) }

// close lets go in the background: the last one who lets go of an overlay waits for its disk.
func (h *handles) close() {
	all := h.all
	go func() {
		for _, fd := range all {
			unix.Close(fd)
		}
	}()
}
