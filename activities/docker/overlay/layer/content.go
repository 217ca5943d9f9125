package layer

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
)

// Make makes an empty layer n in dir: N/u is its content, N/w the overlay's workdir. Overlays are
// put together at b and r.
func Make(dir string, n int) error {
	for _, d := range []string{"b", "r", filepath.Join(strconv.Itoa(n), "u"), filepath.Join(strconv.Itoa(n), "w")} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Content is the folder with the content of layer n. Its own metadata is that of the container's
// root.
func Content(dir string, n int) string { return filepath.Join(dir, strconv.Itoa(n), "u") }

// open opens the content of layer n in dir.
func open(dir string, n int) (filetree.Node, error) {
	return filetree.Open(unix.AT_FDCWD, Content(dir, n))
}
