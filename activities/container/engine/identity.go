package engine

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/client"
)

// docker is a client that remembers who its engine is. Asking is dear: an engine starts programs to answer. Another engine
// behind the same address is one to which no connection leads yet; so what was said holds until one is dialed.
type docker struct {
	*client.Client

	dials atomic.Int64
	known atomic.Pointer[identity]
}

// identity is what an engine has said after so many dials.
type identity struct {
	id, root string
	dials    int64
}

// idleConnections is how many connections wait for the next request: one that is closed for want of room has to be dialed
// again.
const idleConnections = 64

// countDials is a client's option, the last of them.
func (d *docker) countDials(c *client.Client) error {
	t, ok := c.HTTPClient().Transport.(*http.Transport)
	if !ok {
		return nil // then nothing is remembered: see EngineID
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

// EngineID is the engine's own id.
func (d *docker) EngineID(ctx context.Context) (string, error) {
	is, err := d.identify(ctx)
	return is.id, err
}

// Events first makes sure that the client has agreed on a version with its engine: the client's own reads the version while another
// call may still be writing it.
func (d *docker) Events(ctx context.Context, options events.ListOptions) (<-chan events.Message, <-chan error) {
	if _, err := d.identify(ctx); err != nil {
		failed := make(chan error, 1)
		failed <- err
		return nil, failed
	}
	return d.Client.Events(ctx, options)
}

// DataRoot is the folder on the engine's host where it has its images and containers.
func (d *docker) DataRoot(ctx context.Context) (string, error) {
	is, err := d.identify(ctx)
	return is.root, err
}

// identify asks the engine who it is, unless it has said so over a connection that still leads to it.
func (d *docker) identify(ctx context.Context) (identity, error) {
	const doing = "asking the container engine who it is"
	if _, err := d.Ping(ctx); err != nil { // it dials, where what there was is closed
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
	if dials > 0 && dials == d.dials.Load() { // else it may have been another one
		d.known.Store(&is)
	}
	return is, nil
}

// CopyFromContainer leaves a connection that can be used again.
func (d *docker) CopyFromContainer(ctx context.Context, id, at string) (io.ReadCloser, container.PathStat, error) {
	stream, stat, err := d.Client.CopyFromContainer(ctx, id, at)
	return readToTheEnd{stream}, stat, err
}

// ContainerExport leaves a connection that can be used again.
func (d *docker) ContainerExport(ctx context.Context, id string) (io.ReadCloser, error) {
	stream, err := d.Client.ContainerExport(ctx, id)
	return readToTheEnd{stream}, err
}

// readToTheEnd is an answer of which nothing is left unread when it is closed, unless that is much: what is left unread
// closes the connection.
type readToTheEnd struct{ io.ReadCloser }

const muchLeft = 64 << 10

func (r readToTheEnd) Close() error {
	_, _ = io.CopyN(io.Discard, r.ReadCloser, muchLeft) // whether it ends here, or fails, it is closed
	return r.ReadCloser.Close()
}
