package disk

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/disk/qcow2"
)

// checkFit refuses an image of which no snapshot can be taken and put back. A running machine has a
// dirty one open.
func (w *world) checkFit(i *image, runs bool) error {
	if odd := i.Odd(); len(odd) > 0 {
		return activities.Errorf(activities.Refused, "disk: %s cannot be kept: %s; convert it (%s convert -O qcow2 %s NEW)",
			i.path, strings.Join(odd, ", and "), program, i.path)
	}
	if i.IsDirty() && !runs {
		return activities.Errorf(activities.Refused,
			"disk: %s was not closed properly; mend it (%s check -r all %s), or start and stop its machine", i.path, program,
			i.path)
	}
	if err := w.checkBelow(i.Image, i.path); err != nil {
		return err
	}
	return checkRoom(i, 0)
}

// maxChain is how many images may lie below a disk.
const maxChain = 100

// checkBelow refuses an image below which lies one that steps may not read, or that cannot be read.
func (w *world) checkBelow(top *qcow2.Image, path string) error {
	for range maxChain {
		if top.Backing == "" {
			return nil
		}
		refuse := func(format string, args ...any) error {
			return activities.Errorf(activities.Refused, "disk: %s lies over %q, "+format,
				append([]any{path, top.Backing}, args...)...)
		}
		if name, _, _ := strings.Cut(top.Backing, "/"); strings.Contains(name, ":") {
			return refuse("which is not named by a path")
		}
		below := top.Backing
		if !filepath.IsAbs(below) {
			below = filepath.Join(filepath.Dir(path), below)
		}
		below, err := w.locateThere(below)
		if err != nil {
			return refuse("which cannot be used: %v", err)
		}
		switch top.BackingFormat {
		case "raw":
			return nil
		case "qcow2":
		default:
			return refuse("of format %q; only qcow2 and raw are known (%s rebase -u -b NAME -F FORMAT says what it is)",
				top.BackingFormat, program)
		}
		i, err := readImage(below)
		if err != nil {
			return refuse("which cannot be read: %v", err)
		}
		top, path = i, below
	}
	return activities.Errorf(activities.Refused, "disk: more than %d images lie below %s", maxChain, path)
}

// spare is the room that a snapshot and the next writes to the disk may take besides the map.
const spare = 16 << 20

// checkRoom refuses an image whose filesystem has no room for a snapshot: a copy of the map, part by
// part, once the disk is written to, and the memory of its machine.
func checkRoom(i *image, memory int64) error {
	mapped, err := i.MapBytes()
	if err != nil {
		return explain(i.path, err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(i.file.Fd()), &fs); err != nil {
		return err
	}
	free := int64(fs.Bavail) * fs.Bsize //nolint:gosec // bytes of a filesystem
	if need := mapped + memory + spare; free < need {
		return activities.Errorf(activities.Refused,
			"disk: the filesystem of %s has %s free, and a checkpoint may take %s; make room, or delete checkpoints", i.path,
			activities.CountOf(free, "byte"), activities.CountOf(need, "byte"))
	}
	return nil
}
