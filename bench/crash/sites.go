package crash

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	redis "github.com/redis/go-redis/v9"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/activities/redis/redistest"
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
	// Machine: a machine has its disk open while the unit runs, which it goes on to do while a
	// checkpoint is taken if it is Live. Such a site has no container.
	Machine, Live bool

	n        int
	id       string
	dir      string
	box      string // its container, with a volume of the same name; empty: none
	volume   string // where that is
	slot     int    // of the databases that no other site uses now; none: -1
	database string // of PostgreSQL; empty: none
	keys     int    // the number of its Redis database; none: 0
	ledger   string // the file of its SQLite database; empty: none
	disk     string // the image; empty: none

	// mu is held by who kills the machine, and by who looks at the parts or writes to the disk: never
	// at once.
	mu    sync.Mutex
	kills int // of the machine
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
	"sqlite.checkpoint:recorded", "sqlite.checkpoint:copied", "sqlite.checkpoint:applied",
	"sqlite.restore:locked", "sqlite.restore:copied", "sqlite.restore:captured", "sqlite.restore:recorded",
	"sqlite.restore:marked", "sqlite.restore:committed", "sqlite.restore:undo-begun", "sqlite.restore:undo-fenced",
	"sqlite.restore:undo-locked", "sqlite.restore:undo-committed", "sqlite.restore:undone",
	"redis.checkpoint:recorded", "redis.checkpoint:staged", "redis.checkpoint:kept", "redis.checkpoint:applied",
	"redis.restore:recorded", "redis.restore:captured", "redis.restore:exchanged", "redis.restore:applied",
	"redis.restore:undo-begun", "redis.restore:fenced", "redis.restore:compared", "redis.restore:restored",
	"redis.restore:undone",
	"disk.checkpoint:recorded", "disk.checkpoint:kept", "disk.checkpoint:applied", "disk.checkpoint:undo-begun",
	"disk.checkpoint:undo-fenced", "disk.checkpoint:undo-settled", "disk.checkpoint:undone",
	"disk.restore:captured", "disk.restore:recorded", "disk.restore:put-back", "disk.restore:left",
	"disk.restore:applied", "disk.restore:undo-begun", "disk.restore:undo-fenced", "disk.restore:undo-settled",
	"disk.restore:undone",
}

func siteID(seed uint64, n int) string { return fmt.Sprintf("site-%d-%d", seed, n) }

// vetoOf is a file: while it is there, the unit of a site is not healthy with what the site has had
// at first.
func vetoOf(m *member, id string) string { return filepath.Join(m.data(), id+".veto") }

