package crash

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/jackc/pgx/v5"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/activities/unit"
	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// site is an environment with what is done to it: checkpoints and rollbacks, in turns with changes.
// All parts must be as one of the two says after each of them, whatever breaks meanwhile.
type site struct {
	Host int
	// Ops are what is done after the first checkpoint: each is a change of all parts, or a rollback to
	// one of the checkpoints that there are then.
	Ops []siteOp

	n        int
	dir      string
	box      string // its container, with a volume of the same name; empty: none
	volume   string // where that is
	database string // empty: none
}

// siteOp is a change with a checkpoint after it, or a rollback to the checkpoint with that number of
// those that there are. With Veto the rollback is to the first one, and the unit is not healthy then.
type siteOp struct {
	Back, Veto bool
	To         int
}

// sitePoints are what a rollback or a checkpoint of an environment comes to.
var sitePoints = []string{
	"folder.checkpoint:recorded", "folder.checkpoint:applied", "folder.checkpoint:closed", "folder.checkpoint:dropped",
	"folder.restore:recorded", "folder.restore:put-back", "folder.restore:applied", "folder.restore:closed",
	"folder.restore:fenced", "folder.restore:undone", "snapshot:ticket", "snapshot:kept", "snapshot:taken-out",
	"snapshot:put-in", "snapshot:paths-restored", "unit.stop:recorded", "unit.stop:alone", "unit.stop:switched",
	"unit.stop:applied", "unit.start:recorded", "unit.start:alone", "unit.start:switched", "unit.start:applied",
	"postgres.checkpoint:recorded", "postgres.checkpoint:copying", "postgres.checkpoint:copied",
	"postgres.checkpoint:applied", "postgres.restore:recorded", "postgres.restore:made", "postgres.restore:planned",
	"postgres.restore:exchanged", "postgres.restore:applied",
}

func siteID(seed uint64, n int) string { return fmt.Sprintf("site-%d-%d", seed, n) }

// vetoOf is a file: while it is there, the unit of a site is not healthy with what the site has had
// at first.
func vetoOf(m *member, id string) string { return filepath.Join(m.data(), id+".veto") }

// drawSite draws environment i.
func drawSite(seed uint64, i, hosts int, worlds []string) plan {
	r := rand.New(rand.NewPCG(seed, uint64(3_000_000+i))) //nolint:gosec // it has to be reproducible
	s := &site{Host: r.IntN(hosts), n: i}
	for range 3 + r.IntN(4) {
		s.Ops = append(s.Ops, siteOp{Back: r.IntN(3) > 0, Veto: r.IntN(4) == 0, To: r.IntN(10)})
	}
	p := plan{ID: siteID(seed, i), Site: s}
	moment := func() time.Duration { return between(r, 100*time.Millisecond, 30*time.Second) }
	for range 2 + r.IntN(3) {
		f := fault{Kind: killAt, Host: s.Host, At: sitePoints[r.IntN(len(sitePoints))], Nth: 1 + r.IntN(3)}
		if r.IntN(6) == 0 {
			f.Kind = freezeAt
		}
		p.Faults = append(p.Faults, f)
	}
	for range 2 + r.IntN(3) {
		p.Faults = append(p.Faults, fault{Kind: killWorker, Host: s.Host, After: moment()})
	}
	chance := func(one int, f fault) {
		f.After, f.For = moment(), between(r, 300*time.Millisecond, 3*time.Second)
		if f.Host = s.Host; r.IntN(one) == 0 {
			p.Faults = append(p.Faults, f)
		}
	}
	chance(6, fault{Kind: killAll})
	chance(8, fault{Kind: killServer})
	chance(6, fault{Kind: cutOff})
	if slices.Contains(worlds, "container") {
		chance(4, fault{Kind: stallEngine})
		chance(4, fault{Kind: dropEngine})
	}
	if slices.Contains(worlds, "postgres") {
		chance(3, fault{Kind: killDatabase, World: "postgres"})
		chance(6, fault{Kind: stallDatabase, World: "postgres"})
		chance(6, fault{Kind: dropDatabase, World: "postgres"})
	}
	return p
}

func (r *run) hasSiteContainers() bool {
	return slices.Contains(r.Worlds, "container") && os.Geteuid() == 0
}

func (r *run) boxOf(n int) string { return fmt.Sprintf("%s-site-%d", filepath.Base(r.dir), n) }

