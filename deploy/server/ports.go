package main

import (
	"fmt"
	"net"
)

// ports are where the services listen, all on the loopback interface.
type ports struct {
	frontend, history, matching, worker, ui int
}

// choosePorts returns the given ports, with free ones in place of zeros.
func choosePorts(frontend, ui int) (ports, error) {
	p := ports{frontend: frontend, ui: ui}
	for _, port := range []int{frontend, ui} {
		if port == 0 {
			continue
		}
		// Checked here, because the UI would print to stdout that its port is taken, and end the process.
		l, err := net.Listen("tcp", loopbackAddress(port))
		if err != nil {
			return p, fmt.Errorf("port %d cannot be used: %w; choose another with --port or --ui-port, 0 for a free one", port,
				err)
		}
		l.Close()
	}
	for _, port := range []*int{&p.frontend, &p.history, &p.matching, &p.worker, &p.ui} {
		if *port != 0 {
			continue
		}
		free, err := freePort()
		if err != nil {
			return p, err
		}
		*port = free
	}
	return p, nil
}

// freePort returns a port that the kernel does not hand out again for a while: a connection that
// was made and closed on it stays in TIME_WAIT, so the port is not chosen as an ephemeral one and
// yet a server can bind it.
func freePort() (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	// The side that closes first gets the TIME_WAIT: it has to be the one that owns the port.
	in.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