// drawSite draws environment i.
func drawSite(seed uint64, i, hosts int, worlds []string) plan {
	r := rand.New(rand.NewPCG(seed, uint64(3_000_000+i))) //nolint:gosec // it has to be reproducible
	s := &site{Host: r.IntN(hosts), n: i, id: siteID(seed, i)}
	if slices.Contains(worlds, "disk") && hasMachines() {
		s.Machine, s.Live = r.IntN(2) == 0, r.IntN(3) > 0
	}
	for range 3 + r.IntN(4) {
		s.Ops = append(s.Ops, siteOp{Back: r.IntN(3) > 0, Veto: r.IntN(4) == 0, To: r.IntN(10)})
	}
	p := plan{ID: s.id, Site: s}
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
	if slices.Contains(worlds, "sqlite") || slices.Contains(worlds, "disk") {
		chance(3, fault{Kind: killCalls})
	}
	if s.Machine {
		for range 1 + r.IntN(2) {
			chance(1, fault{Kind: killMachine, Site: s})
		}
	}
	if slices.Contains(worlds, "postgres") {
		chance(3, fault{Kind: killDatabase, World: "postgres"})
		chance(6, fault{Kind: stallDatabase, World: "postgres"})
		chance(6, fault{Kind: dropDatabase, World: "postgres"})
	}
	if slices.Contains(worlds, "redis") {
		chance(4, fault{Kind: killDatabase, World: "redis"})
		chance(6, fault{Kind: dropDatabase, World: "redis"})
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
			name := siteDatabase(n)
			at := strings.Replace(string(dsn), "dbname="+appDatabase, "dbname="+name, 1)
			if err := os.WriteFile(filepath.Join(r.dir, name), []byte(at), 0o600); err != nil {
				return err
			}
			databases[name] = postgres.DatabaseSettings{DSN: activities.OwnSecret(strings.ToUpper(name))}
			for _, m := range r.fleet.members {
				m.setSecret(strings.ToUpper(name), filepath.Join(r.dir, name))
			}
		}
	}
	for n := range r.Side {
		r.siteDatabases = append(r.siteDatabases, n)
	}
	if hasMachines() && slices.Contains(r.Worlds, "disk") {
		r.setMachines()
	}
	for _, m := range r.fleet.members {
		settings, named, engine := &folder.Settings{Roots: []string{m.files()}}, map[string]unit.Unit{}, ""
		if r.hasSiteContainers() {
			engine = "unix://" + filepath.Join(r.dir, "engine.sock")
			settings.Engine = engine
		}
		for n := range manyUnits {
			u, id := m.unit(unitName(int64(n))), siteID(r.Seed, n)
			switch {
			case drawSite(r.Seed, n, r.Hosts, r.Worlds).Site.Machine:
				u = m.machineUnit(id)
			case engine != "":
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

// siteDatabase is the name of a database for sites, in the config and in PostgreSQL.
func siteDatabase(n int) string { return fmt.Sprintf("site_%d", n) }

// takeDatabase takes the databases, one of each server, that no other site uses now; -1 if there are
// none.
func (r *run) takeDatabase() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.siteDatabases) == 0 {
		return -1
	}
	n := r.siteDatabases[0]
	r.siteDatabases = r.siteDatabases[1:]
	return n
}

func (r *run) giveDatabase(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.siteDatabases = append(r.siteDatabases, n)
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
	if s.Machine && s.Live {
		d.Quiesce = environment.LeaveUnit
	}
	if _, err := s.git(ctx, "init", "-q"); err != nil {
		return d, err
	}
	s.slot = r.takeDatabase()
	switch {
	case s.Machine: // which is started by the first change
	case r.hasSiteContainers():
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
	default:
		if err := os.WriteFile(filepath.Join(m.units(), d.Unit), []byte("runs\n"), 0o600); err != nil {
			return d, err
		}
	}
	if slices.Contains(r.Worlds, "disk") {
		if err := s.setUpDisk(ctx, r); err != nil {
			return d, err
		}
		d.Parts["root"] = environment.Part{Disk: s.disk}
	}
	if s.slot >= 0 && slices.Contains(r.Worlds, "redis") {
		s.keys = siteKeys(s.slot)
		d.Parts["keys"] = environment.Part{Redis: siteDatabase(s.slot)}
	}
	if s.slot >= 0 && slices.Contains(r.Worlds, "postgres") {
		s.database = siteDatabase(s.slot)
		if err := r.postgres.run(ctx, r.postgres.Admin("postgres"),
			"CREATE DATABASE "+s.database+" OWNER "+postgrestest.Role); err != nil {
			return d, err
		}
		if err := r.postgres.run(ctx, r.postgres.DSN(s.database), "CREATE TABLE row (n int PRIMARY KEY)"); err != nil {
			return d, err
		}
		d.Parts["rows"] = environment.Part{Postgres: s.database}
	}
	if slices.Contains(r.Worlds, "sqlite") {
		s.ledger = filepath.Join(m.data(), id+".db")
		mode := []string{"DELETE", "WAL"}[s.n%2]
		if _, err := runSQLite(ctx, s.ledger,
			"PRAGMA journal_mode = "+mode+"; CREATE TABLE row (n INTEGER PRIMARY KEY);"); err != nil {
			return d, err
		}
		d.Parts["ledger"] = environment.Part{SQLite: s.ledger}
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
	if s.disk != "" {
		if err := s.changeDisk(ctx, r, n); err != nil {
			return err
		}
	}
	rows := fmt.Sprintf("DELETE FROM row WHERE n < %d; INSERT INTO row VALUES (%d), (%d);", n*10, n*10, n*10+1)
	if s.ledger != "" {
		if _, err := runSQLite(ctx, s.ledger, rows); err != nil {
			return err
		}
	}
	if s.database != "" {
		if err := r.postgres.run(ctx, r.postgres.DSN(s.database), rows); err != nil {
			return err
		}
	}
	if s.keys > 0 {
		return r.redis.askedIn(ctx, s.keys, func(c *redis.Client) error {
			_, err := c.TxPipelined(ctx, func(tx redis.Pipeliner) error {
				for _, each := range underPrefix(fmt.Sprint(n), fmt.Sprintf(siteChange, n-1)) {
					tx.Do(ctx, each...)
				}
				return nil
			})
			return err
		})
	}
	return nil
}

// siteChange is what a change does to the keys of a site, however often it runs: $P stands for its
// number, and %[1]d for that of the one before.
const siteChange = `SET same $P
SADD all $P
HSET $P:hash a 1 b $P
SET $P:brief x PXAT 4102444800000
ZADD rank $P m$P
DEL %[1]d:hash %[1]d:brief`

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
	switch m := r.fleet.members[s.Host]; {
	case s.Machine:
		add("unit", len(m.those(s.machineName())) > 0, nil)
	case s.box == "":
		add("unit", exists(filepath.Join(m.units(), unitName(int64(s.n)))), nil)
	default:
		data, failed := found.Files("", s.volume)
		add("data", data, failed)
		web, failed := found.Container(ctx, s.box)
		add("web", web, failed)
		c, failed := r.engine.ContainerInspect(ctx, s.box)
		add("unit", failed == nil && c.State.Running, failed)
	}
	if s.disk != "" {
		disk, failed := s.lookAtDisk(ctx, r)
		add("root", disk, failed)
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
	if s.ledger != "" {
		dump, failed := dumpSQLite(ctx, s.ledger)
		content, _ := splitMarks(dump)
		add("ledger", content, failed)
	}
	if s.keys > 0 {
		var keys string
		failed := r.redis.askedIn(ctx, s.keys, func(c *redis.Client) (err error) {
			keys, err = redistest.Dump(ctx, c)
			return err
		})
		add("keys", keys, failed)
	}
	return is, err
}

// clear removes what is expensive to keep.
func (s *site) clear(ctx context.Context, r *run) (err error) {
	if s.box != "" {
		err = errors.Join(r.engine.ContainerRemove(ctx, s.box, container.RemoveOptions{Force: true}),
			r.engine.VolumeRemove(ctx, s.box, true))
	}
	if s.Machine {
		err = errors.Join(err, r.fleet.members[s.Host].endThose(ctx, s.machineName()))
	}
	if s.database != "" {
		err = errors.Join(err, r.postgres.run(ctx, r.postgres.Admin("postgres"),
			"DROP DATABASE "+s.database+" WITH (FORCE)"))
	}
	if s.keys > 0 {
		err = errors.Join(err, r.redis.askedIn(ctx, s.keys, func(c *redis.Client) error { return c.FlushDB(ctx).Err() }))
	}
	if s.slot >= 0 {
		r.giveDatabase(s.slot)
	}
	return err
}
