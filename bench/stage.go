package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/worker/host"
)

const queue = "bench"

// stage is a server with one worker, shared by everything that is measured on it.
type stage struct {
	client client.Client
	server *devserver.Server
	worker *host.Worker
	dir    string
}

// newStage starts them on a database file of its own. noops is the world of the steps.
func newStage(ctx context.Context, noops activities.World, edit ...func(*host.Config, *host.Options)) (s *stage,
	err error) {
	s = &stage{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "unwind-bench-*"); err != nil {
		return s, err
	}
	if s.server, err = devserver.Start(ctx,
		devserver.Options{DB: filepath.Join(s.dir, "temporal.db"), Log: os.Stderr}); err != nil {
		return s, err
	}
	options := s.server.ClientOptions()
	options.Logger = quiet{}
	if s.client, err = client.Dial(options); err != nil {
		return s, err
	}
	config := host.Config{Host: "bench", Queue: queue, State: filepath.Join(s.dir, "state")}
	served := host.Options{Client: s.client, Namespace: "default", Worlds: []activities.World{noops},
		Register: registerBare}
	for _, e := range edit {
		e(&config, &served)
	}
	s.worker, err = host.Start(ctx, config, served)
	return s, err
}

func (s *stage) close() {
	if s.worker != nil {
		s.worker.Stop()
	}
	if s.client != nil {
		s.client.Close()
	}
	if s.server != nil {
		_ = s.server.Stop()
	}
	_ = os.RemoveAll(s.dir)
}

// quiet drops the log of the SDK, which is not part of what is compared.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(m string, kv ...any) {
	if !strings.Contains(m, "poll") {
		fmt.Fprintln(os.Stderr, append([]any{m}, kv...)...)
	}
}

var _ log.Logger = quiet{}
