// Package keyvaluetest is what the tests of the worlds of key-value databases share.
package keyvaluetest

import (
	"bytes"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy stands between a world and its server, and cuts the line behind the first request that
// holds a text: before the server has it, or when it has acted.
type Proxy struct {
	Text string
	// Instead is a text of the same length that the server gets in place of Text. The line is not cut
	// then.
	Instead string
	// Answered sends that request on, and cuts the line when the server has answered.
	Answered bool
	// Acted waits until the server has acted on that request, where its first answer does not tell.
	// Defaults to that answer.
	Acted func()
	// Found is called before the server gets that request, and Ended is closed when that line is cut.
	Found func()
	Ended chan struct{}
	// Read is called for each piece of a request.
	Read func()
}

// Listen serves an address, and returns it. Far is that of the server.
func (p Proxy) Listen(t testing.TB, network, near, far string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, near)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(from, network, far)
		}
	}()
	return l.Addr().String()
}

func (p Proxy) serve(from net.Conn, network, far string) {
	defer from.Close()
	to, err := net.Dial(network, far) //nolint:noctx // it ends with its server
	if err != nil {
		return
	}
	var cut atomic.Bool
	answers := make(chan struct{})
	go func() {
		defer close(answers)
		defer from.Close()
		p.answer(from, to, &cut)
	}()
	buffer := make([]byte, 1<<16)
	for !cut.Load() {
		n, err := from.Read(buffer)
		if err != nil {
			break
		}
		if p.Read != nil {
			p.Read()
		}
		if p.Instead != "" {
			copy(buffer, bytes.ReplaceAll(buffer[:n], []byte(p.Text), []byte(p.Instead)))
		} else if bytes.Contains(buffer[:n], []byte(p.Text)) {
			cut.Store(true)
			if !p.Answered {
				break
			}
			if p.Found != nil {
				p.Found()
				defer close(p.Ended)
			}
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			break
		}
	}
	if cut.Load() && p.Answered {
		<-answers
	}
	_ = to.Close()
	<-answers
}

// answer hands answers on until the line is cut.
func (p Proxy) answer(from, to net.Conn, cut *atomic.Bool) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := to.Read(buffer)
		if err != nil {
			return
		}
		if cut.Load() {
			if p.Acted != nil {
				p.Acted()
			}
			return
		}
		if _, err := from.Write(buffer[:n]); err != nil {
			return
		}
	}
}