// setSites sets up what environments need, once their worlds are.
func (r *run) setSites(ctx context.Context) error {
	databases := map[string]postgres.DatabaseSettings{}
	if slices.Contains(r.Worlds, "postgres") {
		if err := r.postgres.run(ctx, r.postgres.Admin("postgres"),
			"ALTER ROLE "+postgrestest.Role+" CREATEDB"); err != nil {
			return err
		}
		dsn, err := os.ReadFile(filepath.Join(r.dir, "dsn"))
		if err != nil {
			return err
		}
		for n := range r.Side {
			name := fmt.Sprintf("site_%d", n)
			at := strings.Replace(string(dsn), "dbname="+appDatabase, "dbname="+name, 1)
			if at == string(dsn) {
				at = strings.Replace(string(dsn), "/"+appDatabase, "/"+name, 1)
			}
			if err := os.WriteFile(filepath.Join(r.dir, name), []byte(at), 0o600); err != nil {
				return err
			}
			databases[name] = postgres.DatabaseSettings{DSN: activities.OwnSecret(strings.ToUpper(name))}
			for _, m := range r.fleet.members {
				m.setSecret(strings.ToUpper(name), filepath.Join(r.dir, name))
			}
			r.siteDatabases = append(r.siteDatabases, name)
		}
	}
	for _, m := range r.fleet.members {
		settings, named, engine := &folder.Settings{Roots: []string{m.files()}}, map[string]unit.Unit{}, ""
		if r.hasSiteContainers() {
			engine = "unix://" + filepath.Join(r.dir, "engine.sock")
			settings.Engine = engine
		}
		for n := range manyUnits {
			flag, id := filepath.Join(m.units(), unitName(int64(n))), siteID(r.Seed, n)
			u := unit.Unit{Start: []string{"sh", "-ec", "echo runs >" + flag}, Stop: []string{"rm", "-f", flag},
				Running: []string{"test", "-e", flag}}
			if engine != "" {
				u = unit.Unit{Container: r.boxOf(n)}
			}
			u.Health.Command = []string{"sh", "-c", fmt.Sprintf("! test -e %s || ! grep -qx 'change 0' %s",
				vetoOf(m, id), filepath.Join(m.files(), id, "uploads", "same"))}
			named[unitName(int64(n))] = u
		}
		m.Config = m.With(settings).With(&unit.Settings{Units: named, Engine: engine})
		if len(databases) > 0 {
			m.Config = m.With(&postgres.Settings{Databases: databases})
		}
	}
	return nil
}

// takeDatabase takes a database that no other site uses now.
func (r *run) takeDatabase() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.siteDatabases) == 0 {
		return ""
	}
	name := r.siteDatabases[0]
	r.siteDatabases = r.siteDatabases[1:]
	return name
}

func (r *run) giveDatabase(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.siteDatabases = append(r.siteDatabases, name)
}

// setUp makes the parts, and the document.
func (s *site) setUp(ctx context.Context, r *run, id string) (d environment.Document, err error) {
	m := r.fleet.members[s.Host]
	s.dir = filepath.Join(m.files(), id)
	for _, dir := range []string{filepath.Join(s.dir, "uploads", "deep"), filepath.Join(s.dir, "code"), m.units()} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return d, err
		}
	}
	d = environment.Document{Name: id, On: m.Host, Unit: unitName(int64(s.n)), Healthy: "1s",
		Parts: map[string]environment.Part{
			"code": {Git: filepath.Join(s.dir, "code")}, "uploads": {Folder: filepath.Join(s.dir, "uploads")}}}
	if _, err := s.git(ctx, "init", "-q"); err != nil {
		return d, err
	}
	if r.hasSiteContainers() {
		s.box = r.boxOf(s.n)
		v, err := r.engine.VolumeCreate(ctx, volume.CreateOptions{Name: s.box})
		if err != nil {
			return d, err
		}
		s.volume = v.Mountpoint
		settings := &container.HostConfig{NetworkMode: network.NetworkNone,
			Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: s.box, Target: volumeAt}}}
		if _, err := r.engine.ContainerCreate(ctx, &container.Config{Image: r.image, StopTimeout: new(int),
			Labels: map[string]string{markLabel: s.box}}, settings, nil, nil, s.box); err != nil {
			return d, err
		}
		if err := r.engine.ContainerStart(ctx, s.box, container.StartOptions{}); err != nil {
			return d, err
		}
		d.Parts["web"], d.Parts["data"] = environment.Part{Container: s.box}, environment.Part{Volume: s.box}
	} else if err := os.WriteFile(filepath.Join(m.units(), d.Unit), []byte("runs\n"), 0o600); err != nil {
		return d, err
	}
	if s.database = r.takeDatabase(); s.database != "" {
		if err := r.postgres.run(ctx, r.postgres.Admin("postgres"),
			"CREATE DATABASE "+s.database+" OWNER "+postgrestest.Role); err != nil {
			return d, err
		}
		if err := r.postgres.run(ctx, r.postgres.DSN(s.database), "CREATE TABLE row (n int PRIMARY KEY)"); err != nil {
			return d, err
		}
		d.Parts["rows"] = environment.Part{Postgres: s.database}
	}
	return d, s.change(ctx, r, 0)
}

