package containertest

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/stack"
)

// Files describes the filesystem of a box, its volumes included, as docker cp tells it, in whole
// seconds; but for what the engine itself puts there, what a step ignores, and the times of the
// folders that these are in.
func Files(t testing.TB, b *Box) string {
	t.Helper()
	lines, ok := walked(t, b)
	if !ok {
		lines = copied(t, b)
	}
	require.NotEmpty(t, lines)
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// copied asks the engine, which starts programs to answer.
func copied(t testing.TB, b *Box) (lines []string) {
	t.Helper()
	stream, _, err := b.CopyFromContainer(t.Context(), b.Name, "/")
	require.NoError(t, err)
	defer stream.Close()
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		require.NoError(t, err)
		if line := describe(t, h, r); line != "" {
			lines = append(lines, line)
		}
	}
}

// walked looks into a box that runs on this host itself. What it has open is the box's: the same
// process was its first before and after.
func walked(t testing.TB, b *Box) (lines []string, ok bool) {
	t.Helper()
	was := b.Inspect(t)
	if os.Geteuid() != 0 || !was.State.Running {
		return nil, false
	}
	root, err := os.Open(fmt.Sprintf("/proc/%d/root/", was.State.Pid))
	if err != nil {
		return nil, false
	}
	defer root.Close()
	here := stack.InCgroup(was.State.Pid, was.ID)
	now := b.Inspect(t)
	if !here || !now.State.Running || was.ID != now.ID || was.State.Pid != now.State.Pid ||
		was.State.StartedAt != now.State.StartedAt {
		return nil, false
	}
	top, first := fmt.Sprintf("/proc/self/fd/%d/", root.Fd()), map[[2]uint64]string{}
	err = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := strings.Trim(strings.TrimPrefix(name, top), "/")
		if ignored(at) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		line, err := describePath(t, name, at, d, first)
		if line != "" {
			lines = append(lines, line)
		}
		return err
	})
	if err != nil {
		t.Logf("looking into %s: %v; the engine is asked", b.Name, err) // it may have ended
	}
	return lines, err == nil
}

// describePath describes a path; first has the first names of files with several.
func describePath(t testing.TB, name, at string, d fs.DirEntry, first map[[2]uint64]string) (string, error) {
	info, err := d.Info()
	if err != nil || info.Mode()&fs.ModeSocket != 0 {
		return "", err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(name); err != nil {
			return "", err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return "", err
	}
	h.Name = at
	st, _ := info.Sys().(*syscall.Stat_t)
	if file := [2]uint64{st.Dev, st.Ino}; st.Nlink > 1 && info.Mode().IsRegular() {
		if was, named := first[file]; named {
			h.Typeflag, h.Linkname = tar.TypeLink, was
			return describe(t, h, strings.NewReader("")), nil
		}
		first[file] = at
	}
	if h.Typeflag != tar.TypeReg {
		return describe(t, h, strings.NewReader("")), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return describe(t, h, f), nil
}

// ignored says what is left out, with all below it.
func ignored(at string) bool {
	top, _, _ := strings.Cut(at, "/")
	return slices.Contains([]string{"dev", "proc", "sys", "tmp", "run", ".dockerenv"}, top) ||
		strings.HasPrefix(at, "var/log") ||
		slices.Contains([]string{"etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab"}, at)
}

func describe(t testing.TB, h *tar.Header, content io.Reader) string {
	t.Helper()
	at, when, link := strings.Trim(h.Name, "/"), h.ModTime.Unix(), h.Linkname
	if ignored(at) {
		return ""
	}
	if at == "" || at == "." || at == "etc" || at == "var" {
		at, when = strings.Trim(at, "."), 0
	}
	if h.Typeflag == tar.TypeLink {
		link = strings.Trim(link, "/")
	}
	sum := sha256.New()
	_, err := io.Copy(sum, content)
	require.NoError(t, err)
	return fmt.Sprintf("%s %c %o %d:%d %d %q %x", at, h.Typeflag, h.Mode&0o7777, h.Uid, h.Gid, when, link,
		sum.Sum(nil)[:8])
}
