package devserver

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// The signal for a parent's death belongs to a thread, and exec keeps that of the calling thread:
// the stand-in for the CLI must call exec from the thread that was started with the signal.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // only here it is certain which thread this is

const beTheParent = "UNWIND_TEST_BE_THE_PARENT"

// TestMain makes the test binary serve also as the temporal CLI (by a link of that name) and as a
// process that starts a server.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "temporal":
		if err := runFakeCLI(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "fake temporal:", err)
			os.Exit(1)
		}
	case os.Getenv(beTheParent) != "":
		if err := startAndWait(); err != nil {
			fmt.Fprintln(os.Stderr, "parent:", err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}
