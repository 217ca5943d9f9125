package stack

import (
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/layer"
)

// RecreateNodes makes nodes below the container's /dev that are not as listed: see
// [layer.RecreateNodes].
func (t *Target) RecreateNodes(nodes []layer.Change) error {
	var dev int
	err := onThread(func() (err error) {
		if err = t.enterMountNamespace(); err == nil {
			dev, err = unix.OpenTree(unix.AT_FDCWD, layer.Devices,
				unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		}
		return err
	})
	if err != nil {
		return wrap("the container's "+layer.Devices, err)
	}
	defer unix.Close(dev)
	return layer.RecreateNodes(dev, nodes)
}
