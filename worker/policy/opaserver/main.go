// Command opaserver is a server of the Open Policy Agent for tests: its own REST API over a store
// in memory, with a bundle of the revision that it is given, into which policies can be put. It
// prints its address once it listens, and runs until its input ends.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/plugins"
	"github.com/open-policy-agent/opa/v1/server"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "opaserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, revision string) error {
	store := inmem.New()
	// The roots of the bundle leave the rest to policies that are put there by the API.
	manifest := bundle.Manifest{Revision: revision, Roots: &[]string{"elsewhere"}}
	err := storage.Txn(ctx, store, storage.WriteParams, func(txn storage.Transaction) error {
		return bundle.WriteManifestToStore(ctx, store, txn, "tests", manifest)
	})
	if err != nil {
		return err
	}
	manager, err := plugins.New(nil, "opaserver", store)
	if err != nil {
		return err
	}
	if err := manager.Start(ctx); err != nil {
		return err
	}
	opa, err := server.New().WithStore(store).WithManager(manager).
		WithDecisionIDFactory(func() string { return "decision-1" }).Init(ctx)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = l.Close()
	}()
	_ = http.Serve(l, opa.Handler) //nolint:gosec // it ends with the test
	return nil
}
