package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// AddTo adds what volumes hold now to a manifest. One that is gone holds nothing.
func AddTo(ctx context.Context, m manifest.Manifest, all []Volume) error {
	for _, v := range all {
		progress, stop := v.showProgress(ctx)
		c, err := snapshot.Scan(ctx, snapshot.Root{Path: v.Root}, snapshot.Look{Progress: progress})
		stop()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		v.addContent(m, c)
	}
	return nil
}

// Weigh notes what copies of volumes take that hold what the manifest says.
func Weigh(m manifest.Manifest, all []Volume) error {
	for i, v := range all {
		c, err := v.contentIn(m)
		if err != nil {
			return err
		}
		all[i].Files, all[i].Bytes = c.Paths(), c.Bytes()
	}
	return nil
}

func (v Volume) addContent(m manifest.Manifest, c snapshot.Content) {
	for at, e := range c {
		n := manifest.Node{
			Path: v.path(at), Kind: e.Kind, Mode: int64(e.Mode), Owner: fmt.Sprintf("%d:%d", e.UID, e.GID), MTime: e.MTime,
			Size: e.Size, Digest: e.Digest, Link: e.Target, Caps: e.Attributes, File: e.Same,
		}
		if e.Device != 0 {
			n.Device = strconv.FormatUint(e.Device, 16)
		}
		m[n.Path] = n
	}
}

// contentIn is what a manifest says of a volume.
func (v Volume) contentIn(m manifest.Manifest) (snapshot.Content, error) {
	c := snapshot.Content{}
	for at, n := range m {
		at, in := strings.CutPrefix(at, v.path(""))
		if !in || !strings.HasPrefix(at, "/") {
			continue
		}
		e := snapshot.Entry{
			Path: at, Kind: n.Kind, Mode: uint32(n.Mode), MTime: n.MTime, Size: n.Size, Digest: n.Digest, //nolint:gosec // it was one
			Attributes: n.Caps, Target: n.Link, Same: n.File,
		}
		var err error
		if n.Device != "" {
			e.Device, err = strconv.ParseUint(n.Device, 16, 64)
		}
		if _, scanned := fmt.Sscanf(n.Owner, "%d:%d", &e.UID, &e.GID); err != nil || scanned != nil {
			return nil, activities.Errorf(activities.DamagedRecord, "the manifest of volume %s says of %s what it cannot be",
				v.Name, at)
		}
		c[at] = e
	}
	return c, nil
}

// showProgress has the progress shown until stop is called.
func (v Volume) showProgress(ctx context.Context) (p *snapshot.Progress, stop func()) {
	return snapshot.Show(ctx, "volume "+v.Name)
}
