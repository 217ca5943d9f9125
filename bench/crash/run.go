package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	dockercontainer "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	docker "github.com/docker/docker/client"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/docker/demoimage"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
	"github.com/seed-62bf7108/unwind/activities/etcd/etcdtest"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/activities/redis/redistest"
	"github.com/seed-62bf7108/unwind/activities/stripe"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
	"github.com/seed-62bf7108/unwind/activities/terraform"
	"github.com/seed-62bf7108/unwind/deploy/devserver"
)

// Options set the length and intensity of a run. The zero value is the usual run.
type Options struct {
	// Kills is how many processes are to be killed. Defaults to 200.
	Kills int
	// Seed seeds everything that is random. Defaults to 1.
	Seed uint64
	// Within bounds the run: no further task starts after it. Defaults to 20 minutes, or slowKill for
	// each kill if that is longer.
	Within time.Duration
	// Patience is how long a task may take under faults, and then again without faults, before it
	// counts as blocked. Defaults to 4 minutes.
	Patience time.Duration
	// Hosts is how many workers there are, Side how many tasks run side by side. Default to 3 and 6.
	Hosts, Side int
	// Worlds are those that tasks use. Defaults to those of the matrix that the machine has.
	Worlds []string
	// Log gets a line for each task. Defaults to nowhere.
	Log io.Writer
	// Tasks plays only those of the seed, by number; then Kills is no aim. Defaults to as many as it
	// takes.
	Tasks []int
	// Environments plays environments in the place of tasks: checkpoints and rollbacks of a folder, a
	// repository and a unit, with container and volume where there is the world container, databases
	// where there are postgres, sqlite and redis, and a disk where there is the world disk, which in
	// some of them a machine has open.
	Environments bool
	// Keep leaves the run's folder where it is, to be looked at.
	Keep bool

	// opener is that of the workers, and plans is what is played in the place of what is drawn: for
	// tests.
	opener string
	plans  []plan
}

// slowKill is the time for a kill on a slow machine: a thousand kills get an hour and a half.
const slowKill = 5400 * time.Millisecond

// WithDefaults fills in what is left zero.
func (o Options) WithDefaults() Options {
	o.Kills = cmp.Or(o.Kills, 200)
	o.Seed = cmp.Or(o.Seed, 1)
	o.Within = cmp.Or(o.Within, max(20*time.Minute, time.Duration(o.Kills)*slowKill))
	o.Patience = cmp.Or(o.Patience, 4*time.Minute)
	o.Hosts, o.Side = cmp.Or(o.Hosts, 3), cmp.Or(o.Side, 6)
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Worlds == nil {
		for world, why := range missing() {
			if why != nil {
				fmt.Fprintf(o.Log, "no tasks of world %s: %v\n", world, why)
				continue
			}
			o.Worlds = append(o.Worlds, world)
		}
		slices.Sort(o.Worlds)
	}
	return o
}

// inMatrix are the worlds that tasks can use: what says why this machine has none, where not every
// machine has one, and what sets one up, where that is needed.
var inMatrix = map[string]struct {
	missing func() error
	setUp   func(*run, context.Context) error
}{
	"file": {}, "folder": {nil, (*run).setFolders}, "unit": {nil, (*run).setUnits},
	"environment": {nil, (*run).setEnvironments}, "stripe": {nil, (*run).setStripe},
	"disk": {hasQEMU, (*run).setDisks}, "container": {hasEngine, (*run).setEngine},
	"terraform": {hasTerraform, (*run).setTerraform}, "sqlite": {hasSQLite, (*run).setSQLite},
	"postgres": {postgrestest.Missing, (*run).setPostgres}, "redis": {redistest.Missing, (*run).setRedis},
	"etcd": {etcdtest.Missing, (*run).setEtcd},
}

// missing says of each world why this machine has none; nil where it has one.
func missing() map[string]error {
	all := map[string]error{}
	for world, its := range inMatrix {
		all[world] = nil
		if its.missing != nil {
			all[world] = its.missing()
		}
	}
	return all
}

