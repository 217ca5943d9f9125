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

// waitReady returns when a client can do everything it needs: reach the frontend, list workflows in
// the namespace, open the UI.
func waitReady(ctx context.Context, at ready, namespace string, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the server did not get ready within %s", limit))
	defer cancel()
	c, err := client.NewLazyClient(client.Options{HostPort: at.Address, Namespace: namespace, Logger: noLogger{}})
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

// noLogger drops the client's log: connection errors are expected while the server starts.
type noLogger struct{}

func (noLogger) Debug(string, ...any) {}
func (noLogger) Info(string, ...any)  {}
func (noLogger) Warn(string, ...any)  {}
func (noLogger) Error(string, ...any) {}
