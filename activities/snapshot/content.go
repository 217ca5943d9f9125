package snapshot

import (
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
)

// Kinds of an [Entry].
const (
	Folder = 'd'
	File   = 'f'
	Link   = 'l' // a symbolic one
	Pipe   = 'p'
	Socket = 's'
	Block  = 'b' // a device
	Char   = 'c' // a device
	Left   = 'u' // what is left alone: only its path is known
)

// Entry is what a folder holds at a path. Times are in nanoseconds.
type Entry struct {
	Path     string // begins with a slash, and is "/" for the folder itself
	Kind     byte
	Mode     uint32 // permissions
	UID, GID uint32
	MTime    int64
	Size     int64  // of a file
	Digest   string // of a file's content: see digestContent
	// Attributes are the extended ones: see encodeAttributes.
	Attributes string
	Target     string // where a symbolic link leads
	Device     uint64
	// Same is the first path of the same file, where it has several.
	Same string
}

// Content is all that a folder holds, itself as "/", by path.
type Content map[string]Entry

// Bytes is the sum of all files.
func (c Content) Bytes() (sum int64) {
	for _, e := range c {
		if e.Same == "" {
			sum += e.Size
		}
	}
	return sum
}

// Paths is how many paths there are beside the folder itself, without what is left alone.
func (c Content) Paths() (n int) {
	for at, e := range c {
		if at != "/" && e.Kind != Left {
			n++
		}
	}
	return n
}

// Around is the content that a folder which holds now can be given: folders in which something is
// left alone stay, though the content lacks them. It says which do.
func (c Content) Around(now Content) (around Content, stay []string, err error) {
	around = c
	for _, at := range sorted(now) {
		for folder := path.Dir(at); now[at].Kind == Left && !around[folder].folder(); folder = path.Dir(folder) {
			if is, taken := c[folder]; taken && is.Kind != Left {
				return nil, nil, activities.Errorf(activities.Refused,
					"path: %s would have to go, and %s in it is left alone (what git ignores, what Unwind keeps for files): move it "+
						"away", folder, at)
			}
			if len(stay) == 0 {
				around = maps.Clone(c)
			}
			around[folder] = now[folder]
			stay = append(stay, folder)
		}
	}
	slices.Sort(stay)
	return around, stay, nil
}

// Digest covers every path.
func (c Content) Digest() activities.Digest {
	parts := make([][]byte, 0, len(c))
	for _, at := range sorted(c) {
		if e := c[at]; e.Kind != Left {
			parts = append(parts, e.appendFacts(appendTexts(nil, e.Path, e.Digest)))
		}
	}
	return activities.DigestOf(parts...)
}

// Differs are the paths at which now is another, sorted.
func (c Content) Differs(now Content) []string {
	paths := map[string]bool{}
	for at, e := range c {
		if is := now[at]; is != e && e.Kind != Left && is.Kind != Left {
			paths[at] = true
		}
	}
	for at, is := range now {
		if _, ok := c[at]; !ok && is.Kind != Left {
			paths[at] = true
		}
	}
	return sorted(paths)
}

// FolderTimes counts the folders of which now has another time, and all else is the same.
func (c Content) FolderTimes(now Content) (n int) {
	for at, was := range c {
		is := now[at]
		if was.Kind != Folder || is == was {
			continue
		}
		if is.MTime = was.MTime; is == was {
			n++
		}
	}
	return n
}

// Describe says in a line what differs at a path of a folder that held was and holds is; the zero
// Entry is nothing.
func Describe(at string, was, is Entry) string {
	switch {
	case was.Kind == 0:
		return "+ " + at + is.weight()
	case is.Kind == 0:
		return "- " + at + was.weight()
	}
	var what []string
	add := func(differs bool, format string, args ...any) {
		if differs {
			what = append(what, fmt.Sprintf(format, args...))
		}
	}
	add(was.Kind != is.Kind || was.Device != is.Device, "kind")
	add(was.Digest != is.Digest && was.Kind == is.Kind, "content, %d -> %s", was.Size, activities.CountOf(is.Size, "byte"))
	add(was.Target != is.Target && was.Kind == is.Kind, "link %s -> %s", was.Target, is.Target)
	add(was.Same != is.Same, "names of one file")
	add(was.Mode != is.Mode, "mode %04o -> %04o", was.Mode, is.Mode)
	add(was.UID != is.UID || was.GID != is.GID, "owner %d:%d -> %d:%d", was.UID, was.GID, is.UID, is.GID)
	add(was.Attributes != is.Attributes, "attributes")
	add(was.MTime != is.MTime && len(what) == 0, "time")
	return "~ " + at + " (" + strings.Join(what, ", ") + ")"
}

func (e Entry) weight() string {
	if e.Kind != File {
		return ""
	}
	return " (" + activities.CountOf(e.Size, "byte") + ")"
}

func sorted[V any](paths map[string]V) []string { return slices.Sorted(maps.Keys(paths)) }

// encodeAttributes writes extended attributes, ordered by name.
func encodeAttributes(all map[string][]byte) string {
	var b strings.Builder
	for _, name := range sorted(all) {
		b.WriteString(strconv.Quote(name) + "=" + hex.EncodeToString(all[name]) + "\n")
	}
	return b.String()
}

func decodeAttributes(text string) (map[string][]byte, error) {
	all := map[string][]byte{}
	for line := range strings.Lines(text) {
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, err
		}
		name, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		value := strings.TrimSuffix(strings.TrimPrefix(line[len(quoted):], "="), "\n")
		if all[name], err = hex.DecodeString(value); err != nil {
			return nil, err
		}
	}
	return all, nil
}
