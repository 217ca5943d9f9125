package found

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Files takes a snapshot of everything below a folder: kind, bytes, mode, owner, time to the
// nanosecond, extended attributes, and the targets of links. It leaves out the times of folders,
// which change with the files in them, and names in skip, wherever they are. Things are named by
// prefix and their path below the folder.
func Files(prefix, folder string, skip ...string) (Snapshot, error) {
	s := Snapshot{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		for _, name := range skip {
			if d.Name() == name && path != folder {
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
		}
		below, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		s[strings.TrimSuffix(prefix+filepath.ToSlash(below), "/.")], err = file(path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("files below %s: %w", folder, err)
	}
	return s, nil
}

func file(path string) (Facts, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	f := Facts{"kind": info.Mode().Type().String(), "mode": fmt.Sprintf("%04o", modeBits(info.Mode()))}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		f["owner"] = fmt.Sprintf("%d:%d", sys.Uid, sys.Gid)
	}
	switch {
	case info.Mode().IsRegular():
		f["kind"], f["size"] = "file", fmt.Sprint(info.Size())
		f["time"] = info.ModTime().UTC().Format("2006-01-02T15:04:05.000000000Z")
		f["sha256"], err = digest(path)
	case info.IsDir():
		f["kind"] = "folder"
	case info.Mode()&fs.ModeSymlink != 0:
		f["kind"] = "link"
		f["leads to"], err = os.Readlink(path)
	}
	if err != nil {
		return nil, err
	}
	return f, attributes(path, f)
}

func modeBits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&flag != 0 {
			bits |= bit
		}
	}
	return bits
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// attributes adds the extended attributes, if the filesystem has any.
func attributes(path string, f Facts) error {
	names := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, names)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("attributes of %s: %w", path, err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return fmt.Errorf("attribute %s of %s: %w", name, path, err)
		}
		f["attribute "+name] = fmt.Sprintf("%q", value[:n])
	}
	return nil
}
