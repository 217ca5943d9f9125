package engine

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/client"
)

// rememberingClient is a client that remembers its engine's identity. Asking is expensive: an
// engine starts programs to answer. No connection leads to another engine behind the same address
// yet, so the answer holds until the client dials a new one.
type rememberingClient struct {
	*client.Client

	dials atomic.Int64
	known atomic.Pointer[identity]
}

// identity is the engine's answer after a number of dials.
type identity struct {
	id, root string
	dials    int64
}

// idleConnections is how many idle connections are kept: one that is closed because there are too
// many has to be dialed again.
const idleConnections = 64

// countDials is an option of the client, and must be the last one.
func (d *rememberingClient) countDials(c *client.Client) error {
	t, ok := c.HTTPClient().Transport.(*http.Transport)
	if !ok {
		return nil // then nothing is remembered: see identify
	}
	dial := t.DialContext
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	t.MaxIdleConns, t.MaxIdleConnsPerHost = idleConnections, idleConnections
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		d.dials.Add(1)
		return dial(ctx, network, address)
	}
	return nil
}

// EngineID implements Client.
func (d *rememberingClient) EngineID(ctx context.Context) (string, error) {
	is, err := d.identify(ctx)
	return is.id, err
}

// Events first makes sure that the client has negotiated a version with its engine: the embedded
// client reads the version while another call may still be writing it.
func (d *rememberingClient) Events(ctx context.Context, options events.ListOptions) (<-chan events.Message,
	<-chan error) {
	if _, err := d.identify(ctx); err != nil {
		failed := make(chan error, 1)
		failed <- err
		return nil, failed
	}
	return d.Client.Events(ctx, options)
}

// DataRoot implements Client.
func (d *rememberingClient) DataRoot(ctx context.Context) (string, error) {
	is, err := d.identify(ctx)
	return is.root, err
}

// identify asks the engine for its identity, unless it has answered over a connection that is still
// open.
func (d *rememberingClient) identify(ctx context.Context) (identity, error) {
	const doing = "asking the container engine for its id"
	if _, err := d.Ping(ctx); err != nil { // it dials if the old connections are closed
		return identity{}, Explain(doing, err)
	}
	dials := d.dials.Load()
	if k := d.known.Load(); k != nil && k.dials == dials {
		return *k, nil
	}
	info, err := d.Info(ctx)
	if err != nil {
		return identity{}, Explain(doing, err)
	}
	is := identity{info.ID, info.DockerRootDir, dials}
	if dials > 0 && dials == d.dials.Load() { // otherwise another engine may have answered
		d.known.Store(&is)
	}
	return is, nil
}

// CopyFromContainer leaves a reusable connection.
func (d *rememberingClient) CopyFromContainer(ctx context.Context, id, at string) (io.ReadCloser, container.PathStat,
	error) {
	stream, stat, err := d.Client.CopyFromContainer(ctx, id, at)
	return readToTheEnd{stream}, stat, err
}

// ContainerExport leaves a reusable connection.
func (d *rememberingClient) ContainerExport(ctx context.Context, id string) (io.ReadCloser, error) {
	stream, err := d.Client.ContainerExport(ctx, id)
	return readToTheEnd{stream}, err
}

// readToTheEnd reads the rest of an answer when it is closed, unless there is much left: an unread
// rest closes the connection.
type readToTheEnd struct{ io.ReadCloser }

const muchLeft = 64 << 10

func (r readToTheEnd) Close() error {
	_, _ = io.CopyN(io.Discard, r.ReadCloser, muchLeft) // closed next, whatever this returns
	return r.ReadCloser.Close()
}

// MaxProgram is the largest file that is looked at as a program or a library, in bytes.
const MaxProgram = 64 << 20

// MayMount says that a container's processes may have mounted something over its files, where the
// engine does not see it.
func MayMount(c container.InspectResponse) bool {
	host := c.HostConfig
	return host.Privileged || slices.ContainsFunc(host.CapAdd, func(capability string) bool {
		return slices.Contains([]string{"ALL", "CAP_ALL", "SYS_ADMIN", "CAP_SYS_ADMIN"}, strings.ToUpper(capability))
	})
}