func (s *site) git(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"},
		args...)...)
	c.Dir = filepath.Join(s.dir, "code")
	out, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return string(out), err
}

// change changes all parts, each time in another way.
func (s *site) change(ctx context.Context, r *run, n int) error {
	text := fmt.Appendf(nil, "change %d\n", n)
	files := []string{
		filepath.Join(s.dir, "uploads", "same"), filepath.Join(s.dir, "uploads", "deep", fmt.Sprint(n)),
		filepath.Join(s.dir, "code", "page"), filepath.Join(s.dir, "code", fmt.Sprint("untracked-", n)),
	}
	if s.box != "" {
		files = append(files, filepath.Join(s.volume, "same"), filepath.Join(s.volume, fmt.Sprint(n)))
	}
	for _, file := range files {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"add", "page"}, {"commit", "-qm", fmt.Sprint("change ", n)}} {
		if _, err := s.git(ctx, args...); err != nil {
			return err
		}
	}
	if s.box != "" {
		if err := r.engine.CopyToContainer(ctx, s.box, "/srv", tarOf(text, "same", fmt.Sprint(n)),
			container.CopyToContainerOptions{}); err != nil {
			return err
		}
	}
	if s.database != "" {
		return r.postgres.run(ctx, r.postgres.DSN(s.database), fmt.Sprintf(
			"DELETE FROM row WHERE n < %d; INSERT INTO row VALUES (%d), (%d)", n*10, n*10, n*10+1))
	}
	return nil
}

func tarOf(text []byte, names ...string) *bytes.Buffer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text)), // it is memory
			ModTime: time.Unix(1_700_000_000, 0)})
		_, _ = w.Write(text)
	}
	_ = w.Close()
	return &b
}

// look describes all parts, each by its name.
func (s *site) look(ctx context.Context, r *run) (is map[string]string, err error) {
	is = map[string]string{}
	add := func(name string, what any, failed error) {
		raw, _ := json.Marshal(what) // plain data
		is[name], err = string(raw), errors.Join(err, failed)
	}
	uploads, failed := found.Files("", filepath.Join(s.dir, "uploads"))
	add("uploads", uploads, failed)
	code, failed := found.Files("", filepath.Join(s.dir, "code"), ".git")
	add("code", code, failed)
	for _, args := range [][]string{{"log", "--format=%H"}, {"status", "--porcelain"}, {"fsck", "--no-dangling"}} {
		said, failed := s.git(ctx, args...)
		add("git "+args[0], said, failed)
	}
	if s.box != "" {
		data, failed := found.Files("", s.volume)
		add("data", data, failed)
		web, failed := found.Container(ctx, s.box)
		add("web", web, failed)
		c, failed := r.engine.ContainerInspect(ctx, s.box)
		add("unit", failed == nil && c.State.Running, failed)
	} else {
		add("unit", exists(filepath.Join(r.fleet.members[s.Host].units(), unitName(int64(s.n)))), nil)
	}
	if s.database != "" {
		var rows []int
		failed := r.postgres.connected(ctx, r.postgres.DSN(s.database), func(c *pgx.Conn) error {
			got, err := c.Query(ctx, "SELECT n FROM row ORDER BY n")
			if err != nil {
				return err
			}
			rows, err = pgx.CollectRows(got, pgx.RowTo[int])
			return err
		})
		add("rows", rows, failed)
	}
	return is, err
}

// clear removes what is expensive to keep.
func (s *site) clear(ctx context.Context, r *run) (err error) {
	if s.box != "" {
		err = errors.Join(r.engine.ContainerRemove(ctx, s.box, container.RemoveOptions{Force: true}),
			r.engine.VolumeRemove(ctx, s.box, true))
	}
	if s.database != "" {
		err = errors.Join(err, r.postgres.run(ctx, r.postgres.Admin("postgres"),
			"DROP DATABASE "+s.database+" WITH (FORCE)"))
		r.giveDatabase(s.database)
	}
	return err
}

