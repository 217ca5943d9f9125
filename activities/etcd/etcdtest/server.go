// Package etcdtest starts real etcd servers for tests.
package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/seed-62bf7108/unwind/testrun"
)

// Server is a running server, a cluster of one member.
type Server struct {
	*testrun.Server

	scheme  string
	address string // of clients
	names   atomic.Int64
}

var start = sync.OnceValues(func() (*Server, error) { return Start() })

// Missing says why no server can be started on this machine; nil where one can.
func Missing() error {
	if _, err := exec.LookPath("etcd"); err != nil {
		return errors.New("there is no etcd on the PATH: apt-get install etcd-server")
	}
	return nil
}

func need(t testing.TB) {
	t.Helper()
	if err := Missing(); err != nil {
		testrun.Skipf(t, "%v", err)
	}
}

// Need returns the server of the test binary.
func Need(t testing.TB) *Server {
	t.Helper()
	need(t)
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Own starts a server for one test, with more options of the program.
func Own(t testing.TB, options ...string) *Server {
	t.Helper()
	need(t)
	s, err := Start(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Start starts a server in a folder of its own, with more options of the program.
func Start(options ...string) (*Server, error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	made, err := testrun.NewServer("etcd")
	if err != nil {
		return nil, err
	}
	s := &Server{Server: made, scheme: "http"}
	for _, each := range options {
		if strings.HasPrefix(each, "--cert-file") {
			s.scheme = "https"
		}
	}
	s.Answers = func() error {
		conn, err := net.Dial("tcp", s.address) //nolint:noctx // it is this machine
		if err != nil {
			return err
		}
		return conn.Close() // it listens when it is ready
	}
	for range 5 { // somebody else may take the port that was free
		if err = s.launch(options); !errors.Is(err, testrun.ErrServerEnded) {
			break
		}
	}
	if err != nil {
		s.Stop()
	}
	return s, err
}

// launch starts the server on ports that are free.
func (s *Server) launch(options []string) (err error) {
	if s.address, err = freeAddress(); err != nil {
		return err
	}
	peers, err := freeAddress()
	if err != nil {
		return err
	}
	peers = "http://" + peers
	s.Command = func() *exec.Cmd {
		return exec.Command("etcd", append([]string{
			"--data-dir", filepath.Join(s.Dir, "data"), "--listen-client-urls", s.Endpoint(), "--advertise-client-urls",
			s.Endpoint(),
			"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers,
			"--heartbeat-interval", "50", "--election-timeout", "500",
		}, options...)...)
	}
	return s.Restart()
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends at once
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Address is where the server listens.
func (s *Server) Address() string { return s.address }

// Endpoint is the URL of the server.
func (s *Server) Endpoint() string { return s.scheme + "://" + s.address }

// Namespace returns a prefix of keys that no other test uses.
func (s *Server) Namespace() string { return fmt.Sprintf("test-%d/", s.names.Add(1)) }

// Client is a client of its own.
func (s *Server) Client(t testing.TB) *client.Client {
	t.Helper()
	c, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Connect makes a client that the caller closes.
func (s *Server) Connect() (*client.Client, error) {
	return client.New(client.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop(), DialTimeout: time.Minute})
}

// Dump is what keys with a prefix hold, except for what is ours: each key with its value and its
// lease. Revisions and versions are not in it.
func Dump(ctx context.Context, c client.KV, prefix string) (string, error) {
	r, err := c.Get(ctx, prefix+"\x00", client.WithRange(client.GetPrefixRangeEnd(prefix)))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, kv := range r.Kvs {
		key := strings.TrimPrefix(string(kv.Key), prefix)
		if !strings.HasPrefix(key, "unwind/") {
			fmt.Fprintf(&b, "%q %q lease %x\n", key, kv.Value, kv.Lease)
		}
	}
	return b.String(), nil
}
