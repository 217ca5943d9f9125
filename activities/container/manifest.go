package container

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
)

// maxPaths bounds a manifest: about 150 bytes of memory for each path.
const maxPaths = 2_000_000

// node is what a manifest says of a path. Times are in seconds, for no backend that goes through tar keeps more.
type node struct {
	Path   string `json:"path"`
	Kind   byte   `json:"kind"`
	Mode   int64  `json:"mode"`
	Owner  string `json:"owner"`
	MTime  int64  `json:"mtime,omitempty"`
	Size   int64  `json:"size,omitempty"`
	Digest string `json:"sha256,omitempty"`
	Link   string `json:"link,omitempty"`
	Device string `json:"device,omitempty"`
	Caps   string `json:"caps,omitempty"`
	// File is the first of the names of a file in a volume, where it has several: see volume.
	File string `json:"file,omitempty"`
	// Over and Same are of layers: see stack.Change.
	Over bool `json:"over,omitempty"`
	Same bool `json:"same,omitempty"`
}

// manifest describes a container's filesystem, without mounts, the engine's own files and what is ignored.
type manifest map[string]node

// takeManifest describes the whole filesystem of a container. Where a helper can look into it, that reads what has changed
// since the last look. Else it is what the engine exports, and costs reading every byte: what is large and does not matter
// belongs into ignore, or into a volume.
func takeManifest(ctx context.Context, e engine.Client, id string, ignore []string) (manifest, error) {
	of, err := e.ContainerInspect(ctx, id)
	if err != nil {
		return nil, engine.Explain("looking at the container", err)
	}
	m, err := readAll(ctx, e, id, ignore)
	if err == nil && tellsTimesLate(of) {
		m.leaveTimesOpen()
	}
	return m, err
}

func readAll(ctx context.Context, e engine.Client, id string, ignore []string) (manifest, error) {
	if l, ok := e.(*layeredEngine); ok {
		if m, ok, err := l.files(ctx, id, ignore); ok || err != nil {
			return m, err
		}
	}
	stream, err := e.ContainerExport(ctx, id)
	if err != nil {
		return nil, engine.Explain("reading the filesystem of the container", err)
	}
	defer stream.Close()
	m, err := readManifest(stream, ignore)
	if err != nil {
		return nil, fmt.Errorf("reading the filesystem of the container: %w", err)
	}
	return m, nil
}

// untold is a time that a manifest leaves open.
const untold = -1

// tellsTimesLate says that a container may show another time of a file or a folder than it has. With fuse-overlayfs a kernel
// notes what is written itself, and goes on telling that until it forgets it; what is on the disk is some milliseconds later,
// and of a folder whose content is copied up, two folders above what is written, it is that of the copy.
func tellsTimesLate(c container.InspectResponse) bool { return c.Driver == "fuse-overlayfs" }

func (m manifest) leaveTimesOpen() {
	for at, n := range m {
		if n.Kind == tar.TypeDir || n.Kind == tar.TypeReg {
			n.MTime = untold
			m[at] = n
		}
	}
}

// readManifest takes a name that the engine tells as a hard link for the file itself: of two names of one file it calls
// the second now a link and now a file, by what the storage driver remembers.
func readManifest(stream io.Reader, ignore []string) (manifest, error) {
	m, links, ignored := manifest{}, map[string]string{}, manifest{}
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		at := path.Clean("/" + h.Name)
		unseen := below(at, ignore)
		if enginesOwn(at) || unseen && h.Typeflag != tar.TypeReg {
			continue
		}
		if len(m)+len(ignored) == maxPaths {
			return nil, activities.Errorf(activities.Refused, "the container has more than %d paths; name large folders in ignore", maxPaths)
		}
		n := node{
			Path: at, Kind: h.Typeflag, Mode: h.Mode & 0o7777, Owner: fmt.Sprintf("%d:%d", h.Uid, h.Gid), MTime: h.ModTime.Unix(),
			Link: h.Linkname, Caps: hex.EncodeToString([]byte(h.PAXRecords["SCHILY.xattr.security.capability"])),
		}
		if h.Typeflag == tar.TypeLink {
			links[at] = path.Clean("/" + h.Linkname)
			n.Link = links[at]
		}
		if timeless(at, ignore) {
			n.MTime = 0
		}
		switch h.Typeflag {
		case tar.TypeReg:
			sum := sha256.New()
			if n.Size, err = io.Copy(sum, r); err != nil { //nolint:gosec // nothing is kept of what is read
				return nil, err
			}
			n.Digest = hex.EncodeToString(sum.Sum(nil))
		case tar.TypeChar, tar.TypeBlock:
			n.Device = fmt.Sprintf("%d:%d", h.Devmajor, h.Devminor)
		}
		if unseen {
			ignored[at] = n
		} else {
			m[at] = n
		}
	}
	for at, target := range links {
		n, known := m[target]
		if !known {
			n, known = ignored[target]
		}
		if known {
			n.Path = at
			m[at] = n
		}
	}
	return m, nil
}

