package stack

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// RemoveAll removes a folder, however deep those in it are nested: it holds few of them open, and none by a long path.
func RemoveAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	for n := 0; ; {
		found, err := raise(dir, &n)
		if err != nil || !found {
			return errors.Join(err, os.RemoveAll(dir))
		}
	}
}

// raise removes the folders in dir, but those in them, which it moves to dir. Found says that there were some.
func raise(dir string, next *int) (found bool, err error) {
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

// Weigh is what layer n takes on the disk, in bytes, but for what is nested too deep. What has several names in it counts once.
func Weigh(dir string, n int) (int64, error) {
	layer, err := openLayer(dir, n)
	if err != nil {
		return 0, err
	}
	defer layer.Close()
	seen := map[uint64]bool{}
	return weigh(layer, seen, MostNested)
}

func weigh(it filetree.Node, seen map[uint64]bool, depth int) (sum int64, err error) {
	if !seen[it.Stat.Ino] {
		seen[it.Stat.Ino] = true
		sum = it.Stat.Blocks * 512
	}
	if it.Kind() != unix.S_IFDIR || depth == 0 {
		return sum, nil
	}
	err = it.Each(func(_ string, sub filetree.Node) error {
		n, err := weigh(sub, seen, depth-1)
		sum += n
		return err
	})
	return sum, err
}
