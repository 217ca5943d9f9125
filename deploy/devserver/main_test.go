package devserver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

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
