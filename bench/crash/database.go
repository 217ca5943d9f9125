package crash

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// databaseServer is a server of databases, which keeps what it has acknowledged when it is killed.
type databaseServer interface {
	Kill()
	Restart() error
	// lingering is what is left over of ours when all workers have ended.
	lingering(ctx context.Context) ([]string, error)
}

// database is a server of databases that the workers reach over a wire.
type database struct {
	databaseServer
	wire     *wire
	starting sync.Mutex // one restart at a time
}

// serveDatabase lets the workers reach the server of a world at an address. The server is killed,
// stalled and cut off by the world's name.
func (r *run) serveDatabase(world string, s databaseServer, network, address string,
	dial func(context.Context) (net.Conn, error)) error {
	way, err := newWire(network, address, dial)
	if err != nil {
		return err
	}
	d := &database{databaseServer: s, wire: way}
	r.closers = append(r.closers, func() error { d.wire.close(); return nil })
	r.databases[world] = d
	return nil
}

// restartDatabase kills the server of a world, and starts it again after a while.
func (r *run) restartDatabase(ctx context.Context, world string, after time.Duration) error {
	d := r.databases[world]
	d.starting.Lock()
	defer d.starting.Unlock()
	d.Kill()
	r.kills.Add(1)
	pause(ctx, after)
	if err := d.Restart(); err != nil {
		return fmt.Errorf("the server of world %s does not start again: %w", world, err)
	}
	r.mu.Lock()
	r.figures.Databases++
	r.mu.Unlock()
	return nil
}

// insist does something again for as long as the server may be starting.
func insist(ctx context.Context, do func() error) error {
	for began := time.Now(); ; pause(ctx, again) {
		err := do()
		if err == nil || ctx.Err() != nil || time.Since(began) > time.Minute {
			return err
		}
	}
}

// untilNone looks until nothing is left, which may take a moment, and returns what is left in the
// end.
func untilNone(ctx context.Context, look func() ([]string, error)) (left []string, err error) {
	for began := time.Now(); ; pause(ctx, again) {
		if left, err = look(); err != nil || len(left) == 0 || time.Since(began) > stopLimit {
			return left, err
		}
	}
}

// judgeRecord judges the state of a token's record in a database; empty if there is none.
func (v *verdict) judgeRecord(id, token, state string, kept bool) {
	switch {
	case kept && state != "applied":
		v.Lost = append(v.Lost,
			fmt.Sprintf("%s: the record of token %s is %q, though its step is committed", id, token, state))
	case !kept && (state == "applied" || state == "undoing"):
		v.Orphaned = append(v.Orphaned, fmt.Sprintf("%s: the record of token %s is %s", id, token, state))
	}
}
