package stack

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
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
	layer, err := openItem(unix.AT_FDCWD, Content(dir, n))
	if err != nil {
		return 0, err
	}
	defer layer.close()
	seen := map[uint64]bool{}
	return layer.weigh(seen, MostNested)
}

func (it item) weigh(seen map[uint64]bool, depth int) (sum int64, err error) {
	if !seen[it.st.Ino] {
		seen[it.st.Ino] = true
		sum = it.st.Blocks * 512
	}
	if it.kind() != unix.S_IFDIR || depth == 0 {
		return sum, nil
	}
	err = it.each(func(_ string, sub item) error {
		n, err := sub.weigh(seen, depth-1)
		sum += n
		return err
	})
	return sum, err
}
