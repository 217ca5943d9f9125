package container_test

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// files describes the filesystem of a container as docker cp tells it, in whole seconds, but for /dev, what the engine
// itself keeps below /etc, and the times of the folders that these are in.
func files(t testing.TB, b *box) string {
	t.Helper()
	var lines []string
	for _, top := range []string{"/bin", "/etc", "/root", "/srv", "/var"} {
		stream, _, err := b.CopyFromContainer(t.Context(), b.name, top)
		require.NoError(t, err)
		defer stream.Close()
		for r := tar.NewReader(stream); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if h.Name == "etc/hosts" || h.Name == "etc/hostname" || h.Name == "etc/resolv.conf" || h.Name == "etc/mtab" || strings.HasPrefix(h.Name, "var/log/") {
				continue
			}
			sum := sha256.New()
			_, err = io.Copy(sum, r)
			require.NoError(t, err)
			at := h.ModTime.Unix()
			if h.Name == "etc/" || h.Name == "var/" || h.Name == "var/log/" {
				at = 0
			}
			lines = append(lines, fmt.Sprintf("%s %c %o %d:%d %d %q %x", h.Name, h.Typeflag, h.Mode, h.Uid, h.Gid, at, h.Linkname, sum.Sum(nil)[:8]))
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}
