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

// waitReady returns when the server serves: its ports are open, workflows can be listed, the search attributes are known.
func (s *Server) waitReady(ctx context.Context) error {
	addresses := []string{s.Address}
	if s.UIURL != "" {
		addresses = append(addresses, strings.TrimPrefix(s.UIURL, "http://"))
	}
	for _, a := range addresses {
		// A plain connection first: a gRPC client that finds nobody backs off for a second.
		if err := s.poll(ctx, func() error { return reachable(ctx, a) }); err != nil {
			return err
		}
	}
	opts := s.ClientOptions()
	opts.Logger = silent{}
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
	// They are there at once where this start made the namespace; a database from an older Unwind may lack some.
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

// poll calls f until it succeeds, ctx ends or the server does.
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

// silent keeps the client's log out of the way: what it says while the server comes up is no news.
type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}
