package docs_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"
	etcdclient "go.etcd.io/etcd/client/v3"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/activities"
	world "github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
	"github.com/seed-62bf7108/unwind/activities/etcd"
	"github.com/seed-62bf7108/unwind/activities/etcd/etcdtest"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/redis/redistest"
	"github.com/seed-62bf7108/unwind/activities/stripe"
	"github.com/seed-62bf7108/unwind/activities/stripe/emulator"
	"github.com/seed-62bf7108/unwind/activities/terraform"
	"github.com/seed-62bf7108/unwind/activities/unit"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// place is the machine that the documentation speaks of. Its blocks run as they stand, but for
// these names:
//
//	/srv, /var/lib/unwind, /etc/unwind, /run/secrets   are below a folder of the test
//	containers app, build, mail and web, image web:2.0 have names that nothing else on the engine has
type place struct {
	*testing.T

	root   string
	names  *strings.Replacer
	client client.Client
	env    []string
	stripe string
	etcd   string
	runs   int
}

var (
	paths      = regexp.MustCompile(`/(srv|var/lib/unwind|etc/unwind|run/secrets)\b`)
	containers = []string{"app", "build", "mail", "web"}
)

// infra is a configuration like those that the documentation applies.
const infra = `
variable "customer" { default = "none" }
resource "terraform_data" "customer" { input = var.customer }
`

// shop is the database of docs/postgres.md: 28 accounts without a plan and 12 trials that have
// ended.
var shop = []string{
	"CREATE TABLE plan (id int PRIMARY KEY, name text)", "INSERT INTO plan VALUES (1, 'basic')",
	"CREATE TABLE account (id int PRIMARY KEY, plan int, email text)",
	"INSERT INTO account SELECT i, NULL, 'x@example.com' FROM generate_series(1, 28) i",
	"CREATE TABLE trial (id int PRIMARY KEY, ends timestamptz)",
	"INSERT INTO trial SELECT i, now() - interval '1 day' FROM generate_series(1, 12) i",
	"CREATE TABLE card (id int PRIMARY KEY)",
}

// newPlace makes the place, with all that the machine must have. Where a part is missing, the test
// is skipped.
func newPlace(t *testing.T) *place {
	t.Helper()
	testrun.NeedRoot(t, "snapshots of volumes")
	testrun.NeedShell(t)
	testrun.NeedProgram(t, "terraform", "install it: https://developer.hashicorp.com/terraform/install")
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	p := &place{T: t, root: root, client: servertest.Client(t)}
	database := postgrestest.Need(t)
	em, err := emulator.New(emulator.Options{}).Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, em.Close()) })
	p.stripe = em.URL
	p.write("srv/site/index.html", "<html>")
	p.write("srv/site/uploads/list.html", "<ul><li>a cat</li></ul>")
	p.write("srv/shop/README", "the shop")
	out, err := exec.CommandContext(t.Context(), "git", "init", "-q", filepath.Join(root, "srv", "shop")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	p.write("srv/infra/main.tf", infra)
	p.write("srv/machines/README", "disks of virtual machines")
	p.write("srv/app/data/README", "databases")
	p.write("etc/unwind/terraform.rc", "")
	declarations, err := os.ReadFile("../examples/mcp/filesystem.yaml")
	require.NoError(t, err)
	p.write("etc/unwind/filesystem.yaml", string(declarations))
	p.write("run/secrets/stripe", "sk_test_documentation")
	p.write("run/secrets/mail", "a token for mail")
	p.write("run/secrets/ops-url", "https://ops.example.com/unwind")
	p.write("run/secrets/ops-key", "a key of ours")
	p.write("run/secrets/slack", "https://hooks.slack.com/services/T/B/K")
	p.write("run/secrets/phone", "https://ntfy.sh/topic")
	p.write("run/secrets/cloud", "a key of the cloud")
	p.write("run/secrets/deploy", "a token to deploy")
	database.Exec(t, database.Admin("postgres"), "ALTER ROLE "+postgrestest.Role+" CREATEDB") // for a checkpoint
	p.write("run/secrets/shop", database.DSN(database.Database(t, shop...)))
	p.startCache()
	p.startSettings()
	p.startContainers()
	p.linkPrograms()
	return p
}

