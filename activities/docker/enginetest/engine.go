// Package enginetest starts a Docker engine of a test's own, with the storage driver overlay2,
// beside whatever engine the machine has: in a network namespace, with folders of its own. It is
// for tests and measurements, and needs root.
package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/testrun"
)

// limit is how long an engine may take to start or to end.
const limit = 2 * time.Minute

// Engine is a running engine.
type Engine struct {
	// Host is its address.
	Host string

	dir   string
	flags []string
	cmd   *exec.Cmd
	log   *os.File
}

// EndsAll has an engine end its containers when it is stopped; else they live on.
func EndsAll(e *Engine) { e.flags = []string{"--shutdown-timeout", "1"} }

// OnTCP has an engine listen on a port too, which only what runs in its network namespace reaches:
// see Inside.
func OnTCP(e *Engine) { e.flags = append(e.flags, "-H", Address, "--tls=false") }

// Address is where an engine listens that is OnTCP.
const Address = "tcp://127.0.0.1:2375"

// Inside calls f on a thread in the engine's network namespace: what f starts is there too.
func (e *Engine) Inside(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: so the thread ends
		done <- func() error {
			space, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", e.cmd.Process.Pid))
			if err != nil {
				return err
			}
			defer space.Close()
			if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			if err := raiseLoopback(); err != nil {
				return fmt.Errorf("loopback: %w", err)
			}
			return f()
		}()
	}()
	return <-done
}

// raiseLoopback raises the one interface that a new network namespace has.
func raiseLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}

// Start starts an engine that is gone after the test, with all that it had.
func Start(t testing.TB, options ...func(*Engine)) *Engine {
	t.Helper()
	testrun.NeedProgram(t, "dockerd", "it is part of the Docker engine (Debian's package docker.io)")
	e, err := Open(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// Open starts an engine.
func Open(options ...func(*Engine)) (*Engine, error) {
	dir, err := os.MkdirTemp("", "ov2-") // a short name: sockets are in it
	if err != nil {
		return nil, err
	}
	e := &Engine{Host: "unix://" + dir + "/docker.sock", dir: dir, flags: []string{"--live-restore"}}
	for _, o := range options {
		o(e)
	}
	if err = os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600); err == nil {
		if e.log, err = os.Create(filepath.Join(dir, "log")); err == nil {
			err = e.Run()
		}
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Run starts the engine, where it does not run.
func (e *Engine) Run() error {
	e.cmd = exec.Command("dockerd", append([]string{
		"--config-file", e.dir + "/config.json", "--storage-driver", "overlay2", "--data-root", e.dir + "/data",
		"--exec-root", e.dir + "/exec", "--pidfile", e.dir +
			"/pid", "-H", e.Host, "--bridge=none", "--iptables=false", "--ip6tables=false",
	}, e.flags...)...)
	e.cmd.Stdout, e.cmd.Stderr = e.log, e.log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Setpgid: true}
	if err := e.cmd.Start(); err != nil {
		e.cmd = nil
		return err
	}
	c, err := e.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	answers := poll(func() bool {
		_, err := c.Ping(context.Background())
		return err == nil
	})
	if !answers {
		said, err := os.ReadFile(e.log.Name())
		return errors.Join(fmt.Errorf("the engine does not answer\n%s", said), err)
	}
	return nil
}

func (e *Engine) dial() (*client.Client, error) {
	return client.NewClientWithOpts(client.WithHost(e.Host), client.WithAPIVersionNegotiation())
}

// poll waits until something holds.
func poll(holds func() bool) bool {
	for until := time.After(limit); ; {
		if holds() {
			return true
		}
		select {
		case <-until:
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Client is a client of the engine, until the test ends.
func (e *Engine) Client(t testing.TB) *client.Client {
	t.Helper()
	c, err := e.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Stop ends the engine as it ends when it is updated.
func (e *Engine) Stop() {
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() { _ = e.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(limit):
		_ = e.cmd.Process.Kill()
		<-ended
	}
}

// Close ends the engine, and removes all that it had: containers' attendants, its containerd,
// mounts, and its folder.
func (e *Engine) Close() error {
	if e.cmd != nil && e.cmd.ProcessState == nil {
		e.Stop()
	}
	poll(func() bool {
		left := e.processes()
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(left) == 0
	})
	var err error
	poll(func() bool {
		err = errors.Join(e.unmount(), os.RemoveAll(e.dir))
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("an engine has left something in %s: %w", e.dir, err)
	}
	return nil
}

func (e *Engine) unmount() error {
	// the first thread may be in a namespace that a test has left it in
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		at := strings.Fields(line)[4]
		if !strings.HasPrefix(at, e.dir+"/") {
			continue
		}
		if failed := unix.Unmount(at, unix.MNT_DETACH); !errors.Is(failed, unix.EINVAL) { // it went with what it was on
			err = errors.Join(err, failed)
		}
	}
	return err
}

// processes are those that the engine has started and that name its folder, and the containers'
// own, which are children of such: an attendant that is killed leaves them running.
func (e *Engine) processes() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	named, parents := map[int]bool{}, map[int]int{}
	for _, dir := range all {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile(dir + "/cmdline") // it may have ended
		named[pid] = bytes.Contains(line, []byte(e.dir+"/"))
		stat, _ := os.ReadFile(dir + "/stat")
		if f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(f) > 1 {
			parents[pid], _ = strconv.Atoi(f[1])
		}
	}
	for pid := range named {
		if named[pid] || named[parents[pid]] {
			pids = append(pids, pid)
		}
	}
	return pids
}
