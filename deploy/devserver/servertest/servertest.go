package servertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/deploy/devserver"
)

// The first start on a machine builds the server, or waits for another package's tests to build it.
const startLimit = 8 * time.Minute

var shared = sync.OnceValues(func() (*devserver.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return devserver.Start(ctx,
		devserver.Options{Log: os.Stderr, Settings: map[string]any{deletesWithin: 1, pauses: true}})
})

// deletesWithin are the seconds in which the server notes that a workflow is closed, which it waits
// for before it deletes it. Without it that takes half a minute.
const deletesWithin = "history.transferProcessorUpdateAckInterval"

// pauses lets workflows be paused.
const pauses = "frontend.WorkflowPauseEnabled"

// Shared returns this process's server, which is in memory, starts at its first use, and ends with
// the process. Tests share its one namespace: they need their own task queues and workflow ids, and
// must not stop it.
func Shared(t testing.TB) *devserver.Server {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Client returns a client of the Shared server, which is closed with the test.
func Client(t testing.TB) client.Client {
	t.Helper()
	c, err := client.Dial(Shared(t).ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Codec serves a codec as organizations do that encrypt their payloads, to whom has the key, until
// the test ends. It returns the address.
func Codec(t testing.TB, codec converter.PayloadCodec, key string) string {
	handler := converter.NewPayloadCodecHTTPHandler(codec)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != key {
			http.Error(w, "who are you", http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