// driveSite plays an environment with its faults. An error is one of the matrix itself.
func (r *run) driveSite(ctx context.Context, p plan) (err error) {
	began, s := time.Now(), p.Site
	defer func() { err = errors.Join(err, s.clear(context.WithoutCancel(ctx), r)) }()
	d, err := s.setUp(ctx, r, p.ID)
	if err != nil {
		return fmt.Errorf("setting up %s: %w", p.ID, err)
	}
	if err := r.armFaults(p); err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	failed := make(chan error, len(p.Faults))
	var injected sync.WaitGroup
	r.inject(inner, p, &injected, failed)
	k := &siteKeeper{run: r, plan: p, states: map[string]map[string]string{}}
	v, err := k.play(ctx, d)
	cancel()
	injected.Wait()
	close(failed)
	for f := range failed {
		err = errors.Join(err, f)
	}
	for _, m := range r.fleet.members {
		err = errors.Join(err, disarm(m.armed(), p.ID))
	}
	r.note(p.ID, v)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.figures.Tasks++
	r.figures.Committed += k.done
	r.figures.Unwound += k.failed
	r.figures.Frozen += k.frozen
	fmt.Fprintf(r.Log, "%-16s %5.1fs done %d, undone %d, kills so far %d\n", p.ID, time.Since(began).Seconds(), k.done,
		k.failed, r.killed())
	if !v.clean() {
		fmt.Fprintf(r.Log, "   ops %v\n   faults %v\n", s.Ops, p.Faults)
	}
	return err
}

// siteKeeper follows one environment.
type siteKeeper struct {
	*run
	plan   plan
	order  []string                     // the checkpoints that there are, the oldest first
	states map[string]map[string]string // what each has of the parts
	now    map[string]string            // what the parts are
	first  string                       // what uploads was at first
	calls  int

	done, failed, frozen int
}

// play does what the site has, and ends with all removed.
func (k *siteKeeper) play(ctx context.Context, d environment.Document) (v verdict, err error) {
	s := k.plan.Site
	if k.now, err = s.look(ctx, k.run); err != nil {
		return v, err
	}
	k.first = k.now["uploads"]
	if v = k.make(ctx, d); !v.clean() {
		return v, nil
	}
	for n, op := range append([]siteOp{{}}, s.Ops...) {
		if n > 0 && !op.Back {
			if err := s.change(ctx, k.run, n); err != nil {
				return v, err
			}
			if k.now, err = s.look(ctx, k.run); err != nil {
				return v, err
			}
		}
		if n == 0 || !op.Back || len(k.order) == 0 {
			v, err = k.checkpoint(ctx, fmt.Sprintf("cp-%d", n))
		} else {
			v, err = k.rollBack(ctx, fmt.Sprintf("cp-%d", n), op)
		}
		if err != nil || !v.clean() {
			return v, err
		}
	}
	return k.remove(ctx, d)
}

// make starts the environment's workflow, however often the server goes away meanwhile.
func (k *siteKeeper) make(ctx context.Context, d environment.Document) (v verdict) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := k.client.ExecuteWorkflow(limited, client.StartWorkflowOptions{
			ID: environment.WorkflowID(d.Name), TaskQueue: queue, WorkflowTaskTimeout: 3 * time.Second,
			WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		}, environment.WorkflowType, environment.Start{Document: d})
		cancel()
		if err == nil {
			break
		}
		pause(ctx, again)
	}
	return k.judgeAnswer(k.ask(ctx, environment.UpdateApply, nil, d))
}

// errBlocked says that an environment does not answer.
var errBlocked = errors.New("blocked")

// ask asks for something and waits for the answer, however often the server goes away meanwhile.
// Its error is the environment's, or errBlocked.
func (k *siteKeeper) ask(ctx context.Context, update string, result any, argument ...any) error {
	k.calls++
	began, inPeace := time.Now(), false
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, 20*time.Second)
		handle, err := k.client.UpdateWorkflow(limited, client.UpdateWorkflowOptions{
			WorkflowID: environment.WorkflowID(k.plan.ID), UpdateName: update, UpdateID: fmt.Sprint("crash-", k.calls),
			Args: argument, WaitForStage: client.WorkflowUpdateStageAccepted,
		})
		if err == nil {
			err = handle.Get(limited, result)
		}
		cancel()
		if answer, ok := errors.AsType[*temporal.ApplicationError](err); ok || err == nil {
			if ok {
				return answer
			}
			return nil
		}
		if time.Since(began) > k.Patience {
			if inPeace {
				return fmt.Errorf("%w: %s is not answered within %s, nor in %[3]s of peace: %w", errBlocked, update, k.Patience,
					err)
			}
			defer k.truce.hold()()
			began, inPeace = time.Now(), true
		}
		pause(ctx, again)
	}
	return ctx.Err()
}