func hasEngine() error {
	engine, err := docker.NewClientWithOpts(docker.FromEnv, docker.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer engine.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = engine.Ping(ctx)
	return err
}

func hasTerraform() error {
	_, err := exec.LookPath("terraform")
	return err
}

// Figures are the results of a run.
type Figures struct {
	// Kills counts processes that were killed: workers, supervisors at points of their own, calls that
	// work on SQLite databases and disks, machines, and servers of databases.
	Kills    int `json:"kills"`
	Lost     int `json:"lost"`
	Doubled  int `json:"doubled"`
	Orphaned int `json:"orphaned"`
	Blocked  int `json:"blocked"`

	Seed      uint64   `json:"seed"`
	Worlds    []string `json:"worlds"`
	Tasks     int      `json:"tasks"`
	Committed int      `json:"committed"`
	Unwound   int      `json:"unwound"`
	// RolledBack counts tasks that had committed and were rolled back, Redone those that were redone
	// after it.
	RolledBack int `json:"rolled_back"`
	Redone     int `json:"redone"`
	// Named counts tasks whose report names a loss.
	Named int `json:"named"`
	// Frozen counts workers that were stopped at a point and resumed when their task was over.
	Frozen int `json:"frozen"`
	// Servers counts restarts of the Temporal server, Databases those of servers of databases.
	Servers   int `json:"servers"`
	Databases int `json:"databases"`
	// Points counts the labelled points at which a process broke, Of those that there are.
	Points int     `json:"points"`
	Of     int     `json:"of"`
	Took   float64 `json:"took_s"`
}

// run is a run under way.
type run struct {
	Options
	dir      string
	server   *devserver.Server
	serving  sync.Mutex // one restart at a time
	client   client.Client
	fleet    *fleet
	emulator *emulator.Emulator
	postgres *postgresServer
	redis    *redisServer
	etcd     *etcdServer
	// databases are the servers of databases, by their world.
	databases map[string]*database
	engine    *docker.Client
	wire      *wire
	image     string
	prior     *prior
	// siteDatabases are those that no environment uses now.
	siteDatabases []int
	closers       []func() error

	kills atomic.Int64
	truce truce

	mu      sync.Mutex
	figures Figures
	moved   int64 // money that should have been
}

// Run plays tasks until enough processes were killed.
func Run(ctx context.Context, o Options) (f Figures, err error) {
	began := time.Now()
	r := &run{Options: o.WithDefaults(), databases: map[string]*database{}}
	defer func() {
		for _, each := range slices.Backward(r.closers) {
			err = errors.Join(err, each())
		}
	}()
	for _, i := range r.Tasks {
		if r.Environments {
			r.plans = append(r.plans, drawSite(r.Seed, i, r.Hosts, r.Worlds))
		} else {
			r.plans = append(r.plans, draw(r.Seed, i, r.Hosts, r.Worlds))
		}
	}
	if err := r.setStage(ctx); err != nil {
		return f, err
	}
	if err := r.playTasks(ctx, began); err != nil {
		r.fleet.writeLogs(r.Log)
		return f, err
	}
	if err := r.close(); err != nil {
		return f, err
	}
	r.figures.Took = time.Since(began).Round(100 * time.Millisecond).Seconds()
	return r.figures, nil
}

// setStage starts the server, the emulator and the workers.
func (r *run) setStage(ctx context.Context) (err error) {
	if r.dir, err = os.MkdirTemp("", "unwind-crash-"); err != nil {
		return err
	}
	// A folder that is reached over a link has two names, and tasks and worlds must mean the same.
	if r.dir, err = filepath.EvalSymlinks(r.dir); err != nil {
		return err
	}
	r.closers = append(r.closers, func() error {
		if r.Keep {
			fmt.Fprintln(r.Log, "kept:", r.dir)
			return nil
		}
		return os.RemoveAll(r.dir)
	})
	if r.server, err = devserver.Start(ctx,
		devserver.Options{DB: filepath.Join(r.dir, "temporal.db"), Log: r.Log}); err != nil {
		return err
	}
	r.closers = append(r.closers, func() error { return r.server.Stop() })
	options := r.server.ClientOptions()
	options.Logger = silent{}
	if r.client, err = client.Dial(options); err != nil {
		return err
	}
	r.closers = append(r.closers, func() error { r.client.Close(); return nil })
	r.fleet = muster(r.Hosts, r.dir, r.Seed, &r.kills)
	for world, its := range inMatrix {
		if its.setUp != nil && slices.Contains(r.Worlds, world) {
			if err := its.setUp(r, ctx); err != nil {
				return fmt.Errorf("world %s: %w", world, err)
			}
		}
	}
	if r.Environments {
		if err := r.setSites(ctx); err != nil {
			return fmt.Errorf("environments: %w", err)
		}
	}
	var dialer net.Dialer
	address := r.server.Address // it stays the same when the server is started again
	for i, m := range r.fleet.members {
		m.wire, err = newWire("tcp", "127.0.0.1:0", func(ctx context.Context) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		})
		if err != nil {
			return err
		}
		r.closers = append(r.closers, func() error { m.wire.close(); return nil })
		if err := m.settle(order{Namespace: r.server.Namespace, Sticky: i%2 == 0, Opener: r.opener}); err != nil {
			return err
		}
	}
	r.fleet.sail(ctx)
	r.closers = append(r.closers, func() error { r.fleet.stop(); return nil })
	return nil
}

