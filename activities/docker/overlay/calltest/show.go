package calltest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What Show shows of a folder whose link count does not tell how many folders are in it, and of
// what is not on the filesystem of the folder that is shown.
const (
	noCount   = " no link count"
	elsewhere = " on another filesystem"
)

// Plain leaves out of what is shown what plans tell of all folders and of all files.
func Plain(shows string) string {
	return strings.NewReplacer(noCount, "", elsewhere, "").Replace(shows)
}

// Show lists all that programs see below a folder: kinds, modes, owners, sizes, contents, holes,
// attributes, link counts, which names are one file, what seems to be on another filesystem, and
// the times that a program has set, which are not of today.
func Show(in string) (string, error) {
	var top unix.Stat_t
	if err := unix.Lstat(in, &top); err != nil {
		return "", fmt.Errorf("%s: %w", in, err)
	}
	s := shown{in: in, device: top.Dev, first: map[[2]uint64]string{}}
	err := filepath.WalkDir(in, func(at string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = s.add(at)
		}
		return err
	})
	return s.String(), err
}

type shown struct {
	strings.Builder

	in     string
	device uint64
	first  map[[2]uint64]string // of each file with several names
}

func (s *shown) add(at string) error {
	var st unix.Stat_t
	if err := unix.Lstat(at, &st); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	name := strings.TrimPrefix(at, s.in)
	fmt.Fprintf(s, "\n%q %o %d:%d", name, st.Mode, st.Uid, st.Gid)
	if set := time.Unix(st.Mtim.Unix()); time.Since(set) > 24*time.Hour {
		fmt.Fprintf(s, " of %s", set.UTC().Format(time.RFC3339Nano))
	}
	if st.Dev != s.device {
		s.WriteString(elsewhere)
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		if st.Nlink == 1 {
			s.WriteString(noCount)
		}
	} else if st.Nlink > 1 {
		file := [2]uint64{st.Dev, st.Ino}
		if s.first[file] == "" {
			s.first[file] = name
		}
		fmt.Fprintf(s, " %d names, as %q", st.Nlink, s.first[file])
	}
	if err := s.addAttributes(at); err != nil {
		return err
	}
	switch kind {
	case unix.S_IFREG:
		content, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		s.addContent(content, st.Blocks*512 < st.Size)
	case unix.S_IFLNK:
		to, err := os.Readlink(at)
		if err != nil {
			return err
		}
		fmt.Fprintf(s, " -> %q", to)
	case unix.S_IFCHR, unix.S_IFBLK:
		fmt.Fprintf(s, " %d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	}
	return nil
}

func (s *shown) addContent(content []byte, sparse bool) {
	fmt.Fprintf(s, " %d bytes", len(content))
	switch {
	case bytes.HasPrefix(content, []byte("DIRC")): // an index of git's, which has times and inode numbers in it
	case len(content) <= 60:
		fmt.Fprintf(s, " %q", content)
	default:
		fmt.Fprintf(s, " %x", sha256.Sum256(content))
	}
	if sparse {
		s.WriteString(" sparse")
	}
}

func (s *shown) addAttributes(at string) error {
	list := make([]byte, 64<<10)
	n, err := unix.Llistxattr(at, list)
	if err != nil {
		return fmt.Errorf("attributes of %s: %w", at, err)
	}
	names := strings.FieldsFunc(string(list[:n]), func(r rune) bool { return r == 0 })
	slices.Sort(names)
	for _, name := range names {
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(at, name, value)
		if err != nil {
			return fmt.Errorf("attribute %s of %s: %w", name, at, err)
		}
		fmt.Fprintf(s, " %s=%q", name, value[:n])
	}
	return nil
}
