package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// member is one host of the fleet: its folders, and the worker that serves it now.
type member struct {
	host.Config
	dir    string
	order  string // the path of its workers' order
	delays *rand.Rand
	kills  *atomic.Int64
	wire   *wire // its way to the Temporal server

	mu     sync.Mutex
	now    *process
	frozen map[string][]*process // by the task that stopped them
	slept  []*process            // all that were ever frozen
	ended  chan struct{}
}

func (m *member) files() string { return filepath.Join(m.dir, "files") }
func (m *member) infra() string { return filepath.Join(m.dir, "infra") }
func (m *member) data() string  { return filepath.Join(m.dir, "data") }
func (m *member) armed() string { return filepath.Join(m.dir, "armed") }
func (m *member) fired() string { return filepath.Join(m.dir, "fired") }
func (m *member) log() string   { return filepath.Join(m.dir, "log") }

// setSecret adds a secret that is read from a file.
func (m *member) setSecret(name, path string) {
	if m.Secrets == nil {
		m.Secrets = map[string]string{}
	}
	m.Secrets[name] = "file:" + path
}

// settle makes a member's folders, and writes its order.
func (m *member) settle(o order) error {
	for _, dir := range []string{m.files(), m.infra(), m.data(), m.armed(), m.fired(), m.State} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	o.Address, o.Config, o.Armed, o.Fired = m.wire.listener.Addr().String(), m.Config, m.armed(), m.fired()
	o.Config.Worlds, o.Worlds = nil, m.Worlds
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(m.order, raw, 0o600)
}

// restartPause is the longest time that a host is without a worker.
const restartPause = time.Second

// keepRunning serves the host until ctx ends: a worker that has ended, or has stopped itself, is
// followed by another.
func (m *member) keepRunning(ctx context.Context) error {
	defer close(m.ended)
	for ctx.Err() == nil {
		p, err := startProcess(m.order, m.log())
		if err != nil {
			return err
		}
		m.mu.Lock()
		m.now = p
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			p.awaitEnd(stopLimit)
			return nil
		case <-p.stopped:
			m.freeze(p)
		case <-p.ended:
			if p.wasKilled() {
				m.kills.Add(1)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(m.delays.Int64N(int64(restartPause)))):
		}
	}
	return nil
}

// stopLimit is how long a worker may take to finish what it does. Without an answer from the server
// it needs 10 s for saying that it stops, 5 s (its StopTimeout) each for workflows, local
// activities and activities, one after the other, and 5 s more for those that are cancelled then.
const stopLimit = 35 * time.Second

// freeze sets a worker aside that has stopped itself, under the task that wanted it, and cuts it
// off: what a server sends to a worker that sleeps with its connections open is lost for as long as
// a heartbeat takes, time and again.
func (m *member) freeze(p *process) {
	m.wire.drop()
	task := ""
	names, _ := os.ReadDir(m.fired())
	for _, f := range names {
		if a, pid, ok := armOf(f.Name()); ok && pid == p.cmd.Process.Pid {
			task = a.Task
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frozen[task] = append(m.frozen[task], p)
	m.slept = append(m.slept, p)
	go func() {
		// A forward holds its token's lock while it sleeps: its next attempt would wait for ever.
		select {
		case <-p.ended:
		case <-time.After(sleepLimit):
			p.awaitEnd(stopLimit)
		}
	}()
}

// sleepLimit is the longest time that a worker is frozen.
const sleepLimit = 25 * time.Second

// thaw wakes what a task has frozen, lets it finish what it was about to do, and ends it. It
// returns how many there were, and how many of them did not come to their end.
func (m *member) thaw(task string) (n, stuck int) {
	m.mu.Lock()
	all := m.frozen[task]
	delete(m.frozen, task)
	m.mu.Unlock()
	for _, p := range all {
		if !p.awaitEnd(stopLimit) {
			stuck++
		}
	}
	return len(all), stuck
}

// calm waits until every worker that is frozen now has been woken and has ended: whatever it was
// about to do has been done.
func (f *fleet) calm(ctx context.Context) {
	for _, m := range f.members {
		m.mu.Lock()
		slept := slices.Clone(m.slept)
		m.mu.Unlock()
		for _, p := range slept {
			select {
			case <-p.ended:
			case <-ctx.Done():
			}
		}
	}
}

// kill ends the worker that serves the host now.
func (m *member) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now != nil {
		m.now.kill()
	}
}

// killThose kills processes of a name that this host's worker has started, and that may outlive it.
func (m *member) killThose(name string) (n int) {
	for _, pid := range m.those(name) {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			m.kills.Add(1)
			n++
		}
	}
	return n
}

// those are the processes below the host's folder whose commands begin with a name.
func (m *member) those(name string) (pids []int) {
	m.mu.Lock()
	worker := 0
	if m.now != nil {
		worker = m.now.cmd.Process.Pid
	}
	m.mu.Unlock()
	for pid, line := range processesOf(m.dir) {
		if pid != worker && strings.HasPrefix(line, name) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// firedAt are the labels at which a process of the host broke, with how often one of a supervisor's
// killed it.
func (m *member) firedAt() (labels []string, supervisors int) {
	names, _ := os.ReadDir(m.fired())
	for _, f := range names {
		if a, _, ok := armOf(f.Name()); ok {
			labels = append(labels, a.Label)
			if (target{Label: a.Label}).supervised() {
				supervisors++
			}
		}
	}
	return labels, supervisors
}

// fleet is all hosts.
type fleet struct {
	members []*member
	kills   *atomic.Int64
	cancel  context.CancelFunc
	failed  chan error
}

// muster sets up n hosts below dir; none of them works yet.
func muster(n int, dir string, seed uint64, kills *atomic.Int64) *fleet {
	f := &fleet{kills: kills, failed: make(chan error, n)}
	for i := range n {
		m := &member{
			dir: filepath.Join(dir, fmt.Sprintf("host-%d", i)), kills: kills,
			delays: rand.New(rand.NewPCG(seed, uint64(1_000_000+i))), //nolint:gosec // it has to be reproducible
			frozen: map[string][]*process{}, ended: make(chan struct{}),
		}
		m.order = filepath.Join(m.dir, "order.json")
		m.Config = host.Config{
			Host: fmt.Sprintf("crash-%d", i), Queue: queue, State: filepath.Join(m.dir, "state"),
			Heartbeat: heartbeat, HostWait: hostWait, StopTimeout: 5 * time.Second,
			Worlds: []activities.Settings{
				&file.Settings{Roots: []string{m.files()}}},
		}
		f.members = append(f.members, m)
	}
	return f
}

// The settings of all workers: a dead one is missed soon.
const (
	queue     = "crash"
	heartbeat = 2 * time.Second
	hostWait  = 3 * time.Second
)

// sail starts the workers.
func (f *fleet) sail(ctx context.Context) {
	ctx, f.cancel = context.WithCancel(ctx)
	for _, m := range f.members {
		go func() {
			if err := m.keepRunning(ctx); err != nil {
				f.failed <- err
			}
		}()
	}
}

// stop lets all workers end.
func (f *fleet) stop() {
	if f.cancel == nil {
		return
	}
	f.cancel()
	for _, m := range f.members {
		<-m.ended
		for task := range m.frozen {
			m.thaw(task)
		}
	}
}

// writeLogs copies the workers' logs.
func (f *fleet) writeLogs(to io.Writer) {
	for _, m := range f.members {
		if raw, err := os.ReadFile(m.log()); err == nil && len(raw) > 0 {
			fmt.Fprintf(to, "--- %s\n%s", m.Host, raw)
		}
	}
}
