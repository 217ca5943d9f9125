package layer

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Attributes by which an overlay marks folders of an upper layer.
const (
	overlayPrefix = "trusted.overlay."
	opaque        = overlayPrefix + "opaque"
	// toldLate is a mark of our own, which overlays hide too: see tellsTimesLate.
	toldLate = overlayPrefix + "unwind.late"
)

func isMark(attribute string) bool { return strings.HasPrefix(attribute, overlayPrefix) }

// MarkPrefix begins the names of what images and some storage drivers take for marks of deleted
// files. A step that leaves one is refused, but for what it ignores.
const MarkPrefix = ".wh."

// isWhiteout reports whether a node is an overlay's mark for something deleted.
func isWhiteout(n filetree.Node) bool { return n.Kind() == unix.S_IFCHR && n.Stat.Rdev == 0 }

// withoutMarks selects the container's own attributes.
func withoutMarks(attributes map[string][]byte) map[string][]byte {
	own := map[string][]byte{}
	for name, value := range attributes {
		if !isMark(name) {
			own[name] = value
		}
	}
	return own
}

// copyMetadata gives one folder the metadata of another. Overlay marks are merged.
func copyMetadata(from, to filetree.Node) error {
	return (&filetree.Copier{Spare: isMark}).CopyMetadata(from, to)
}
