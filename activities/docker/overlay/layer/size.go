package layer

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// RemoveAll removes a folder however deep it is nested: it keeps few folders open, and uses no long
// path.
func RemoveAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	for n := 0; ; {
		found, err := hoistFolders(dir, &n)
		if err != nil || !found {
			return errors.Join(err, os.RemoveAll(dir))
		}
	}
}

// hoistFolders removes the folders in dir after moving their subfolders up into dir. Found reports
// whether there were any.
func hoistFolders(dir string, next *int) (found bool, err error) {
	folders, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		at := filepath.Join(dir, folder.Name())
		inside, err := os.ReadDir(at)
		if err != nil {
			return found, err
		}
		for _, sub := range inside {
			if !sub.IsDir() {
				continue
			}
			*next++
			if err := os.Rename(filepath.Join(at, sub.Name()), filepath.Join(dir, ".raised-"+strconv.Itoa(*next))); err != nil {
				return found, err
			}
			found = true
		}
		if err := os.RemoveAll(at); err != nil {
			return found, err
		}
	}
	return found, nil
}

// Size is what layer n takes on the disk in bytes, not counting what is nested too deep. A file
// with several names counts once.
func Size(dir string, n int) (int64, error) {
	layer, err := open(dir, n)
	if err != nil {
		return 0, err
	}
	defer layer.Close()
	seen := map[uint64]bool{}
	return sumBlocks(layer, seen, MostNested)
}

func sumBlocks(it filetree.Node, seen map[uint64]bool, depth int) (sum int64, err error) {
	if !seen[it.Stat.Ino] {
		seen[it.Stat.Ino] = true
		sum = it.Stat.Blocks * 512
	}
	if it.Kind() != unix.S_IFDIR || depth == 0 {
		return sum, nil
	}
	err = it.Each(func(_ string, sub filetree.Node) error {
		n, err := sumBlocks(sub, seen, depth-1)
		sum += n
		return err
	})
	return sum, err
}
