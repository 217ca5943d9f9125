package calltest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// useUnlinked goes on with a file that has lost its name.
func useUnlinked(at string) error {
	return withFile(at, unix.O_RDWR, func(fd int) error {
		var st unix.Stat_t
		err := errors.Join(unix.Unlink(at), write("gone, but open")(fd), unix.Ftruncate(fd, 9), unix.Fchmod(fd, 0o604),
			unix.Fchown(fd, 7, 8),
			unix.Fsetxattr(fd, "user.late", []byte("yes"), 0), unix.Fstat(fd, &st))
		holds := make([]byte, 100)
		n, failed := unix.Pread(fd, holds, 0)
		again := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, at+".again",
			unix.AT_SYMLINK_FOLLOW)
		fmt.Printf("%q %o %d:%d %d names; linked again: %v\n", holds[:max(n, 0)], st.Mode, st.Uid, st.Gid, st.Nlink, again)
		return errors.Join(err, failed)
	})
}

// readBeforeAndAfter reads a file that it has opened only to read, before and after something else
// first writes to it.
func readBeforeAndAfter(at string) error {
	f, err := os.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	before, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if err := withFile(at, unix.O_WRONLY|unix.O_APPEND, write("appended\n")); err != nil {
		return err
	}
	after, err := io.ReadAll(f)
	fmt.Printf("%q, then %q\n", before, after)
	return err
}

// mapTwice maps a file to read and to write, and shows what both and a plain read see of a write.
func mapTwice(at string) error {
	return withFile(at, unix.O_RDONLY, func(reads int) error {
		seen, err := unix.Mmap(reads, 0, 4, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		return withFile(at, unix.O_RDWR, func(writes int) error {
			mapped, err := unix.Mmap(writes, 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			copy(mapped, "MAPS")
			plain := make([]byte, 4)
			_, err = unix.Pread(writes, plain, 0)
			fmt.Printf("mapped before: %q, mapped: %q, read: %q\n", seen, mapped, plain)
			return errors.Join(err, unix.Munmap(mapped), unix.Munmap(seen))
		})
	})
}

// lockTwice locks a file through two descriptors, one of which was open before anything was
// written.
func lockTwice(at string) error {
	return withFile(at, unix.O_RDONLY, func(first int) error {
		one := unix.Flock(first, unix.LOCK_EX|unix.LOCK_NB)
		return withFile(at, unix.O_RDWR|unix.O_APPEND, func(second int) error {
			err := write("locked\n")(second)
			two := unix.Flock(second, unix.LOCK_EX|unix.LOCK_NB)
			free := unix.Flock(first, unix.LOCK_UN)
			three := unix.Flock(second, unix.LOCK_EX|unix.LOCK_NB)
			whole := unix.Flock_t{Type: unix.F_RDLCK}
			four := unix.FcntlFlock(uintptr(first), unix.F_OFD_SETLK, &whole)
			whole.Type = unix.F_WRLCK
			five := unix.FcntlFlock(uintptr(second), unix.F_OFD_SETLK, &whole)
			fmt.Printf("flock: %v, %v, %v, %v; of a range: %v, %v\n", one, two, free, three, four, five)
			return err
		})
	})
}

// useNoName makes a file without a name in a folder, and names it.
func useNoName(in string) error { return calls["no name"](in) }

// serveOnce serves one connection of its own on a socket, whose name it leaves.
func serveOnce(at string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	said := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = c.Write([]byte("hello\n"))
			err = errors.Join(err, c.Close())
		}
		said <- err
	}()
	return errors.Join(connect(at), <-said)
}

func connect(at string) error {
	c, err := net.Dial("unix", at) //nolint:gosec // a script of a test names it
	if err != nil {
		return err
	}
	defer c.Close()
	said, err := io.ReadAll(c)
	fmt.Printf("%q\n", said)
	return err
}

// listHoles lists where a file has data.
func listHoles(at string) error {
	return withFile(at, unix.O_RDONLY, func(fd int) error {
		for from := int64(0); ; {
			data, err := unix.Seek(fd, from, unix.SEEK_DATA)
			if errors.Is(err, unix.ENXIO) {
				return nil
			}
			if err != nil {
				return err
			}
			if from, err = unix.Seek(fd, data, unix.SEEK_HOLE); err != nil {
				return err
			}
			fmt.Printf("data from %d to %d\n", data, from)
		}
	})
}

// watch shows which events come of a file and of its folder when something is done to the file.
func watch(at string) error {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const events = unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVE | unix.IN_CREATE |
		unix.IN_DELETE | unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_CLOSE_WRITE
	for _, watched := range []string{at, filepath.Dir(at)} {
		if _, err := unix.InotifyAddWatch(fd, watched, events); err != nil {
			return err
		}
	}
	err = errors.Join(calls["append"](at), unix.Chmod(at, 0o611), unix.Rename(at, at+".moved"),
		unix.Rename(at+".moved", at))
	if err != nil {
		return err
	}
	all := make([]byte, 64<<10)
	n, err := unix.Read(fd, all)
	if err != nil {
		return err
	}
	for all = all[:n]; len(all) >= unix.SizeofInotifyEvent; {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&all[0])) // as the kernel wrote it
		end := unix.SizeofInotifyEvent + int(e.Len)
		fmt.Printf("%d %x %s\n", e.Wd, e.Mask, unix.ByteSliceToString(all[unix.SizeofInotifyEvent:end]))
		all = all[end:]
	}
	return nil
}

// removeWhileListing removes half of a folder's entries while it reads on, and counts what it was
// shown.
func removeWhileListing(in string) error {
	folder, err := os.Open(in)
	if err != nil {
		return err
	}
	defer folder.Close()
	times, most := map[string]int{}, 0
	for {
		names, err := folder.Readdirnames(7)
		if errors.Is(err, io.EOF) {
			break
		}
		for _, name := range names {
			times[name]++
			most = max(most, times[name])
			if last := name[len(name)-1]; last%2 == 0 && times[name] == 1 {
				err = errors.Join(err, os.Remove(filepath.Join(in, name)))
			}
		}
		if err != nil {
			return err
		}
	}
	left, err := os.ReadDir(in)
	fmt.Printf("%d names, each at most %d times; %d are left\n", len(times), most, len(left))
	return err
}