func (r *run) setStripe(context.Context) error {
	r.emulator = emulator.New(emulator.Options{})
	server, err := r.emulator.Start("127.0.0.1:0")
	if err != nil {
		return err
	}
	r.closers = append(r.closers, server.Close)
	key := filepath.Join(r.dir, "key")
	if err := os.WriteFile(key, []byte("sk_test_of_the_crash_matrix"), 0o600); err != nil {
		return err
	}
	for _, m := range r.fleet.members {
		m.setSecret("STRIPE_KEY", key)
		m.Config = m.With(&stripe.Settings{Key: "STRIPE_KEY", URL: server.URL})
	}
	return nil
}

func (r *run) setEngine(ctx context.Context) (err error) {
	if r.engine, err = docker.NewClientWithOpts(docker.FromEnv, docker.WithAPIVersionNegotiation()); err != nil {
		return err
	}
	r.closers = append(r.closers, r.engine.Close)
	tag := "unwind-crash:" + filepath.Base(r.dir)
	if r.image, err = demoimage.Build(ctx, r.engine, tag); err != nil {
		return err
	}
	r.closers = append(r.closers, r.removeImage)
	socket := filepath.Join(r.dir, "engine.sock")
	if r.wire, err = newWire("unix", socket, r.engine.Dialer()); err != nil {
		return err
	}
	r.closers = append(r.closers, func() error { r.wire.close(); return nil })
	layers := os.Geteuid() == 0
	if !layers {
		fmt.Fprintln(r.Log, "no checkpoints in layers: they need root")
	}
	for i, m := range r.fleet.members {
		settings := &container.Settings{Engine: "unix://" + socket, Layers: container.LayersNever}
		if layers && keepingOf(i) == inLayers {
			settings.Layers = container.LayersRequire
		}
		m.Config = m.With(settings)
		r.closers = append(r.closers, func() error { return r.removeLayers(m) })
	}
	return nil
}

// removeLayers removes what a host's sidecars have on the engine.
func (r *run) removeLayers(m *member) error {
	home, err := container.Home(m.State)
	if err != nil {
		return err
	}
	return sidecar.Remove(context.Background(), r.engine, home)
}

// killSidecars ends what makes the layers of a host's containers.
func (r *run) killSidecars(ctx context.Context, m *member) error {
	home, err := container.Home(m.State)
	if err != nil {
		return err
	}
	all, err := r.engine.ContainerList(ctx,
		dockercontainer.ListOptions{Filters: filters.NewArgs(filters.Arg("label", sidecar.Label+"="+home))})
	for _, c := range all {
		if r.engine.ContainerKill(ctx, c.ID, "KILL") == nil { // else it has ended by itself
			m.kills.Add(1)
		}
	}
	return err
}

func (r *run) setTerraform(ctx context.Context) error {
	program, err := exec.LookPath("terraform")
	if err != nil {
		return err
	}
	for _, m := range r.fleet.members {
		m.Config = m.With(&terraform.Settings{
			Roots: []string{m.infra()}, Binary: program,
			Environment: []string{orderVariable}, // the front and the supervisor break by it
		})
		if err := os.MkdirAll(m.infra(), 0o700); err != nil {
			return err
		}
	}
	return r.applyPrior(ctx, program)
}

