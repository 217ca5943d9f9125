package found

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

// itself is the thing that represents the container itself, beside the paths in it.
const itself = "the container"

// Container takes a snapshot of a container: its identity, and every path in its filesystem, from
// the engine's tar export. Times below a second, which a tar does not hold, are read path by path.
// What the engine itself puts into every container is left out.
func Container(ctx context.Context, name string) (Snapshot, error) {
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	c, err := engine.ContainerInspect(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", name, err)
	}
	s := Snapshot{itself: identity(c)}
	stream, err := engine.ContainerExport(ctx, c.ID)
	if err != nil {
		return nil, fmt.Errorf("export of container %s: %w", name, err)
	}
	defer stream.Close()
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return nil, fmt.Errorf("export of container %s: %w", name, err)
		}
		at := path.Clean("/" + h.Name)
		if byEngine(at) {
			continue
		}
		if s[at], err = exported(h, r); err != nil {
			return nil, fmt.Errorf("%s in container %s: %w", at, name, err)
		}
		if h.Typeflag == tar.TypeReg {
			stat, err := engine.ContainerStatPath(ctx, c.ID, at)
			if err != nil {
				return nil, fmt.Errorf("%s in container %s: %w", at, name, err)
			}
			s[at]["part of a second"] = fmt.Sprintf("%09d", stat.Mtime.Nanosecond())
		}
	}
}

// identity returns the facts of a container other than its files.
func identity(c container.InspectResponse) Facts {
	return Facts{
		"name": c.Name, "id": c.ID, "image": c.Image, "state": c.State.Status, "host name": c.Config.Hostname,
		"program": text(c.Config.Entrypoint) +
			text(c.Config.Cmd), "environment": text(c.Config.Env), "labels": text(c.Config.Labels),
		"network": string(c.HostConfig.NetworkMode), "mounts": text(c.HostConfig.Binds),
	}
}

// exported returns the facts of one entry of a tar. Folders have no time, because the engine's own
// files change it.
func exported(h *tar.Header, content io.Reader) (Facts, error) {
	f := Facts{
		"kind": string(h.Typeflag), "mode": fmt.Sprintf("%04o", h.Mode&0o7777), "owner": fmt.Sprintf("%d:%d", h.Uid, h.Gid),
		"leads to": h.Linkname, "device": fmt.Sprintf("%d:%d", h.Devmajor, h.Devminor),
	}
	for name, value := range h.PAXRecords {
		if attribute, ok := strings.CutPrefix(name, "SCHILY.xattr."); ok {
			f["attribute "+attribute] = fmt.Sprintf("%q", value)
		}
	}
	if h.Typeflag != tar.TypeReg {
		return f, nil
	}
	sum := sha256.New()
	n, err := io.Copy(sum, content)
	f["size"], f["sha256"] = fmt.Sprint(n), hex.EncodeToString(sum.Sum(nil))
	f["time"] = h.ModTime.UTC().Format("2006-01-02T15:04:05Z")
	return f, err
}

func byEngine(at string) bool {
	if slices.Contains([]string{"/.dockerenv", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/mtab"}, at) {
		return true
	}
	return slices.ContainsFunc([]string{"/dev", "/proc", "/sys"}, func(own string) bool {
		return at == own || strings.HasPrefix(at, own+"/")
	})
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // lists and maps of strings
	}
	return string(raw)
}
