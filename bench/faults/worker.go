package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// What both sides have.
const (
	attempts  = 3
	heartbeat = 4 * time.Second
)

// workerSetup is what a worker that serves both sides connects to.
type workerSetup struct {
	Address   string  `json:"address"` // of the Temporal server
	Namespace string  `json:"namespace"`
	Queue     string  `json:"queue"`
	State     string  `json:"state"` // folder
	Service   service `json:"service"`
}

func (p workerSetup) dial() (client.Client, error) {
	return client.Dial(client.Options{
		HostPort: p.Address, Namespace: p.Namespace,
		Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)), // faults are what this is about
	})
}

// serve starts a worker in this process.
func (p workerSetup) serve(ctx context.Context, c client.Client) (*host.Worker, error) {
	return host.Start(ctx, host.Config{
		Host: "faults", Queue: p.Queue, State: p.State, Heartbeat: heartbeat, StopTimeout: time.Second,
	}, host.Options{
		Client: c, Namespace: p.Namespace, Worlds: []activities.World{world(p.Service)},
		Register: func(r worker.Registry) { registerUsual(r, p.Service) },
	})
}

// postVariable makes a process a worker: its post, as JSON.
const postVariable = "UNWIND_BENCH_FAULTS_POST"

// Child is the life of a worker that Run has started in a process of its own; child is false in any
// other process.
func Child() (child bool, err error) {
	raw := os.Getenv(postVariable)
	if raw == "" {
		return false, nil
	}
	var p workerSetup
	if err := json.Unmarshal([]byte(raw), &p); err != nil {
		return true, err
	}
	c, err := p.dial()
	if err != nil {
		return true, err
	}
	w, err := p.serve(context.Background(), c)
	if err != nil {
		return true, err
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent lets go, or is dead
	w.Stop()
	return true, err
}

// process is a worker in a process of its own.
type process struct {
	post  workerSetup
	cmd   *exec.Cmd
	stdin io.Closer
}

func (p *process) startWorker() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(p.post)
	if err != nil {
		return err
	}
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), postVariable+"="+string(raw))
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	return p.cmd.Start()
}

// kill is SIGKILL.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	if err := p.cmd.Wait(); err == nil {
		return errors.New("the worker had ended by itself")
	}
	return nil
}

func (p *process) stop() error {
	if err := p.stdin.Close(); err != nil {
		return err
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("a worker's end: %w", err)
	}
	return nil
}
