package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/requestlimit"
)

// Stack is a worker in this process, on a Temporal server of its own or on the one that the user
// named.
type Stack struct {
	*tasks.Client
	Worker *host.Worker
	// Temporal is nil if the user named a server.
	Temporal *devserver.Server

	closers []func()
}

// Options configure a Stack.
type Options struct {
	// Config is the worker's.
	Config host.Config
	// Folder is where the server's database is. Defaults to the worker's state folder.
	Folder string
	// Worlds are served in addition to those of the config.
	Worlds []activities.World
	// UI is the Temporal UI of a server that the user named, for links.
	UI string
	// Port and UIPort are those of the server; zero means a free one.
	Port, UIPort int
	// Log receives a line about everything that takes long.
	Log io.Writer
}

// Start starts a worker, and a server unless the user named one. While it runs, other commands of
// the user find it.
func Start(ctx context.Context, o Options) (*Stack, error) {
	l := &Stack{}
	if err := l.startAll(ctx, o); err != nil {
		l.Stop()
		return nil, err
	}
	return l, nil
}

func (l *Stack) startAll(ctx context.Context, o Options) (err error) {
	if o.Config, err = o.Config.WithDefaults(); err != nil {
		return usage.Wrap(err)
	}
	if err := o.Config.Validate(); err != nil {
		return usage.Wrap(err)
	}
	options, named, err := devserver.Configured(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return usage.Wrap(err)
	}
	if o.Folder == "" {
		o.Folder = o.Config.State
	}
	l.Client = &tasks.Client{Server: tasks.Server{Namespace: options.Namespace, Address: options.HostPort, UI: o.UI}}
	if !named {
		if err := l.startServer(ctx, o, options.Namespace); err != nil {
			return err
		}
		options = l.Temporal.ClientOptions() // a profile's TLS and keys are for its own server
	}
	if l.Namespace == "" {
		l.Namespace = client.DefaultNamespace
	}
	metrics := host.NewMetrics()
	l.closers = append(l.closers, metrics.Close)
	options.Namespace, options.Logger, options.MetricsHandler = l.Namespace, tasks.DiscardLog(), metrics.Handler
	options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, requestlimit.DialOption())
	if l.Client.Client, err = client.DialContext(ctx, options); err != nil {
		return tasks.NoServer(l.Address, "named by TEMPORAL_ADDRESS or the profile of the temporal CLI", err)
	}
	l.closers = append(l.closers, l.Close)
	l.Worker, err = host.Start(ctx, o.Config,
		host.Options{Client: l.Client.Client, Namespace: l.Namespace, Metrics: metrics, Worlds: o.Worlds})
	if err != nil {
		return err
	}
	l.closers = append(l.closers, l.Worker.Stop)
	return nil
}

// startServer starts a server on the database of a folder, and publishes its address to other
// commands.
func (l *Stack) startServer(ctx context.Context, o Options, namespace string) error {
	unlock, err := LockFolder(o.Folder)
	if err != nil {
		return err
	}
	l.closers = append(l.closers, unlock)
	for _, port := range []int{o.Port, o.UIPort} {
		if port != 0 && tasks.IsListening(net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) {
			return usage.Errorf("port %d is already in use; give another port, or 0 for a free one", port)
		}
	}
	l.Temporal, err = devserver.Start(ctx, devserver.Options{
		DB: filepath.Join(o.Folder, "dev.db"), Namespace: namespace, UI: true, Port: o.Port, UIPort: o.UIPort, Log: o.Log,
	})
	if err != nil {
		return err
	}
	l.closers = append(l.closers, func() {
		if err := l.Temporal.Stop(); err != nil {
			fmt.Fprintln(o.Log, err)
		}
	})
	l.Address, l.Namespace, l.UI = l.Temporal.Address, l.Temporal.Namespace, l.Temporal.UIURL
	forget, err := DevFile{Address: l.Address, Namespace: l.Namespace, UI: l.UI, PID: os.Getpid()}.Write(o.Folder)
	if err != nil {
		return fmt.Errorf("publish the server's address to other commands: %w", err)
	}
	l.closers = append(l.closers, forget)
	return nil
}

// Wait waits until ctx ends, which is no error, or until the server or the worker fails.
func (l *Stack) Wait(ctx context.Context) error {
	var ended <-chan struct{}
	if l.Temporal != nil {
		ended = l.Temporal.Done()
	}
	select {
	case <-ctx.Done():
		return nil
	case <-ended:
		return errors.Join(l.Temporal.Err(), errors.New("the Temporal server has ended"))
	case err := <-l.Worker.Failed():
		return fmt.Errorf("the worker gave up: %w", err)
	}
}

// Stop stops the worker, then the server.
func (l *Stack) Stop() {
	for _, stop := range slices.Backward(l.closers) {
		stop()
	}
	l.closers = nil
}
