package environments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/unit"
	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

const (
	queue = "bench"
	name  = "bench"
)

// ours is the environment with its worker.
type ours struct {
	*parts
	server *devserver.Server
	client client.Client
	worker *host.Worker
	state  string
	taken  int
}

func (p *parts) startWorker(ctx context.Context) (o *ours, err error) {
	o = &ours{parts: p, state: filepath.Join(p.dir, "state")}
	if o.server, err = devserver.Start(ctx,
		devserver.Options{DB: filepath.Join(p.dir, "temporal.db"), Log: os.Stderr}); err != nil {
		return o, err
	}
	p.closers = append(p.closers, func() { _ = o.server.Stop() })
	options := o.server.ClientOptions()
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	if o.client, err = client.Dial(options); err != nil {
		return o, err
	}
	p.closers = append(p.closers, o.client.Close)
	dsn := filepath.Join(p.dir, "dsn")
	if err := os.WriteFile(dsn, []byte(p.database.DSN(databaseName)), 0o600); err != nil {
		return o, err
	}
	config := host.Config{Host: "bench", Queue: queue, State: o.state, Secrets: map[string]string{"DSN": "file:" + dsn}}.
		With(&folder.Settings{Roots: []string{p.dir}, Engine: p.host.Host}).
		With(&unit.Settings{Units: map[string]unit.Unit{"app": {Container: boxName}}, Engine: p.host.Host}).
		With(&postgres.Settings{Databases: map[string]postgres.DatabaseSettings{databaseName: {DSN: "DSN"}}})
	if o.worker, err = host.Start(ctx, config, host.Options{Client: o.client, Namespace: "default"}); err != nil {
		return o, err
	}
	p.closers = append(p.closers, o.worker.Stop)
	_, err = o.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: environment.WorkflowID(name), TaskQueue: queue},
		environment.WorkflowType, environment.Start{Document: o.document(environment.StopUnitFor)})
	return o, err
}

func (p *parts) document(quiesce environment.Quiesce) environment.Document {
	return environment.Document{Name: name, Unit: "app", Quiesce: quiesce, Parts: map[string]environment.Part{
		"app": {Container: boxName}, "data": {Volume: boxName}, "code": {Git: p.code()}, "rows": {Postgres: databaseName},
	}, Retention: environment.Retention{Last: 100}}
}

// pause has the container paused for checkpoints from now on.
func (o *ours) pause(ctx context.Context) error {
	return o.update(ctx, environment.UpdateApply, o.document(environment.PauseUnitFor), nil)
}

func (o *ours) update(ctx context.Context, update string, request, result any) error {
	handle, err := o.client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{WorkflowID: environment.WorkflowID(name),
		UpdateName: update, Args: []any{request}, WaitForStage: client.WorkflowUpdateStageCompleted})
	if err != nil {
		return err
	}
	return handle.Get(ctx, result)
}

// checkpoint takes one, and says how long the container was stopped or paused.
func (o *ours) checkpoint(ctx context.Context) (id string, down time.Duration, err error) {
	o.taken++
	id = fmt.Sprintf("cp-%d", o.taken)
	down, err = o.ask(ctx, environment.UpdateCheckpoint, new(environment.Checkpoint),
		environment.CheckpointRequest{ID: id, Trigger: environment.Manual})
	return id, down, err
}

func (o *ours) rollBack(ctx context.Context, to string) (down time.Duration, err error) {
	o.taken++
	return o.ask(ctx, environment.UpdateRollback, new(environment.RolledBack),
		environment.RollbackRequest{To: to, Safety: fmt.Sprintf("cp-%d", o.taken)})
}

func (o *ours) ask(ctx context.Context, update string, result, request any) (down time.Duration, err error) {
	began := time.Now()
	if err := o.update(ctx, update, request, result); err != nil {
		return 0, err
	}
	return o.wasDown(ctx, began)
}

// wasDown is how long the container was stopped or paused since a moment, as the engine tells.
func (p *parts) wasDown(ctx context.Context, since time.Time) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	told, failed := p.engine.Events(ctx, events.ListOptions{
		Since: since.Format(time.RFC3339Nano), Until: time.Now().Format(time.RFC3339Nano),
		Filters: filters.NewArgs(filters.Arg("container", boxName), filters.Arg("event", "die"),
			filters.Arg("event", "start"), filters.Arg("event", "pause"), filters.Arg("event", "unpause")),
	})
	var times []int64
	for {
		select {
		case e := <-told:
			times = append(times, e.TimeNano)
		case err := <-failed:
			if !errors.Is(err, io.EOF) {
				return 0, err
			}
			if len(times) < 2 {
				return 0, fmt.Errorf("the engine tells of no stop and start of the container: %d events", len(times))
			}
			return time.Duration(times[len(times)-1] - times[0]), nil
		}
	}
}

// restart is how long a stop and a start take.
func (p *parts) restart(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := p.engine.ContainerStop(ctx, boxName, container.StopOptions{})
	if err == nil {
		err = p.engine.ContainerStart(ctx, boxName, container.StartOptions{})
	}
	if err != nil {
		return 0, err
	}
	return p.wasDown(ctx, began)
}

// kept is what the store of folders takes on its disk, by what the parts take on theirs; the
// database aside, whose copies are on its server.
func (o *ours) kept(ctx context.Context) (ratio float64, err error) {
	c, err := o.engine.ContainerInspect(ctx, boxName)
	if err != nil {
		return 0, err
	}
	kept, err := onDisk(filepath.Join(o.state, "folder", "store"))
	parts, failed := onDisk(c.GraphDriver.Data["UpperDir"], o.volume, o.code())
	return float64(kept) / float64(parts), errors.Join(err, failed)
}

// onDisk is how many bytes folders take on their disk.
func onDisk(folders ...string) (bytes int64, err error) {
	for _, each := range folders {
		err = errors.Join(err, filepath.WalkDir(each, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
			}
			return err
		}))
	}
	return bytes, err
}
