package container

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint/dockercommit"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint/layers"
	"github.com/seed-62bf7108/unwind/activities/container/command"
	"github.com/seed-62bf7108/unwind/activities/container/lease"
	"github.com/seed-62bf7108/unwind/activities/container/lineage"
	"github.com/seed-62bf7108/unwind/activities/container/readonly"
	"github.com/seed-62bf7108/unwind/activities/container/replace"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/docker/aside"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Config is what the world needs from its worker.
type Config struct {
	// State is the worker's state folder; the world keeps its journal in a folder of its own there. It
	// is on the host that the steps run on, private to the worker, and not on a filesystem without
	// link(2) and flock(2).
	State string
	// Host is the engine's address, "unix:///var/run/docker.sock". Defaults to DOCKER_HOST, else to
	// the usual socket.
	Host string
	// Layers says whether checkpoints are layers over the root of running containers, which a helper
	// container on the engine makes: see package overlay/sidecar. Defaults to LayersAuto.
	Layers LayersMode
	// LookOnly opens the world for its Specs and for Preflight only, and makes nothing.
	LookOnly bool
}

// LayersMode says when a checkpoint is a layer. All others are images, taken by docker commit.
type LayersMode = layers.Mode

// The modes. Empty is LayersAuto.
const (
	LayersAuto    = layers.Auto
	LayersNever   = layers.Never
	LayersRequire = layers.Require
)

// New makes the world. The engine need not answer yet.
func New(c Config) (activities.World, error) {
	if c.State == "" {
		return activities.World{}, fmt.Errorf("container: State is empty; name the worker's state folder")
	}
	state, err := filepath.Abs(c.State)
	if err != nil {
		return activities.World{}, err
	}
	if !c.Layers.Valid() {
		return activities.World{},
			fmt.Errorf("container.layers: %q must be %s, %s or %s", c.Layers, LayersAuto, LayersNever, LayersRequire)
	}
	if c.LookOnly {
		return look(c)
	}
	plain, err := engine.Connect(c.Host)
	if err != nil {
		return activities.World{}, err
	}
	records, err := journal.Open(filepath.Join(state, "container"))
	if err != nil {
		return activities.World{}, err
	}
	family, err := lineage.Open(filepath.Join(state, "container", "lineage"), plain)
	if err != nil {
		return activities.World{}, err
	}
	leases, err := lease.Open(filepath.Join(state, "container", "leases"), records)
	if err != nil {
		return activities.World{}, err
	}
	leases.IsGone = func(ctx context.Context, id string) (bool, error) {
		standing, err := family.Standing(ctx, id)
		if err != nil {
			return false, err
		}
		holder, err := engine.FindHolder(ctx, plain, standing)
		return holder == "", err
	}
	sidecars := helper.NewClient(sidecar.Starter(plain, records.ID()))
	overlays := layers.New(c.Layers, plain, family, sidecars, filepath.Join(state, "container", "sidecar"))
	layered := layers.NewEngine(overlays)
	store := target.Store{Journal: records, Engine: layered}
	exec := &execAction{
		store:    store,
		engine:   layered,
		host:     c.Host,
		leases:   leases,
		lineage:  family,
		backends: checkpoint.Backends{Layers: overlays, Commit: dockercommit.New(layered, family)},
		prover:   readonly.NewProver(layered),

		lateAfter: lateAfter,
	}
	replacing := &replace.Action{Store: store, Engine: layered, Leases: leases, Lineage: family,
		Journals: aside.Journals{records.Dir(), filepath.Join(state, "folder", "journal")}}
	return activities.World{
		Name: "container", Actions: []activities.Action{exec, replacing}, Journal: store.Place,
		Records: journal.Records{Journal: records, Bytes: exec.bytes}, Prepare: overlays.Prepare, Watch: overlays.Watch,
	}, nil
}

// look is the world of Config.LookOnly.
func look(c Config) (activities.World, error) {
	plain, err := engine.Connect(c.Host)
	if err != nil {
		return activities.World{}, err
	}
	layered := layers.NewEngine(layers.New(layers.Never, plain, nil, nil, ""))
	exec := &execAction{engine: layered, backends: checkpoint.Backends{Commit: dockercommit.New(layered, nil)}}
	return activities.World{
		Name: "container", Actions: []activities.Action{exec, &replace.Action{Engine: layered}}, Journal: plain.EngineID,
	}, nil
}

// Attend makes this program able to supervise commands in containers, and to be a helper in a
// sidecar. Call it first in main, and first in TestMain: in a process that was started as one of
// these it does that work and never returns.
func Attend() {
	helper.Attend()
	command.Attend()
}

// Home names what the sidecars of a worker with this state folder have on an engine: see
// [sidecar.Remove].
func Home(state string) (string, error) {
	records, err := journal.Open(filepath.Join(state, "container"))
	if err != nil {
		return "", err
	}
	return records.ID(), nil
}
