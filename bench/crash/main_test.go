package crash

import (
	"os"
	"testing"

	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
)

func TestMain(m *testing.M) {
	// A program with the race detector sleeps a second at its end; supervisors are such programs here.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	Serve(mutants)
	code := m.Run()
	postgrestest.Stop()
	os.Exit(code)
}
