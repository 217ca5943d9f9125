package stack

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// The marks that an overlay leaves on folders of an upper layer.
const (
	overlayPrefix = "trusted.overlay."
	opaque        = overlayPrefix + "opaque"
	// toldLate is a mark of our own, which no overlay shows either: see tellsTimesLate.
	toldLate = overlayPrefix + "unwind.late"
)

func isMark(attribute string) bool { return strings.HasPrefix(attribute, overlayPrefix) }

// isWhiteout reports whether a node is an overlay's mark for something that is no longer there.
func isWhiteout(n filetree.Node) bool { return n.Kind() == unix.S_IFCHR && n.Stat.Rdev == 0 }

// withoutMarks selects the attributes that are the container's own.
func withoutMarks(attributes map[string][]byte) map[string][]byte {
	own := map[string][]byte{}
	for name, value := range attributes {
		if !isMark(name) {
			own[name] = value
		}
	}
	return own
}

// describe makes one folder like another in all but content. The marks that it has stay, and it gets those of the other.
func describe(from, to filetree.Node) error {
	return (&filetree.Copier{Spare: isMark}).CopyMetadata(from, to)
}

// openLayer opens the content of layer n in dir.
func openLayer(dir string, n int) (filetree.Node, error) {
	return filetree.Open(unix.AT_FDCWD, Content(dir, n))
}
