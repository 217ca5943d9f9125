package servertest

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
)

// The first start on a machine builds the server, or waits for a package's test that does.
const startLimit = 8 * time.Minute

var shared = sync.OnceValues(func() (*devserver.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return devserver.Start(ctx, devserver.Options{Log: os.Stderr})
})

// Shared is this process's server, in memory, started at its first use; it ends with the process. Tests share its one
// namespace: they need task queues and workflow ids of their own, and must not stop it.
func Shared(t testing.TB) *devserver.Server {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Client is a client of the Shared server, closed with the test.
func Client(t testing.TB) client.Client {
	t.Helper()
	c, err := client.Dial(Shared(t).ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
