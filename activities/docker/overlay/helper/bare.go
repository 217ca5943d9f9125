package helper

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
)

// bootID identifies this boot of the host.
var bootID = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
})

// findLostLayers finds the layers whose folders a power loss has taken. A page of the book is
// synced at once, a new folder is written back seconds later: so the newest layers are lost, with
// their content. A missing layer below an existing one was removed by somebody.
func (o *lockedBook) findLostLayers() error {
	if o.Boot == bootID() {
		return nil
	}
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(o.usedLayers()))) {
		_, err := os.Lstat(layer.Content(o.dir, n))
		if err == nil || slices.ContainsFunc(o.Merged, func(m mergedLayer) bool { return m.As == n }) {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		o.Bare = append(o.Bare, n)
	}
	o.Boot = bootID()
	return nil
}

// recreateBareLayers makes bare layers as if they had been made over a running container: empty,
// with the metadata of what they cover.
func (o *lockedBook) recreateBareLayers() error {
	if len(o.Bare) == 0 {
		return nil
	}
	if err := o.writeBook(); err != nil { // from now on none of them is missing
		return err
	}
	used := o.usedLayers()
	for _, n := range slices.Sorted(slices.Values(o.Bare)) {
		if !used[n] {
			continue
		}
		if err := layer.Make(o.dir, n); err != nil {
			return err
		}
		if err := o.target.CopyRootMetadata(o.view(o.Below[n], n)); err != nil {
			return err
		}
	}
	o.Bare = nil
	return nil
}
