package host

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/workflows"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// pollers is how many long polls a worker keeps open on each queue: with the SDK's 2, bursts of
// tasks wait for polls.
const pollers = 8

// Worker is a running worker.
type Worker struct {
	// Registry holds the actions that it serves.
	Registry *activities.Registry
	// Config is its config with defaults.
	Config Config
	// Address is where /healthz and /metrics are; empty without Config.Listen.
	Address string

	workers []worker.Worker
	calls   *calls
	closers []func()
	failed  chan error
}

// Options are what a worker needs besides its config.
type Options struct {
	// Client is connected to the Temporal server, and remains the caller's. Namespace is the one it
	// was made for.
	Client    client.Client
	Namespace string
	// DataConverter is the one that Client was made with. Defaults to the SDK's.
	DataConverter converter.DataConverter
	// Metrics are served at Config.Listen; required with it. The client should report to the same
	// (Metrics.Handler).
	Metrics *Metrics
	// Worlds are served besides those of the config: your own actions.
	Worlds []activities.World
	// Register registers workflows and activities of your own on the shared queue. Defaults to none.
	Register func(worker.Registry)
}

// Start opens the worlds of the config, and serves the shared queue and the host's own. It first
// checks that the server answers, knows the search attributes, and keeps closed workflows for long
// enough.
func Start(ctx context.Context, config Config, o Options) (*Worker, error) {
	config, err := config.WithDefaults()
	if err != nil {
		return nil, err
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if o.DataConverter == nil {
		o.DataConverter = converter.GetDefaultDataConverter()
	}
	server := recovery.Server{Client: o.Client, Namespace: o.Namespace, DataConverter: o.DataConverter}
	worlds, err := config.openWorlds(server)
	if err != nil {
		return nil, err
	}
	registry := activities.NewRegistry(append(worlds, o.Worlds...)...)
	if err := config.checkGates(registry.Specs()); err != nil {
		return nil, err
	}
	rules, err := config.openPolicy()
	if err != nil {
		return nil, err
	}
	signers, err := config.openSigners()
	if err != nil {
		return nil, err
	}
	if err := checkAttributes(ctx, o.Client, o.Namespace); err != nil {
		return nil, err
	}
	keeps, err := Retention(ctx, o.Client, o.Namespace)
	if err != nil {
		return nil, err
	}
	for _, w := range append(worlds, o.Worlds...) {
		if w.Prepare == nil {
			continue
		}
		if err := w.Prepare(ctx); err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
	}
	own := builtin{
		server: server, converter: o.DataConverter, registry: registry, config: config, rules: rules, signers: signers,
		passes: passesOf(config), decisions: decisionsOf(config), spent: spentOf(config), retention: keeps,
	}
	w := &Worker{Registry: registry, Config: config, calls: newCalls(), failed: make(chan error, 2)}
	if config.Listen != "" {
		address, stop, err := o.Metrics.serve(config.Listen, o.Client, o.Namespace, config.Host)
		if err != nil {
			return nil, err
		}
		w.Address = address
		w.closers = append(w.closers, stop)
	}
	for _, queue := range config.queues() {
		if err := w.addQueue(o, own, queue); err != nil {
			w.Stop()
			return nil, fmt.Errorf("worker: %w", err)
		}
	}
	for _, each := range w.workers {
		if err := each.Start(); err != nil {
			w.Stop()
			return nil, fmt.Errorf("worker: %w", err)
		}
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	go func() { registry.Watch(watching); close(watched) }()
	w.closers = append(w.closers, func() { stop(); <-watched })
	if config.Schedules == on {
		if err := ensureSchedules(ctx, o.Client, config); err != nil {
			w.Stop()
			return nil, err
		}
	}
	return w, nil
}

// deadlockLimit is how long a workflow task may run without yielding. The SDK's own second is too
// short for one that starts 10,000 steps on a busy machine.
const deadlockLimit = 10 * time.Second

// shownEvery is how often the server learns how far a running step has come, at most.
const shownEvery = 2 * time.Second

// contextPollers is how many long polls a worker keeps open for the one workflow on its host's own
// queue, which is seldom asked for.
const contextPollers = 2

// addQueue makes the worker of one queue. Workflows run only on the shared one, except for the one
// that hands out what lies on a host.
func (w *Worker) addQueue(o Options, b builtin, queue string) error {
	shared := queue == w.Config.Queue
	tuner, err := w.calls.tuner(w.Config.Activities)
	if err != nil {
		return err
	}
	workflowPollers := contextPollers
	if shared {
		workflowPollers = pollers
	}
	each := worker.New(o.Client, queue, worker.Options{
		Identity:                         w.Config.Host,
		Tuner:                            tuner,
		MaxConcurrentActivityTaskPollers: pollers,
		MaxConcurrentWorkflowTaskPollers: workflowPollers,
		WorkerStopTimeout:                w.Config.StopTimeout,
		DeadlockDetectionTimeout:         deadlockLimit,
		MaxHeartbeatThrottleInterval:     min(w.Config.Heartbeat/2, shownEvery),
		DefaultHeartbeatThrottleInterval: min(w.Config.Heartbeat/2, shownEvery),
		OnFatalError: func(err error) {
			select {
			case w.failed <- err:
			default:
			}
		},
	})
	if shared {
		workflows.Register(each, b.checkSteps)
		if o.Register != nil {
			o.Register(each)
		}
	}
	workflows.RegisterContexts(each, contextsOf(w.Config))
	b.register(each)
	w.Registry.Register(each, b.host())
	w.workers = append(w.workers, each)
	return nil
}

// Failed yields the error that made a running worker give up, such as a deleted namespace.
func (w *Worker) Failed() <-chan error { return w.failed }

// Stop lets running activities finish for Config.StopTimeout, then cancels them, which does not use
// up an attempt. It returns when the server knows how they ended, so that the client can be closed,
// or 5 seconds after the cancellation.
func (w *Worker) Stop() {
	done := make(chan struct{})
	for _, each := range w.workers {
		go func() {
			each.Stop()
			done <- struct{}{}
		}()
	}
	for range w.workers {
		<-done
	}
	w.calls.wait() // the SDK cancels without waiting for the end
	for _, stop := range w.closers {
		stop()
	}
}

// checkAttributes refuses a server that lacks a search attribute: a task that sets it would hang.
func checkAttributes(ctx context.Context, c client.Client, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	missing, command, err := devserver.MissingSearchAttributes(ctx, c, namespace)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("the Temporal namespace %s lacks search attributes; register them with\n  %s", namespace, command)
	}
	return nil
}