// playTasks runs tasks concurrently.
func (r *run) playTasks(ctx context.Context, began time.Time) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	more := func() (plan, bool) {
		i := int(next.Add(1)) - 1
		switch {
		case ctx.Err() != nil, r.plans == nil && time.Since(began) > r.Within:
		case r.plans != nil:
			if i < len(r.plans) {
				return r.plans[i], true
			}
		case r.killed() < r.Kills:
			if r.Environments {
				return drawSite(r.Seed, i, r.Hosts, r.Worlds), true
			}
			return draw(r.Seed, i, r.Hosts, r.Worlds), true
		}
		return plan{}, false
	}
	var all sync.WaitGroup
	for range r.Side {
		all.Go(func() {
			for p, ok := more(); ok; p, ok = more() {
				r.truce.wait(ctx)
				play := r.drive
				if p.Site != nil {
					play = r.driveSite
				}
				if err := play(ctx, p); err != nil {
					stop(fmt.Errorf("task %s: %w", p.ID, err))
				}
			}
		})
	}
	go func() {
		select {
		case <-ctx.Done():
		case err := <-r.fleet.failed:
			stop(err)
		}
	}()
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// killed is how many processes were killed so far.
func (r *run) killed() int {
	n := int(r.kills.Load())
	for _, m := range r.fleet.members {
		_, supervisors := m.firedAt()
		n += supervisors
	}
	return n
}

// close ends the workers and checks what shows only when nothing runs any more.
func (r *run) close() error {
	r.fleet.stop()
	v := verdict{}
	for _, m := range r.fleet.members {
		left, err := litter(m.files())
		if err != nil {
			return err
		}
		v.Orphaned = append(v.Orphaned, left...)
	}
	v.Orphaned = append(v.Orphaned, r.processes()...)
	for _, d := range r.databases {
		left, err := d.lingering(context.Background())
		if err != nil {
			return err
		}
		v.Orphaned = append(v.Orphaned, left...)
	}
	if r.emulator != nil {
		if c := r.emulator.Counters(); c.Charged-c.Refunded > r.moved {
			v.Doubled = append(v.Doubled,
				fmt.Sprintf("Stripe has taken %d more than the committed tasks say", c.Charged-c.Refunded-r.moved))
		} else if c.Charged-c.Refunded < r.moved {
			v.Lost = append(v.Lost,
				fmt.Sprintf("Stripe has taken %d less than the committed tasks say", r.moved-c.Charged+c.Refunded))
		}
	}
	r.note("the whole run", v)
	labels := map[string]bool{}
	for _, m := range r.fleet.members {
		at, _ := m.firedAt()
		for _, l := range at {
			labels[l] = true
		}
	}
	all := targets(r.Worlds)
	var unbroken []string
	for _, t := range all {
		if !labels[t.Label] {
			unbroken = append(unbroken, t.Label)
		}
	}
	fmt.Fprintln(r.Log, "nothing broke at:", unbroken)
	f := &r.figures
	f.Kills, f.Seed, f.Worlds, f.Points, f.Of = r.killed(), r.Seed, r.Worlds, len(labels), len(all)
	return nil
}

// processes are those that are left over when all workers have ended. They may take a moment to
// end.
func (r *run) processes() (left []string) {
	hosts, _ := filepath.Glob(filepath.Join(r.dir, "host-*"))
	limit := time.After(stopLimit)
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		found := map[int]string{}
		for _, dir := range hosts {
			maps.Copy(found, processesOf(dir))
		}
		if len(found) == 0 {
			return nil
		}
		select {
		case <-t.C:
			continue
		case <-limit:
		}
		for _, pid := range slices.Sorted(maps.Keys(found)) {
			left = append(left, fmt.Sprintf("process %d is left over: %s", pid, found[pid]))
			_ = syscall.Kill(pid, syscall.SIGKILL) // it works below our own folder
		}
		return left
	}
}

// restartServer kills the Temporal server, and starts it again after a while.
func (r *run) restartServer(ctx context.Context, after time.Duration) error {
	r.serving.Lock()
	defer r.serving.Unlock()
	r.server.Kill()
	select {
	case <-ctx.Done():
	case <-time.After(after):
	}
	if err := r.server.Restart(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("the Temporal server does not start again: %w", err)
	}
	r.mu.Lock()
	r.figures.Servers++
	r.mu.Unlock()
	return nil
}

// note counts a defect.
func (r *run) note(what string, v verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &r.figures
	for _, c := range []struct {
		name  string
		count *int
		all   []string
	}{{"lost", &f.Lost, v.Lost}, {"doubled", &f.Doubled, v.Doubled}, {"orphaned", &f.Orphaned, v.Orphaned}, {"blocked",
		&f.Blocked, v.Blocked}} {
		*c.count += len(c.all)
		for _, one := range c.all {
			fmt.Fprintf(r.Log, "!! %s: %s: %s\n", what, c.name, one)
		}
	}
}

// silent drops the log of the SDK: that the server goes away is intended.
type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}

var _ log.Logger = silent{}
