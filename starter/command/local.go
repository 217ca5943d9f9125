package command

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

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// local is a worker in this process, on a Temporal server that was started for it, or on the one that the user named.
type local struct {
	*connection
	Worker *host.Worker
	// Server is nil where the user named one.
	Server *devserver.Server

	closers []func()
}

// localOptions say what to start.
type localOptions struct {
	// Config is the worker's.
	Config host.Config
	// Folder is where the server's database is. Defaults to the worker's state folder.
	Folder string
	// Worlds are served beside those of the config.
	Worlds []activities.World
	// UI is the Temporal UI of a server that the user named, for links.
	UI string
	// Port and UIPort are those of the server; zero takes free ones.
	Port, UIPort int
	// Log gets a line about each thing that takes long.
	Log io.Writer
}

// startLocal starts a server, unless the user named one, and a worker. Other commands of the user find the server while
// it runs.
func startLocal(ctx context.Context, o localOptions) (*local, error) {
	l := &local{}
	if err := l.start(ctx, o); err != nil {
		l.Stop()
		return nil, err
	}
	return l, nil
}

func (l *local) start(ctx context.Context, o localOptions) (err error) {
	if o.Config, err = o.Config.WithDefaults(); err != nil {
		return usageError{err}
	}
	if err := o.Config.Validate(); err != nil {
		return usageError{err}
	}
	options, named, err := devserver.Configured()
	if err != nil {
		return usageError{err}
	}
	if o.Folder == "" {
		o.Folder = o.Config.State
	}
	l.connection = &connection{Namespace: options.Namespace, Address: options.HostPort, UI: o.UI}
	if !named {
		if err := l.startServer(ctx, o, options.Namespace); err != nil {
			return err
		}
		options = l.Server.ClientOptions() // what a profile says of TLS and keys is for its own server
	}
	if l.Namespace == "" {
		l.Namespace = client.DefaultNamespace
	}
	metrics := host.NewMetrics()
	l.closers = append(l.closers, metrics.Close)
	options.Namespace, options.Logger, options.MetricsHandler = l.Namespace, quiet(), metrics.Handler
	if l.Client, err = client.DialContext(ctx, options); err != nil {
		return noServer(l.Address, "named by TEMPORAL_ADDRESS or the profile of the temporal CLI", err)
	}
	l.closers = append(l.closers, l.Close)
	l.Worker, err = host.Start(ctx, o.Config, host.Options{Client: l.Client, Namespace: l.Namespace, Metrics: metrics, Worlds: o.Worlds})
	if err != nil {
		return err
	}
	l.closers = append(l.closers, l.Worker.Stop)
	return nil
}

// startServer starts a server on the database of a folder, and tells other commands of it.
func (l *local) startServer(ctx context.Context, o localOptions, namespace string) error {
	unlock, err := lockFolder(o.Folder)
	if err != nil {
		return err
	}
	l.closers = append(l.closers, unlock)
	for _, port := range []int{o.Port, o.UIPort} {
		if port != 0 && answers(net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) {
			return usagef("port %d is already in use; give another port, or 0 for a free one", port)
		}
	}
	l.Server, err = devserver.Start(ctx, devserver.Options{
		DB: filepath.Join(o.Folder, "dev.db"), Namespace: namespace, UI: true, Port: o.Port, UIPort: o.UIPort, Log: o.Log,
	})
	if err != nil {
		return err
	}
	l.closers = append(l.closers, func() {
		if err := l.Server.Stop(); err != nil {
			fmt.Fprintln(o.Log, err)
		}
	})
	l.Address, l.Namespace, l.UI = l.Server.Address, l.Server.Namespace, l.Server.UIURL
	forget, err := devFile{Address: l.Address, Namespace: l.Namespace, UI: l.UI, PID: os.Getpid()}.write(o.Folder)
	if err != nil {
		return fmt.Errorf("tell other commands of the server: %w", err)
	}
	l.closers = append(l.closers, forget)
	return nil
}

// Wait waits until ctx ends, which is no error, or the server or the worker gives up.
func (l *local) Wait(ctx context.Context) error {
	var ended <-chan struct{}
	if l.Server != nil {
		ended = l.Server.Done()
	}
	select {
	case <-ctx.Done():
		return nil
	case <-ended:
		return errors.Join(l.Server.Err(), errors.New("the Temporal server has ended"))
	case err := <-l.Worker.Failed():
		return fmt.Errorf("the worker gave up: %w", err)
	}
}

// Stop ends what was started, the worker first.
func (l *local) Stop() {
	for _, stop := range slices.Backward(l.closers) {
		stop()
	}
	l.closers = nil
}
