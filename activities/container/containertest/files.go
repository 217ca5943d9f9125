package containertest

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Files describes the filesystem of a box, its volumes included, as docker cp tells it, in whole seconds; but for
// what the engine itself puts there, what a step ignores, and the times of the folders that these are in.
func Files(t testing.TB, b *Box) string {
	t.Helper()
	stream, _, err := b.CopyFromContainer(t.Context(), b.Name, "/")
	require.NoError(t, err)
	defer stream.Close()
	var lines []string
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		at, when := strings.Trim(h.Name, "/"), h.ModTime.Unix()
		switch top, _, _ := strings.Cut(at, "/"); {
		case slices.Contains([]string{"dev", "proc", "sys", "tmp", "run", ".dockerenv"}, top), strings.HasPrefix(at, "var/log"):
			continue
		case slices.Contains([]string{"etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab"}, at):
			continue
		case at == "" || at == "." || at == "etc" || at == "var":
			when = 0
		}
		sum := sha256.New()
		_, err = io.Copy(sum, r) //nolint:gosec // a container of the tests
		require.NoError(t, err)
		lines = append(lines, fmt.Sprintf("%s %c %o %d:%d %d %q %x", at, h.Typeflag, h.Mode, h.Uid, h.Gid, when, h.Linkname, sum.Sum(nil)[:8]))
	}
	require.NotEmpty(t, lines)
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}
