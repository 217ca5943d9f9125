// Package enginetest starts a Docker engine of a test's own, with the storage driver overlay2, beside whatever engine
// the machine has: in a network namespace, with folders of its own. It is for tests only, and needs root.
package enginetest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"
)

// limit is how long an engine may take to start or to end.
const limit = 2 * time.Minute

// Engine is a running engine. It is gone after the test, with all that it had.
type Engine struct {
	// Host is its address.
	Host string

	t   testing.TB
	dir string
	cmd *exec.Cmd
	log *os.File
}

// Start starts an engine.
func Start(t testing.TB) *Engine {
	t.Helper()
	dir, err := os.MkdirTemp("", "ov2-") //nolint:usetesting // a short name: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{Host: "unix://" + dir + "/docker.sock", t: t, dir: dir}
	t.Cleanup(e.remove)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if e.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	e.Run()
	return e
}

// Run starts the engine, where it does not run.
func (e *Engine) Run() {
	e.t.Helper()
	e.cmd = exec.Command("dockerd", "--config-file", e.dir+"/config.json", "--storage-driver", "overlay2", "--data-root", e.dir+"/data",
		"--exec-root", e.dir+"/exec", "--pidfile", e.dir+"/pid", "-H", e.Host, "--bridge=none", "--iptables=false", "--ip6tables=false", "--live-restore")
	e.cmd.Stdout, e.cmd.Stderr = e.log, e.log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Setpgid: true}
	if err := e.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	c := e.Client()
	answers := poll(func() bool {
		_, err := c.Ping(context.Background())
		return err == nil
	})
	if !answers {
		said, _ := os.ReadFile(e.log.Name())
		e.t.Fatalf("the engine does not answer\n%s", said)
	}
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
func (e *Engine) Client() *client.Client {
	e.t.Helper()
	c, err := client.NewClientWithOpts(client.WithHost(e.Host), client.WithAPIVersionNegotiation())
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { c.Close() })
	return c
}

// Stop ends the engine as it ends when it is updated: its containers live on.
func (e *Engine) Stop() {
	e.t.Helper()
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

// remove ends the engine, and what it has left: containers' attendants, its containerd, and mounts.
func (e *Engine) remove() {
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
		e.t.Errorf("an engine of the tests has left something in %s: %v", e.dir, err)
	}
}

func (e *Engine) unmount() error {
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo") // the first thread may be in a namespace that a test has left it in
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

// processes are those that the engine has started and that name its folder.
func (e *Engine) processes() []int {
	var pids []int
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		line, err := os.ReadFile(file)
		var pid int
		for _, digit := range filepath.Base(filepath.Dir(file)) {
			pid = 10*pid + int(digit-'0')
		}
		if err == nil && pid != os.Getpid() && bytes.Contains(line, []byte(e.dir+"/")) {
			pids = append(pids, pid)
		}
	}
	return pids
}
