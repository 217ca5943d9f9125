package command

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/examples/shop"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestMain(m *testing.M) {
	mcptest.Attend() // before actAsStarter: the server of a wrapping starter has its environment
	actAsStarter()
	host.Hooks()
	shop.Attend()
	// No test sees the profile, the server or the state of who runs it.
	folder, err := os.MkdirTemp("", "starter-test-")
	if err != nil {
		panic(err)
	}
	nothing := filepath.Join(folder, "temporal.toml")
	if err := os.WriteFile(nothing, nil, 0o600); err != nil {
		panic(err)
	}
	for name, value := range map[string]string{
		"TEMPORAL_CONFIG_FILE": nothing, "XDG_STATE_HOME": folder, "TEMPORAL_ADDRESS": "127.0.0.1:1",
	} {
		_ = os.Setenv(name, value)
	}
	for _, name := range []string{"TEMPORAL_PROFILE", "TEMPORAL_NAMESPACE", "TEMPORAL_UI", "UNWIND_STATE", "UNWIND_QUEUE",
		"UNWIND_HOST", "UNWIND_LISTEN"} {
		_ = os.Unsetenv(name)
	}
	time.Local = time.UTC //nolint:gosmopolitan // the clock on everybody's wall
	status := testrun.RunWaiting(m)
	if err := containertest.RemoveImages(); err != nil {
		panic(err)
	}
	_ = os.RemoveAll(folder)
	os.Exit(status)
}

// desk is where a test types commands: a real server, a worker with a fake world on a queue of the
// test's own.
type desk struct {
	*testing.T
	server *devserver.Server
	client client.Client
	world  *fakeWorld
	worker *host.Worker
	folder string
	queue  string
	// converter is what client was made with; nil: the SDK's.
	converter converter.DataConverter
	// silence is how long its commands wait for a worker; 0 for as long as those of people do.
	silence time.Duration
}

// newDesk is a desk of a test that runs beside others: it sets nothing in the environment that they
// do not all set.
func newDesk(t *testing.T) *desk {
	t.Parallel()
	server := servertest.Shared(t)
	settings.hold(t, map[string]string{"TEMPORAL_ADDRESS": server.Address, "UNWIND_HOST": "here"})
	return newDeskOn(t, server, servertest.Client(t))
}

// newLoneDesk is a desk of a test that has the environment for itself.
func newLoneDesk(t *testing.T) *desk {
	return newLoneDeskOn(t, servertest.Shared(t), servertest.Client(t))
}

func newLoneDeskOn(t *testing.T, server *devserver.Server, c client.Client) *desk {
	t.Setenv("TEMPORAL_ADDRESS", server.Address)
	t.Setenv("UNWIND_HOST", "here")
	d := newDeskOn(t, server, c)
	t.Setenv("UNWIND_QUEUE", d.queue)
	return d
}

func newDeskOn(t *testing.T, server *devserver.Server, c client.Client) *desk {
	d := &desk{T: t, world: newFakeWorld(), server: server, client: c, folder: t.TempDir(),
		queue: "starter-" + strings.ToLower(t.Name())}
	d.startWorker()
	t.Cleanup(d.stopWorker)
	return d
}

// settings are what tests that run at the same time have in the environment.
var settings shared

type shared struct {
	mu      sync.Mutex
	holders int
	before  map[string]string
}

// hold sets them, if nobody has yet. The last holder to end puts back what was there before.
func (s *shared) hold(t *testing.T, values map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders++; s.holders == 1 {
		s.before = map[string]string{}
		for name, value := range values {
			s.before[name] = os.Getenv(name)
			_ = os.Setenv(name, value) //nolint:usetesting // t.Setenv cannot be used where tests run side by side
		}
	}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.holders--; s.holders == 0 {
			for name, value := range s.before {
				_ = os.Setenv(name, value) //nolint:usetesting // likewise
			}
		}
	})
}

func (d *desk) startWorker(edit ...func(*host.Config)) {
	config := host.Config{State: d.TempDir(), StopTimeout: 100 * time.Millisecond}.WithEnvironment(os.LookupEnv)
	config.Queue = d.queue
	config.Schedules = "off" // at a sweep, every five minutes by the clock, the dead tasks of a test would be recovered
	for _, e := range edit {
		e(&config)
	}
	w, err := host.Start(d.Context(), config, host.Options{
		Client: d.client, Namespace: d.server.Namespace, DataConverter: d.converter,
		Worlds: []activities.World{d.world.world()},
	})
	require.NoError(d, err)
	d.worker, d.silence = w, 0
}

