package stack

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Weigh is what layer n takes on the disk, in bytes. What has several names in it counts once.
func Weigh(dir string, n int) (sum int64, err error) {
	seen := map[uint64]bool{}
	err = filepath.WalkDir(Content(dir, n), func(_ string, d fs.DirEntry, err error) error {
		var info os.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && !seen[st.Ino] {
			seen[st.Ino] = true
			sum += st.Blocks * 512
		}
		return nil
	})
	return sum, err
}
