package crash

import (
	"os"
	"testing"

	"github.com/seed-62bf7108/unwind/testrun"
)

func TestMain(m *testing.M) {
	// A program with the race detector sleeps a second at its end; supervisors are such programs here.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	Serve(mutants)
	code := testrun.RunWaiting(m)
	testrun.StopServers()
	os.Exit(code)
}
