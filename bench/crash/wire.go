package crash

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// wire is a proxy between workers and the container engine or the Temporal server that can stall
// and break.
type wire struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)

	flow sync.RWMutex // whoever writes, reads; a stall writes

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// newWire listens for what dial leads to.
func newWire(network, address string, dial func(context.Context) (net.Conn, error)) (*wire, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	w := &wire{listener: l, dial: dial, conns: map[net.Conn]bool{}}
	go w.accept()
	return w, nil
}

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		go w.join(near)
	}
}

func (w *wire) join(near net.Conn) {
	defer near.Close()
	far, err := w.dial(context.Background())
	if err != nil {
		return
	}
	defer far.Close()
	w.hold(near, far)
	defer w.release(near, far)
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		go func() {
			w.pump(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done
	<-done
}

// pump copies one direction to its end, and hands the end on.
func (w *wire) pump(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			w.flow.RLock()
			_, werr := to.Write(buf[:n])
			w.flow.RUnlock()
			err = errors.Join(err, werr)
		}
		if err == nil {
			continue
		}
		half, ok := to.(interface{ CloseWrite() error })
		if !errors.Is(err, io.EOF) || !ok || half.CloseWrite() != nil {
			_ = from.Close()
			_ = to.Close()
		}
		return
	}
}

func (w *wire) hold(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = true
	}
}

func (w *wire) release(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		delete(w.conns, c)
	}
}

// stall lets nothing through for this long, or until ctx ends.
func (w *wire) stall(ctx context.Context, d time.Duration) {
	w.flow.Lock()
	defer w.flow.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// drop breaks every connection.
func (w *wire) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
	}
}

func (w *wire) close() {
	_ = w.listener.Close()
	w.drop()
}