// judgeAnswer takes an error of what cannot fail.
func (k *siteKeeper) judgeAnswer(err error) (v verdict) {
	if err != nil {
		v.Blocked = []string{err.Error()}
	}
	return v
}

// settle lets what is frozen act, and counts an answer. An answer that is neither yes nor a failure
// which was undone is a defect.
func (k *siteKeeper) settle(ctx context.Context, err error) (done bool, v verdict) {
	for _, m := range k.fleet.members {
		n, stuck := m.thaw(k.plan.ID)
		if k.frozen += n; stuck > 0 {
			v.Blocked = append(v.Blocked, fmt.Sprintf("%s: %d workers that were woken did not finish", m.Host, stuck))
		}
	}
	k.fleet.calm(ctx)
	var answer *temporal.ApplicationError
	switch {
	case err == nil:
		k.done++
		return true, v
	case errors.As(err, &answer) && answer.Type() == environment.Failed:
		k.failed++
		fmt.Fprintf(k.Log, "%-16s %s\n", k.plan.ID, answer.Message())
	default:
		v.Blocked = append(v.Blocked, err.Error())
	}
	return false, v
}

func (k *siteKeeper) checkpoint(ctx context.Context, id string) (verdict, error) {
	var c environment.Checkpoint
	done, v := k.settle(ctx, k.ask(ctx, environment.UpdateCheckpoint, &c,
		environment.CheckpointRequest{ID: id, Trigger: environment.Manual}))
	if done {
		k.order, k.states[id] = append(k.order, id), k.now
	}
	w, err := k.compare(ctx, "checkpoint "+id, k.now)
	v.merge(w)
	return v, err
}

func (k *siteKeeper) rollBack(ctx context.Context, safety string, op siteOp) (verdict, error) {
	to, fails := k.order[op.To%len(k.order)], false
	if op.Veto && k.states[k.order[0]]["uploads"] == k.first && k.now["uploads"] != k.first {
		to, fails = k.order[0], true
		veto := vetoOf(k.fleet.members[k.plan.Site.Host], k.plan.ID)
		if err := os.WriteFile(veto, nil, 0o600); err != nil {
			return verdict{}, err
		}
		defer os.Remove(veto)
	}
	var back environment.RolledBack
	done, v := k.settle(ctx, k.ask(ctx, environment.UpdateRollback, &back,
		environment.RollbackRequest{To: to, Safety: safety}))
	want := k.now
	if done && fails {
		v.Lost = append(v.Lost, "a rollback to what is not healthy has succeeded")
	}
	if done {
		k.order, k.states[safety] = append(k.order, safety), k.now
		want = k.states[to]
	}
	k.now = want
	w, err := k.compare(ctx, "rollback to "+to, want)
	v.merge(w)
	return v, err
}

// compare looks whether the parts are as they are to be, and the list is whole.
func (k *siteKeeper) compare(ctx context.Context, what string, want map[string]string) (v verdict, err error) {
	is, err := k.plan.Site.look(ctx, k.run)
	if err != nil {
		return v, err
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if is[name] != want[name] {
			v.Lost = append(v.Lost, fmt.Sprintf("after %s %s is\n      %s\n   and not\n      %s", what, name, is[name],
				want[name]))
		}
	}
	beside := []string{k.plan.Site.dir}
	if k.plan.Site.volume != "" {
		beside = append(beside, filepath.Dir(k.plan.Site.volume))
	}
	for _, dir := range beside {
		left, err := filepath.Glob(filepath.Join(dir, ".unwind-*"))
		if err != nil {
			return v, err
		}
		v.Orphaned = append(v.Orphaned, left...)
	}
	return v, nil
}

// remove compares the list with what was answered, and removes the environment.
func (k *siteKeeper) remove(ctx context.Context, d environment.Document) (v verdict, err error) {
	var view environment.View
	err = insist(ctx, func() error {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		answer, err := k.client.QueryWorkflow(limited, environment.WorkflowID(d.Name), "", environment.QueryView)
		if err == nil {
			err = answer.Get(&view)
		}
		return err
	})
	if err != nil {
		return v, err
	}
	listed := map[string]bool{}
	for _, c := range view.Checkpoints {
		listed[c.ID] = true
	}
	for _, id := range k.order {
		if !listed[id] {
			v.Lost = append(v.Lost, "checkpoint "+id+" is not listed")
		}
		delete(listed, id)
	}
	for id := range listed {
		v.Orphaned = append(v.Orphaned, "checkpoint "+id+" is listed, though it was not taken")
	}
	v.merge(k.judgeAnswer(k.ask(ctx, environment.UpdateRemove, nil)))
	return v, nil
}
