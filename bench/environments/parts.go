package environments

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"github.com/jackc/pgx/v5"

	"github.com/seed-62bf7108/unwind/activities/docker/demoimage"
	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
)

// What the parts hold.
const (
	boxFiles    = 20_000
	boxFile     = 10 << 10
	volumeFiles = 100
	volumeFile  = 1 << 20
	codeFiles   = 5_000
	codeFile    = 4 << 10
	rowCount    = 400_000 // about 100 MB
)

// parts are what the environment consists of.
type parts struct {
	dir      string
	host     *enginetest.Engine
	engine   *client.Client
	database *postgrestest.Server
	image    string
	volume   string // where it is
	closers  []func()
}

const (
	boxName      = "bench-app"
	databaseName = "bench"
)

func (p *parts) code() string { return filepath.Join(p.dir, "code") }

func (p *parts) close() {
	for _, each := range slices.Backward(p.closers) {
		each()
	}
}

// newParts makes all of them.
func newParts(ctx context.Context) (p *parts, err error) {
	p = &parts{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.dir, err = os.MkdirTemp("", "unwind-bench-"); err != nil {
		return p, err
	}
	p.closers = append(p.closers, func() { _ = os.RemoveAll(p.dir) })
	if p.host, err = enginetest.Open(enginetest.EndsAll); err != nil {
		return p, err
	}
	p.closers = append(p.closers, func() { _ = p.host.Close() })
	p.engine, err = client.NewClientWithOpts(client.WithHost(p.host.Host), client.WithAPIVersionNegotiation())
	if err != nil {
		return p, err
	}
	if p.image, err = demoimage.Build(ctx, p.engine, "bench:image"); err != nil {
		return p, err
	}
	v, err := p.engine.VolumeCreate(ctx, volume.CreateOptions{Name: boxName})
	if err != nil {
		return p, err
	}
	p.volume = v.Mountpoint
	if err := p.runBox(ctx, boxName, p.image); err != nil {
		return p, err
	}
	if p.database, err = postgrestest.Start("-c", "autovacuum=off", "-c", "max_wal_size=4GB"); err != nil {
		return p, err
	}
	p.closers = append(p.closers, p.database.Stop)
	return p, p.fill(ctx)
}

// runBox creates and starts a container with a volume of the same name.
func (p *parts) runBox(ctx context.Context, name, image string) error {
	_, err := p.engine.ContainerCreate(ctx, &container.Config{Image: image, StopTimeout: new(int)},
		&container.HostConfig{NetworkMode: network.NetworkNone,
			Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: name, Target: "/data"}}}, nil, nil, name)
	if err != nil {
		return err
	}
	return p.engine.ContainerStart(ctx, name, container.StartOptions{})
}

// inBox is the path on the host of a folder in the container, while that runs.
func (p *parts) inBox(ctx context.Context, at string) (string, error) {
	c, err := p.engine.ContainerInspect(ctx, boxName)
	return filepath.Join(fmt.Sprintf("/proc/%d/root", c.State.Pid), at), err
}

func (p *parts) fill(ctx context.Context) error {
	box, err := p.inBox(ctx, "/srv")
	if err != nil {
		return err
	}
	for _, each := range []struct {
		dir         string
		count, size int
	}{{box, boxFiles, boxFile}, {p.volume, volumeFiles, volumeFile}, {p.code(), codeFiles, codeFile}} {
		if err := writeFiles(each.dir, 0, each.count, each.size); err != nil {
			return err
		}
	}
	if err := p.git(ctx, "init", "-q"); err != nil {
		return err
	}
	if err := p.git(ctx, "add", "-A"); err != nil {
		return err
	}
	if err := p.git(ctx, "commit", "-qm", "one"); err != nil {
		return err
	}
	admin := p.database.Admin("postgres")
	if err := runSQL(ctx, admin, "ALTER ROLE "+postgrestest.Role+" CREATEDB",
		"CREATE DATABASE "+databaseName+" OWNER "+postgrestest.Role); err != nil {
		return err
	}
	return runSQL(ctx, p.database.DSN(databaseName), fmt.Sprintf(
		"CREATE TABLE item AS SELECT g AS id, repeat(md5(g::text), 6) AS note FROM generate_series(1, %d) g", rowCount),
		"ALTER TABLE item ADD PRIMARY KEY (id)")
}

// change changes one part in a hundred of everything.
func (p *parts) change(ctx context.Context, round int) error {
	box, err := p.inBox(ctx, "/srv")
	if err != nil {
		return err
	}
	for _, each := range []struct {
		dir         string
		count, size int
	}{{box, boxFiles, boxFile}, {p.volume, volumeFiles, volumeFile}, {p.code(), codeFiles, codeFile}} {
		part := each.count / 100
		if err := writeFiles(each.dir, round*part%each.count, part, each.size); err != nil {
			return err
		}
	}
	return runSQL(ctx, p.database.DSN(databaseName),
		fmt.Sprintf("UPDATE item SET note = note || '.' WHERE id %% 100 = %d", round%100))
}

// writeFiles writes files of bytes that nothing compresses, a hundred to a folder.
func writeFiles(dir string, from, count, size int) error {
	content := make([]byte, size)
	for i := from; i < from+count; i++ {
		_, _ = rand.Read(content) // it never fails
		name := filepath.Join(dir, fmt.Sprint(i/100), fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (p *parts) git(ctx context.Context, args ...string) error {
	return run(ctx, "git", append([]string{"-C", p.code(), "-c", "user.name=a", "-c", "user.email=a@example.com"},
		args...)...)
}

func run(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, out)
	}
	return nil
}

func runSQL(ctx context.Context, dsn string, statements ...string) error {
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	for _, each := range statements {
		if _, err := c.Exec(ctx, each); err != nil {
			return fmt.Errorf("%s: %w", each, err)
		}
	}
	return nil
}

// timed is how long something takes.
func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}