func (p *place) write(name, content string) {
	p.Helper()
	path := filepath.Join(p.root, name)
	require.NoError(p, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(p, os.WriteFile(path, []byte(content), 0o600))
}

// startCache starts the Redis server of docs/redis.md, with two sessions.
func (p *place) startCache() {
	p.Helper()
	server := redistest.Own(p.T)
	c := server.Client(0)
	defer c.Close()
	redistest.Run(p.T, c, "SET session:1 ann", "SET session:2 bob EX 100000", "SET card:1 4242")
	p.write("run/secrets/cache", server.URL(0))
}

// startSettings starts the etcd server of docs/etcd.md, with an owner whose lease lives.
func (p *place) startSettings() {
	p.Helper()
	server := etcdtest.Own(p.T)
	p.etcd = server.Endpoint()
	c := server.Client(p.T)
	lease, err := c.Grant(p.Context(), 100_000)
	require.NoError(p, err)
	_, err = c.Put(p.Context(), "/app/owner", "blue", etcdclient.WithLease(lease.ID))
	require.NoError(p, err)
	for _, key := range []string{"/app/limit", "/app/draft", "/app/cache/1", "/app/cache/2"} {
		_, err := c.Put(p.Context(), key, "10")
		require.NoError(p, err)
	}
	p.write("run/secrets/etcd", "secret")
}

// startContainers starts the containers that steps work in, with small stand-ins for the programs
// that they run there.
func (p *place) startContainers() {
	p.Helper()
	var pairs []string
	for _, name := range containers {
		box := containertest.Start(p, func(c *container.Config, _ *container.HostConfig, _ *network.NetworkingConfig) {
			if name == "app" {
				c.Volumes = map[string]struct{}{"/data": {}}
			}
		})
		box.Run(p, `mkdir -p /app
			for name in /app/migrate /bin/make /bin/git /bin/send-welcome /bin/nginx; do
				echo '#!/bin/sh' >$name; echo "echo $name >>/srv/ran" >>$name; chmod 755 $name
			done
			echo 'echo 2 >/data/version' >>/app/migrate
			echo 1 >/run/nginx.pid`)
		for _, after := range []string{",", "}", "\n"} {
			pairs = append(pairs, "container: "+name+after, "container: "+box.Name+after)
		}
		if name == "web" {
			ref := containertest.ImageRef("docs-web")
			_, err := box.ContainerCommit(p.Context(), box.ID, container.CommitOptions{Reference: ref})
			require.NoError(p, err)
			pairs = append(pairs, `"web:2.0"`, `"`+ref+`"`)
		}
	}
	p.names = strings.NewReplacer(pairs...)
}

// here is a text with the names of this place.
func (p *place) here(text string) string {
	return p.names.Replace(paths.ReplaceAllString(text, p.root+"$0"))
}

// linkPrograms makes this test binary the programs that people type.
func (p *place) linkPrograms() {
	p.Helper()
	self, err := os.Executable()
	require.NoError(p, err)
	bin := filepath.Join(p.root, "bin")
	require.NoError(p, os.MkdirAll(bin, 0o755))
	for _, name := range []string{"starter", "temporal"} {
		require.NoError(p, os.Symlink(self, filepath.Join(bin, name)))
	}
	server := servertest.Shared(p.T)
	p.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TEMPORAL_ADDRESS="+server.Address,
		"TEMPORAL_NAMESPACE="+server.Namespace,
		"UNWIND_QUEUE="+p.queue(), "UNWIND_STATE="+p.stateOfDev(), "HOME="+p.root)
}

// stateOfDev is where a starter dev keeps its state.
func (p *place) stateOfDev() string { return filepath.Join(p.root, "state-of-dev") }

func (p *place) queue() string { return "docs-" + filepath.Base(filepath.Dir(p.root)) }

