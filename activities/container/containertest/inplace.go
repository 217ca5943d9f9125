package containertest

import (
	"os"
	"slices"
	"testing"

	"github.com/seed-62bf7108/unwind/testrun"
)

// Socket is the address of the engine whose files tests read in place.
const Socket = "unix:///var/run/docker.sock"

// NeedFiles skips a test where the files of the engine's containers are not in folders of this
// host, or are not this user's.
func NeedFiles(t testing.TB) {
	t.Helper()
	testrun.NeedRoot(t, "the files of containers and volumes")
	info, err := Docker(t).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	switch _, missing := os.Stat(info.DockerRootDir); {
	case os.Getenv("DOCKER_HOST") != "" || missing != nil:
		testrun.Skipf(t, "the engine is not at %s on this host", Socket)
	case !slices.Contains([]string{"overlay2", "fuse-overlayfs"}, info.Driver):
		testrun.Skipf(t, "the engine keeps files by %s; it is to be overlay2", info.Driver)
	}
}
