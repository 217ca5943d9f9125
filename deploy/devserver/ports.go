package devserver

import (
	"fmt"
	"net"
	"strconv"
)

const loopback = "127.0.0.1"

func loopbackAddress(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// choosePorts fills in free ports for those that are not set.
func choosePorts(o *Options) error {
	if o.Port == 0 {
		port, err := freePort()
		if err != nil {
			return err
		}
		o.Port = port
	}
	if o.UI && o.UIPort == 0 {
		port, err := freePort()
		if err != nil {
			return err
		}
		o.UIPort = port
	}
	return nil
}

// freePort returns a port that the kernel does not hand out again for a while: a connection that
// was made and closed on it stays in TIME_WAIT, so the port is not chosen as an ephemeral one and
// yet a server can bind it.
func freePort() (int, error) {
	l, err := net.Listen("tcp", loopbackAddress(0))
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
	in.Close() // the side that closes first gets the TIME_WAIT: it has to be the one that owns the port
	return l.Addr().(*net.TCPAddr).Port, nil
}
