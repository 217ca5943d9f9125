package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

const pollEvery = 20 * time.Millisecond

// waitReady returns once a client can do all it needs: reach the frontend, list workflows in the namespace, open the UI.
func waitReady(ctx context.Context, at ready, namespace string, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the server did not get ready within %s", limit))
	defer cancel()
	c, err := client.NewLazyClient(client.Options{HostPort: at.Address, Namespace: namespace, Logger: silent{}})
	if err != nil {
		return err
	}
	defer c.Close()
	listed := func() error {
		_, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1})
		return err
	}
	if err := poll(ctx, listed); err != nil || at.UI == "" {
		return err
	}
	return poll(ctx, func() error { return get(ctx, at.UI) })
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// poll calls f until it succeeds or ctx ends.
func poll(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pollEvery):
		}
	}
}

// silent keeps the client's log out of the way: what it says while the server is coming up is no news.
type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}
