package devserver

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// The signal for a parent's end is kept by a thread, and exec takes that of the thread which calls it: the stand-in for the
// CLI calls it from the one that was started with it.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // only here is it sure which thread this is

const beTheParent = "UNWIND_TEST_BE_THE_PARENT"

// TestMain makes the test binary also the temporal CLI (by a link of that name) and a process that starts a server.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "temporal":
		if err := beTheCLI(os.Args[1:]); err != nil {
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
