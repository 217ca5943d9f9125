package snapshot

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// create makes what an entry describes under a new name in an open folder; a folder without what is
// in it.
func (s *Store) create(e Entry, folder int, name string, tally *filetree.Tally) (err error) {
	switch e.Kind {
	case Folder:
		err = unix.Mkdirat(folder, name, 0o700)
	case File:
		err = s.createFile(e, folder, name, tally)
	case Link:
		err = unix.Symlinkat(e.Target, folder, name)
	default:
		err = unix.Mknodat(folder, name, e.nodeType()|0o600, int(e.Device)) //nolint:gosec // a device number
	}
	if err != nil {
		return &os.PathError{Op: "create", Path: e.Path, Err: err}
	}
	if err := e.giveMetadata(folder, name); err != nil {
		return err
	}
	tally.AddNode()
	return nil
}

func (e Entry) nodeType() uint32 {
	switch e.Kind {
	case Pipe:
		return unix.S_IFIFO
	case Socket:
		return unix.S_IFSOCK
	case Block:
		return unix.S_IFBLK
	}
	return unix.S_IFCHR
}

func (s *Store) createFile(e Entry, folder int, name string, tally *filetree.Tally) error {
	fd, err := unix.Openat(folder, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if err := f.Truncate(e.Size); err != nil {
		return err
	}
	return eachChunk(e, s.get, func(at int64, data []byte) error {
		tally.AddBytes(int64(len(data)))
		return writeSparsely(f, at, data)
	})
}

// writeSparsely leaves holes where blocks are zeros only.
func writeSparsely(f *os.File, at int64, data []byte) error {
	const block = 4096
	isZero := func(part []byte) bool { return bytes.Equal(part, zeros[:len(part)]) }
	for len(data) > 0 {
		n := min(block, len(data))
		if isZero(data[:n]) {
			at, data = at+int64(n), data[n:]
			continue
		}
		for n < len(data) && !isZero(data[n:min(n+block, len(data))]) {
			n = min(n+block, len(data))
		}
		if _, err := f.WriteAt(data[:n], at); err != nil {
			return err
		}
		at, data = at+int64(n), data[n:]
	}
	return nil
}

// giveMetadata gives what has a name in an open folder the metadata of an entry.
func (e Entry) giveMetadata(folder int, name string) error {
	attributes, err := decodeAttributes(e.Attributes)
	if err != nil {
		return &DamageError{"the attributes of " + e.Path + ": " + err.Error()}
	}
	it, err := filetree.Open(folder, name)
	if err != nil {
		return err
	}
	defer it.Close()
	if kindOf(&it.Stat) != e.Kind {
		return &os.PathError{Op: "change", Path: e.Path, Err: unix.ESTALE}
	}
	err = it.SetMetadata(filetree.Metadata{
		UID: e.UID, GID: e.GID, Mode: e.Mode, Attributes: attributes,
		Accessed: unix.Timespec{Nsec: unix.UTIME_OMIT}, Modified: unix.NsecToTimespec(e.MTime),
	})
	if err != nil {
		return &os.PathError{Op: "change", Path: e.Path, Err: err}
	}
	return nil
}
