package container

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/sidecar"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Config is what the world needs from its worker.
type Config struct {
	// State is the worker's state folder; the world keeps its journal in a folder of its own there. It is on the host
	// that the steps run on, private to the worker, and not on a filesystem without link(2) and flock(2).
	State string
	// Host is the engine's address, "unix:///var/run/docker.sock". Defaults to DOCKER_HOST, else to the usual socket.
	Host string
	// Overlay takes checkpoints as layers over the root of running containers, where that can be: see package overlay/helper.
	// It needs the worker to be root on the engine's host, or Sidecar. Defaults to docker commit for all containers.
	Overlay bool
	// Sidecar has a container on the engine make the layers, with all rights there: see package overlay/sidecar.
	Sidecar bool
	// Helper is the static program that sidecars run. Defaults to the program that runs now.
	Helper string
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
	program := sync.OnceValues(func() (*sidecar.Program, error) {
		p, err := sidecar.ReadProgram(c.Helper)
		if err != nil {
			err = fmt.Errorf("container.helper: %w", err)
		}
		return p, err
	})
	if err := c.check(program); err != nil {
		return activities.World{}, err
	}
	plain, err := connect(c.Host)
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
	leases, err := openLeases(filepath.Join(state, "container", "leases"), records)
	if err != nil {
		return activities.World{}, err
	}
	dir := filepath.Join(state, "container", "layers")
	beside := helper.ClientOf(sidecar.Starter(plain, records.ID(), program))
	choice := &choice{
		nearby:  &layers{engine: plain, home: nearby(dir), helper: helper.NewClient(dir)},
		sidecar: &layers{engine: plain, home: remote{filepath.Join(state, "container", "sidecar"), beside}, helper: beside},
	}
	switch {
	case c.Sidecar:
		choice.wanted = choice.sidecar
	case c.Overlay:
		choice.wanted = choice.nearby
	}
	engine := &layeredEngine{plain, choice}
	backend := &commits{engine: engine, lineage: family}
	choice.nearby.commits, choice.sidecar.commits = backend, backend
	x := &execAction{
		engine:  engine,
		host:    c.Host,
		journal: records,
		leases:  leases,
		backend: backend,
		choice:  choice,
		images:  &images{},

		lookAfter: lookAfter,
	}
	return activities.World{
		Name: "container", Actions: []activities.Action{x, &replaceAction{x}}, Journal: x.place, Watch: x.watch,
		Records: journal.Records{Journal: records, Bytes: x.bytes},
	}, nil
}

// check refuses what cannot be meant.
func (c Config) check(program func() (*sidecar.Program, error)) error {
	switch {
	case c.Sidecar && !c.Overlay:
		return errors.New("container.sidecar: true is for checkpoints as layers; set container.overlay: true too")
	case c.Helper != "" && !c.Sidecar:
		return fmt.Errorf("container.helper: %q is the program of sidecars; set container.sidecar: true too, or leave it out", c.Helper)
	case c.Sidecar:
		_, err := program()
		return err
	}
	return nil
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