func (d *desk) stopWorker() {
	if d.worker != nil {
		d.worker.Stop()
		d.worker = nil
	}
}

// leaveQueue stops the worker where no other serves its queue: however long a command waits for
// one, none answers.
func (d *desk) leaveQueue() {
	d.stopWorker()
	d.silence = 100 * time.Millisecond
}

// file writes a task file.
func (d *desk) file(text string) string {
	name := filepath.Join(d.folder, "task.yaml")
	require.NoError(d, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// typed is what became of a command.
type typed struct {
	status   int
	out, err string
}

// do types a command and waits for its end. Nobody sits at its standard input.
func (d *desk) do(args ...string) typed { return do(d.Context(), d.options(), args...) }

func (d *desk) options() Options {
	return Options{Worlds: []activities.World{d.world.world()}, queue: d.queue, silence: d.silence}
}

func do(ctx context.Context, o Options, args ...string) typed {
	var out, err bytes.Buffer
	status := Run(ctx, o, args, Streams{In: strings.NewReader(""), Out: &out, Err: &err})
	return typed{status, out.String(), err.String()}
}

// ok types a command that must succeed.
func (d *desk) ok(args ...string) string {
	d.Helper()
	r := d.do(args...)
	require.Equal(d, statusOK, r.status, "%v: %s%s", args, r.out, r.err)
	return r.out
}

// running is a command that has not ended yet.
type running struct {
	out  *testrun.Buffer
	end  chan typed
	stop context.CancelFunc
}

// begin types a command and lets it run.
func (d *desk) begin(args ...string) *running {
	ctx, stop := context.WithCancel(d.Context())
	r := &running{out: &testrun.Buffer{}, end: make(chan typed, 1), stop: stop}
	go func() {
		var err bytes.Buffer
		status := Run(ctx, d.options(), args, Streams{In: strings.NewReader(""), Out: r.out, Err: &err})
		r.end <- typed{status, r.out.String(), err.String()}
	}()
	return r
}

func (d *desk) prints(r *running, text string) {
	d.Helper()
	require.Eventually(d, func() bool { return strings.Contains(r.out.String(), text) }, waitFor, tick,
		"%q is not printed", text)
}

func (d *desk) ended(r *running) typed {
	d.Helper()
	select {
	case e := <-r.end:
		return e
	case <-time.After(90 * time.Second):
		require.FailNow(d, "the command has not ended", r.out.String())
		return typed{}
	}
}

// state asks the worker.
func (d *desk) state(id string) protocol.State {
	d.Helper()
	s, err := d.ask(id)
	require.NoError(d, err)
	return s
}

func (d *desk) ask(id string) (s protocol.State, err error) {
	v, err := d.client.QueryWorkflow(d.Context(), id, "", protocol.QueryState)
	if err != nil {
		return s, err
	}
	return s, v.Get(&s)
}

// until waits until the state of a task is as wanted.
func (d *desk) until(id string, want func(protocol.State) bool) protocol.State {
	d.Helper()
	var s protocol.State
	require.Eventually(d, func() bool {
		var err error
		s, err = d.ask(id)
		return err == nil && want(s)
	}, waitFor, tick)
	return s
}

func atGate(s protocol.State) bool { return len(s.Gates) > 0 }

func parked(s protocol.State) bool { return len(parkedSteps(s)) > 0 }

var (
	someTime   = regexp.MustCompile(`\b\d+(\.\d+)?(ms|s)\b`)
	someDate   = regexp.MustCompile(`\d{4}-\d{2}-\d{2} \d{2}:\d{2}(:\d{2})?`)
	someDigest = regexp.MustCompile(`sha256:[0-9a-f]{64}`)
	spaces     = regexp.MustCompile(` {2,}`)
)

// normal is an output with its times, dates, digests and addresses taken out, and columns closed
// up.
func normal(s string) string {
	for pattern, with := range map[*regexp.Regexp]string{someTime: "T", someDate: "DATE", someDigest: "DIGEST"} {
		s = pattern.ReplaceAllString(s, with)
	}
	s = spaces.ReplaceAllString(s, " ")
	return strings.ReplaceAll(strings.ReplaceAll(s, os.Getenv("TEMPORAL_ADDRESS"), "ADDRESS"), currentUser(), "ME")
}

// How long, and how often, a test looks for what comes by itself.
const (
	waitFor = 60 * time.Second
	tick    = 20 * time.Millisecond
)

// devLimit bounds the start of a server; the first on a machine builds it.
const devLimit = 8 * time.Minute
