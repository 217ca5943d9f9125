package container

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/container/lease"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/sidecar"
	"github.com/seed-62bf7108/unwind/activities/container/readonly"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Config is what the world needs from its worker.
type Config struct {
	// State is the worker's state folder; the world keeps its journal in a folder of its own there. It is on the host
	// that the steps run on, private to the worker, and not on a filesystem without link(2) and flock(2).
	State string
	// Host is the engine's address, "unix:///var/run/docker.sock". Defaults to DOCKER_HOST, else to the usual socket.
	Host string
	// Layers says whether checkpoints are layers over the root of running containers, which a helper container on the engine
	// makes: see package overlay/sidecar. Defaults to LayersAuto.
	Layers LayersMode
}

// LayersMode says when a checkpoint is a layer. All others are images, taken by docker commit.
type LayersMode string

// The modes. Empty is LayersAuto.
const (
	LayersAuto    LayersMode = "auto"    // wherever layers work
	LayersNever   LayersMode = "never"   // only over containers that have layers already
	LayersRequire LayersMode = "require" // always: a worker without layers does not start, and a step that cannot have one is refused
)

// Valid says whether it is one of the modes.
func (m LayersMode) Valid() bool {
	return slices.Contains([]LayersMode{"", LayersAuto, LayersNever, LayersRequire}, m)
}

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
		return activities.World{}, fmt.Errorf("container.layers: %q must be %s, %s or %s", c.Layers, LayersAuto, LayersNever, LayersRequire)
	}
	if err := refuseForeignLayers(filepath.Join(state, "container", "layers")); err != nil {
		return activities.World{}, err
	}
	plain, err := engine.Connect(c.Host)
	if err != nil {
		return activities.World{}, err
	}
	records, err := journal.Open(filepath.Join(state, "container"))
	if err != nil {
		return activities.World{}, err
	}
	family, err := openLineage(filepath.Join(state, "container", "lineage"))
	if err != nil {
		return activities.World{}, err
	}
	leases, err := lease.Open(filepath.Join(state, "container", "leases"), records)
	if err != nil {
		return activities.World{}, err
	}
	client := helper.NewClient(sidecar.Starter(plain, records.ID()))
	choice := &choice{mode: c.Layers, layers: &layers{
		engine: plain, helper: client, home: home{notes: filepath.Join(state, "container", "sidecar"), helper: client},
	}}
	engine := &layeredEngine{plain, choice}
	backend := &commits{engine: engine, lineage: family}
	choice.layers.commits = backend
	x := &execAction{
		engine:  engine,
		host:    c.Host,
		journal: records,
		leases:  leases,
		backend: backend,
		choice:  choice,
		prover:  readonly.NewProver(engine),

		lookAfter: lookAfter,
	}
	return activities.World{
		Name: "container", Actions: []activities.Action{x, &replaceAction{x}}, Journal: x.place,
		Records: journal.Records{Journal: records, Bytes: x.bytes}, Prepare: choice.prepare, Watch: x.watch,
	}, nil
}

// refuseForeignLayers refuses a state folder of a worker that was root and made layers by itself: nobody can show them any more.
func refuseForeignLayers(dir string) error {
	found, err := namesIn(dir)
	if len(found) > 0 {
		return fmt.Errorf("state: %s has layers of containers that an earlier version of Unwind made in a way that is gone, and their steps cannot be undone by this one: "+
			"roll back or release them with that version, or remove the folder to give them up", dir)
	}
	return err
}

// Home names what the sidecars of a worker with this state folder have on an engine: see [sidecar.Remove].
func Home(state string) (string, error) {
	records, err := journal.Open(filepath.Join(state, "container"))
	if err != nil {
		return "", err
	}
	return records.ID(), nil
}

// place is the journal's id and the engine's: a record is worth nothing at another engine.
func (x *execAction) place(ctx context.Context) (string, error) {
	id, err := x.engine.EngineID(ctx)
	if err != nil {
		return "", err
	}
	return x.journal.ID() + "@" + id, nil
}

// token opens the entry's token after making sure that its record can be nowhere else.
func (x *execAction) token(ctx context.Context, e activities.Entry) (*journal.Token, error) {
	if err := x.here(ctx, e.Place); err != nil {
		return nil, err
	}
	return x.journal.Token(e.Token)
}

// here refuses the steps of another place.
func (x *execAction) here(ctx context.Context, at activities.Place) error {
	records, engine, _ := strings.Cut(at.Journal, "@")
	if err := x.journal.Check(records); err != nil {
		return err
	}
	here, err := x.engine.EngineID(ctx)
	if err != nil {
		return err
	}
	if engine != here {
		return activities.Errorf(activities.WrongPlace, "the step ran on container engine %s; this worker's engine is %s", engine, here)
	}
	return nil
}
