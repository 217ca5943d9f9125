package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	docker "github.com/docker/docker/client"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	world "github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// The agent's attempts.
var (
	//go:embed first-try.yaml
	firstTry []byte
	//go:embed second-try.yaml
	secondTry []byte
)

// session is a container to build in, and a worker that may use it.
type session struct {
	engine    *docker.Client
	container string
	client    client.Client
	queue     string
	state     string
	tries     int
	closers   []func() error
}

// openSession makes the container and starts the worker. If it fails, it removes what it has made.
func openSession(ctx context.Context, server client.Options, log io.Writer) (*session, error) {
	name := "unwind-build-" + strings.ToLower(rand.Text()[:8])
	s := &session{container: name, queue: name}
	if err := s.startWorker(ctx, server, log); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *session) startWorker(ctx context.Context, server client.Options, log io.Writer) error {
	var err error
	if s.state, err = os.MkdirTemp("", s.container+"-"); err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { return os.RemoveAll(s.state) })
	if err := s.makeContainer(ctx, log); err != nil {
		return err
	}
	if s.client, err = client.DialContext(ctx, server); err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { s.client.Close(); return nil })
	w, err := host.Start(ctx, host.Config{Host: s.container, Queue: s.queue, State: s.state, Worlds: []activities.Settings{
		&world.Settings{}}},
		host.Options{Client: s.client, Namespace: server.Namespace})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { w.Stop(); return nil })
	return nil
}

// makeContainer starts a container from the root filesystem, without a network.
func (s *session) makeContainer(ctx context.Context, log io.Writer) (err error) {
	if s.engine, err = docker.NewClientWithOpts(docker.FromEnv, docker.WithAPIVersionNegotiation()); err != nil {
		return err
	}
	s.closers = append(s.closers, s.engine.Close)
	root, err := rootfs(ctx, log)
	if err != nil {
		return err
	}
	file, err := os.Open(root)
	if err != nil {
		return err
	}
	defer file.Close()
	answer, err := s.engine.ImageImport(ctx, image.ImportSource{Source: file, SourceName: "-"}, s.container+":latest",
		image.ImportOptions{
			Changes: []string{`CMD ["sleep", "infinity"]`},
		})
	if err != nil {
		return fmt.Errorf("import %s: %w", root, err)
	}
	defer answer.Close()
	if _, err := io.Copy(io.Discard, answer); err != nil {
		return fmt.Errorf("import %s: %w", root, err)
	}
	s.closers = append(s.closers, s.removeImages)
	s.closers = append(s.closers, s.removeLayers)
	s.closers = append(s.closers, s.removeContainer)
	made, err := s.engine.ContainerCreate(ctx, &container.Config{Image: s.container + ":latest"},
		&container.HostConfig{NetworkMode: network.NetworkNone}, nil, nil, s.container)
	if err != nil {
		return err
	}
	return s.engine.ContainerStart(ctx, made.ID, container.StartOptions{})
}

func (s *session) removeContainer() error {
	err := s.engine.ContainerRemove(context.Background(), s.container, container.RemoveOptions{Force: true})
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// removeLayers removes what the worker has left on the engine, after the container is gone.
func (s *session) removeLayers() error {
	home, err := world.Home(s.state)
	if err != nil {
		return err
	}
	return sidecar.Remove(context.Background(), s.engine, home)
}

// removeImages removes the image and the checkpoints that were made from it, the newest first.
func (s *session) removeImages() error {
	ctx := context.Background()
	base, err := s.engine.ImageInspect(ctx, s.container+":latest")
	if err != nil {
		return err
	}
	all, err := s.engine.ImageList(ctx, image.ListOptions{All: true})
	if err != nil {
		return err
	}
	var remove func(id string) error
	remove = func(id string) (err error) {
		for _, i := range all {
			if i.ParentID == id {
				err = errors.Join(err, remove(i.ID))
			}
		}
		_, removed := s.engine.ImageRemove(ctx, id, image.RemoveOptions{Force: true})
		if cerrdefs.IsNotFound(removed) {
			removed = nil
		}
		return errors.Join(err, removed)
	}
	return remove(base.ID)
}

// try runs a task to its end and prints what became of it. A failed task is not an error.
func (s *session) try(ctx context.Context, file []byte, out io.Writer) error {
	doc, err := task.Parse("task.yaml", file)
	if err != nil {
		return err
	}
	if doc, err = doc.Override(map[string]any{"container": s.container}); err != nil {
		return err
	}
	input, err := doc.JSON()
	if err != nil {
		return err
	}
	s.tries++
	run, err := s.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: fmt.Sprintf("%s-%d", s.container, s.tries), TaskQueue: s.queue,
	}, protocol.AgentTaskType, input)
	if err != nil {
		return err
	}
	var report compensations.Report
	if err := run.Get(ctx, &report); err != nil {
		var failed *temporal.ApplicationError
		if !errors.As(err, &failed) || failed.Details(&report) != nil {
			return err
		}
	}
	writeReport(out, doc.Name, report)
	return nil
}

func writeReport(out io.Writer, name string, r compensations.Report) {
	fmt.Fprintf(out, "%s: %s\n", name, r.Status)
	if r.Cause != nil {
		fmt.Fprintf(out, "  %s at %s: %s\n", r.Cause.Kind, r.Cause.Step, r.Cause.Text)
	}
	for _, step := range r.Steps {
		fmt.Fprintf(out, "  %-9s %s %s %s\n", step.Step, step.State, step.Outcome, step.Observed)
	}
}

// Close removes everything, the last thing first.
func (s *session) Close() error {
	var problems []error
	for _, each := range slices.Backward(s.closers) {
		problems = append(problems, each())
	}
	s.closers = nil
	return errors.Join(problems...)
}
