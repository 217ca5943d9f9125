package folder

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// lowers are the folders of a container's image, the topmost first: what the container's own folder
// lies over.
type lowers []string

// has says whether the image has something at a path.
func (l lowers) has(at string) bool {
	for _, dir := range l {
		var st unix.Stat_t
		switch err := unix.Lstat(filepath.Join(dir, at), &st); {
		case err == nil:
			return !isWhiteout(st.Mode, st.Rdev)
		case errors.Is(err, unix.ENOTDIR): // a folder on the way was deleted, or is something else
			return false
		}
	}
	return false
}

// isWhiteout says that what has a mode and a device stands for a file that was deleted.
func isWhiteout(mode uint32, device uint64) bool {
	return mode&unix.S_IFMT == unix.S_IFCHR && device == 0
}

// describe says in a line what differs at a path for who looks into the container: there, what is
// not in its own folder is that of the image, and a whiteout is nothing.
func (l lowers) describe(at string, was, is snapshot.Entry) string {
	was, wasImage := l.seen(at, was)
	is, isImage := l.seen(at, is)
	switch {
	case wasImage && is.Kind != 0:
		return "~ " + at + " (was as the image has it)"
	case isImage && was.Kind != 0:
		return "~ " + at + " (is as the image has it)"
	case wasImage:
		return "- " + at
	case isImage:
		return "+ " + at + " (as the image has it)"
	}
	return snapshot.Describe(at, was, is)
}

// seen is what is seen of an entry of the container's own folder; fromImage says that it is the
// image's.
func (l lowers) seen(at string, e snapshot.Entry) (seen snapshot.Entry, fromImage bool) {
	switch {
	case e.Kind == snapshot.Char && e.Device == 0:
		return snapshot.Entry{}, false
	case e.Kind == 0:
		return e, l.has(at)
	}
	return e, false
}
