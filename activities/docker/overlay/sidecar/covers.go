package sidecar

import (
	"context"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
)

// Lister is the part of a Docker client that Covers needs.
type Lister interface {
	VolumeList(ctx context.Context, options volume.ListOptions) (volume.ListResponse, error)
}

// Covers says whether layers of any worker lie over a container, or are to be written into it. The
// caller is on the engine's host.
func Covers(ctx context.Context, e Lister, container string) (bool, error) {
	all, err := e.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", Label))})
	if err != nil {
		return false, err
	}
	for _, v := range all.Volumes {
		if covers, err := helper.Covers(v.Mountpoint, container); covers || err != nil {
			return covers, err
		}
	}
	return false, nil
}