// config is the config of the worker that serves the place; every step of the documentation must
// work with it.
func (p *place) config() host.Config {
	in := func(name string) string { return filepath.Join(p.root, name) }
	return host.Config{
		Host: "build-1", Queue: p.queue(), State: in("state"), StopTimeout: time.Second, CheckCommands: []string{"grep"},
		Secrets: map[string]string{
			"STRIPE_KEY": "file:" + in("run/secrets/stripe"), "MAIL_TOKEN": "file:" + in("run/secrets/mail"),
			"SHOP_DSN":  "file:" + in("run/secrets/shop"),
			"CACHE_URL": "file:" + in("run/secrets/cache"),
		},
		Worlds: []activities.Settings{
			&file.Settings{Roots: []string{in("srv")}}, &folder.Settings{Roots: []string{in("srv")}},
			&unit.Settings{Units: map[string]unit.Unit{"shop": {
				Start: []string{"touch", in("running")}, Stop: []string{"rm", "-f", in("running")}, Running: []string{"test", "-e", in("running")},
			}}},
			&terraform.Settings{Roots: []string{in("srv/infra")}},
			&world.Settings{}, &stripe.Settings{Key: "STRIPE_KEY", URL: p.stripe},
			&postgres.Settings{Databases: map[string]postgres.DatabaseSettings{"shop": {DSN: "SHOP_DSN"}}},
			&etcd.Settings{Databases: map[string]etcd.DatabaseSettings{"settings": {Endpoints: []string{p.etcd}}}},
			&redis.Settings{Databases: map[string]redis.DatabaseSettings{"cache": {URL: "CACHE_URL"}}},
		},
	}
}

// withServers is a config with the emulator for Stripe, and with our server of etcd.
func (p *place) withServers(c host.Config) host.Config {
	if s := host.SettingsOf[*stripe.Settings](c); s != nil {
		s.URL = p.stripe
	}
	if host.SettingsOf[*etcd.Settings](c) != nil {
		c = c.With(host.SettingsOf[*etcd.Settings](p.config()))
	}
	return c
}

// work starts a worker; it stops with the test.
func (p *place) work(c host.Config) *host.Worker {
	p.Helper()
	metrics := host.NewMetrics()
	p.Cleanup(metrics.Close)
	w, err := host.Start(p.Context(), c,
		host.Options{Client: p.client, Namespace: servertest.Shared(p.T).Namespace, Metrics: metrics})
	require.NoError(p, err)
	p.Cleanup(func() {
		w.Stop()
		if host.SettingsOf[*world.Settings](c) != nil {
			containertest.ClearIn(p.T, c.State) // what a replacement leaves waits for the release of its record
			p.removeLayers(c.State)
		}
	})
	return w
}

// removeLayers removes what a worker has on the engine. A worker that stops at once may still be
// starting its helper there.
func (p *place) removeLayers(state string) {
	p.Helper()
	home, err := world.Home(state)
	require.NoError(p, err)
	engine := containertest.Docker(containertest.Outliving(p.T))
	require.Eventually(p, func() bool { return sidecar.Remove(context.Background(), engine, home) == nil }, patience,
		100*time.Millisecond)
}

// sh runs a command line in /srv, and returns what it prints.
func (p *place) sh(line string) string {
	p.Helper()
	out, err := p.command(line).CombinedOutput()
	require.NoError(p, err, "%s\n%s", line, out)
	return string(out)
}

func (p *place) command(line string) *exec.Cmd { return p.commandUntil(p.Context(), line) }

// commandUntil is killed at the end of ctx.
func (p *place) commandUntil(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "sh", "-ec", line)
	c.Dir, c.Env = filepath.Join(p.root, "srv"), p.env
	return c
}

// state is that of a task; empty while nobody answers.
func (p *place) state(id string) (s protocol.State) {
	if v, err := p.client.QueryWorkflow(p.Context(), id, "", protocol.QueryState); err == nil {
		require.NoError(p, v.Get(&s))
	}
	return s
}

// patience is how long a task may take on a busy machine.
const patience = time.Minute

// needsPerson is the exit status of a command that follows a task which waits at a gate.
const needsPerson = 3

// watched runs a command line that follows a task to its end, and approves what the task asks.
func (p *place) watched(line string) string {
	p.Helper()
	out, err := p.command(line).CombinedOutput()
	all := string(out)
	for {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != needsPerson {
			break
		}
		found := taskLine.FindStringSubmatch(all)
		require.NotNil(p, found, all)
		for _, g := range p.state(found[1]).Gates {
			p.sh("starter approve " + found[1] + " " + g.Step + " --yes")
		}
		out, err = p.command("starter watch " + found[1]).CombinedOutput()
		all += string(out)
	}
	require.NoError(p, err, "%s\n%s", line, all)
	return all
}

var taskLine = regexp.MustCompile(`(?m)^task (\S+)$`)

// file writes a file into /srv and returns its path.
func (p *place) file(name, text string) string {
	p.write(filepath.Join("srv", name), text)
	return filepath.Join(p.root, "srv", name)
}