// enginesOwn are the files that the engine itself puts into every container, new in each.
func enginesOwn(at string) bool {
	switch at {
	case "/.dockerenv", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/mtab":
		return true
	}
	return below(at, []string{"/dev", "/proc", "/sys"})
}

// timeless are the folders whose times change with the engine's own files or with ignored ones.
func timeless(at string, ignore []string) bool {
	return at == "/" || at == "/etc" || slices.ContainsFunc(ignore, func(ig string) bool { return path.Dir(ig) == at })
}

func below(at string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return at == root || strings.HasPrefix(at, root+"/")
	})
}

func (m manifest) sorted() []string { return slices.Sorted(maps.Keys(m)) }

// digest covers every path.
func (m manifest) digest() activities.Digest {
	sum := sha256.New()
	for _, at := range m.sorted() {
		line, _ := json.Marshal(m[at]) // a struct of strings and numbers always marshals
		sum.Write(append(line, '\n'))
	}
	return activities.Digest("sha256:" + hex.EncodeToString(sum.Sum(nil)))
}

// diff lists what differs in now, a line for each path, sorted by path.
func (m manifest) diff(now manifest) []string {
	paths := maps.Clone(m)
	maps.Copy(paths, now)
	var lines []string
	for _, at := range paths.sorted() {
		was, had := m[at]
		is, has := now[at]
		if was.MTime == untold || is.MTime == untold {
			was.MTime = is.MTime
		}
		had, has = had && !was.Same, has && !is.Same
		switch {
		case !had && !has:
		case !had && is.Kind == kindGone:
			lines = append(lines, "- "+at)
		case !had && is.Over:
			lines = append(lines, "~ "+at+" (changed)")
		case !has && (was.Kind == kindGone || was.Over):
			lines = append(lines, "~ "+at+" (as before the step)")
		case !had:
			lines = append(lines, "+ "+at)
		case !has:
			lines = append(lines, "- "+at)
		case was != is:
			lines = append(lines, "~ "+at+" ("+strings.Join(was.differs(is), ", ")+")")
		}
	}
	return lines
}

func (n node) differs(is node) []string {
	var what []string
	add := func(differs bool, format string, args ...any) {
		if differs {
			what = append(what, fmt.Sprintf(format, args...))
		}
	}
	add(n.Kind != is.Kind || n.Device != is.Device, "kind")
	add(n.Digest != is.Digest || n.Size != is.Size, "content, %d -> %d bytes", n.Size, is.Size)
	add(n.Link != is.Link, "link %s -> %s", n.Link, is.Link)
	add(n.File != is.File, "names of one file")
	add(n.Mode != is.Mode, "mode %04o -> %04o", n.Mode, is.Mode)
	add(n.Owner != is.Owner, "owner %s -> %s", n.Owner, is.Owner)
	add(n.Caps != is.Caps, "capabilities")
	add(n.MTime != is.MTime, "time")
	return what
}

// save writes the manifest below dir, whole or not at all. One of nothing is told by its digest, and has no file.
func (m manifest) save(dir, name string) (err error) {
	if len(m) == 0 {
		return nil
	}
	f, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	zip := gzip.NewWriter(f)
	lines := json.NewEncoder(zip)
	for _, at := range m.sorted() {
		if err := lines.Encode(m[at]); err != nil {
			return err
		}
	}
	if err := errors.Join(zip.Close(), f.Sync()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}

// loadManifest reads what save wrote, and refuses it unless it has the digest that the record holds.
func loadManifest(dir, name string, want activities.Digest) (manifest, error) {
	if want == (manifest{}).digest() {
		return manifest{}, nil
	}
	damaged := func(err error) (manifest, error) {
		return nil, activities.Errorf(activities.DamagedRecord, "manifest %s: %v", filepath.Join(dir, name), err)
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return damaged(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return damaged(err)
	}
	m := manifest{}
	for lines := json.NewDecoder(zip); ; {
		var n node
		if err := lines.Decode(&n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return damaged(err)
		}
		m[n.Path] = n
	}
	if m.digest() != want {
		return damaged(errors.New("it does not match its digest"))
	}
	return m, nil
}
