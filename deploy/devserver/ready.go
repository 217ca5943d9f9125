package devserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

const pollEvery = 20 * time.Millisecond

// waitReady returns when the server is ready: its ports are open, workflows can be listed, the
// search attributes are known.
func (s *Server) waitReady(ctx context.Context) error {
	addresses := []string{s.Address}
	if s.UIURL != "" {
		addresses = append(addresses, strings.TrimPrefix(s.UIURL, "http://"))
	}
	for _, a := range addresses {
		// A plain connection first, because a gRPC client that finds no server backs off for a second.
		if err := s.poll(ctx, func() error { return reachable(ctx, a) }); err != nil {
			return err
		}
	}
	opts := s.ClientOptions()
	opts.Logger = noLogger{}
	c, err := client.NewLazyClient(opts)
	if err != nil {
		return err
	}
	defer c.Close()
	err = s.poll(ctx, func() error {
		_, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1})
		return err
	})
	if err != nil {
		return err
	}
	// If this start made the namespace, they exist already; a database from an older Unwind may lack
	// some.
	if err := EnsureSearchAttributes(ctx, c, s.Namespace); err != nil {
		return err
	}
	return keepHistories(ctx, c, s.Namespace)
}

func reachable(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// poll calls f until it succeeds, or ctx or the server ends.
func (s *Server) poll(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-s.child.done:
			return fmt.Errorf("it ended: %w", orExitZero(s.child.waitErr))
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case <-time.After(pollEvery):
		}
	}
}

func orExitZero(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// noLogger drops the client's log: connection errors are expected while the server starts.
type noLogger struct{}

func (noLogger) Debug(string, ...any) {}
func (noLogger) Info(string, ...any)  {}
func (noLogger) Warn(string, ...any)  {}
func (noLogger) Error(string, ...any) {}
