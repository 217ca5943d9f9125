package terraformtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// front is the program that PlainFront builds.
var front struct {
	once sync.Once
	dir  string
	err  error
}

// PlainFront makes a worker with this state folder start terraform by a program that is built
// without the race detector, in place of the test binary itself: to start that is most of what a
// short terraform costs. The points of front and supervisor are not in the test's hands then. It is
// called before the worker's world is opened; RemoveFront, at the end of TestMain, removes the
// program.
func PlainFront(t testing.TB, state string) {
	t.Helper()
	front.once.Do(buildFront)
	err := front.err
	if err == nil {
		err = os.MkdirAll(filepath.Join(state, "bin"), 0o700)
	}
	if err == nil {
		err = os.Symlink(filepath.Join(front.dir, "front"), filepath.Join(state, "bin", "unwind-terraform"))
	}
	if err != nil {
		t.Fatalf("the front of terraform: %v", err)
	}
}

func buildFront() {
	if front.dir, front.err = os.MkdirTemp("", "unwind-front-"); front.err != nil {
		return
	}
	if said, err := exec.Command("go", "build", "-o", filepath.Join(front.dir, "front"),
		module+"terraformtest/front").CombinedOutput(); err != nil {
		front.err = fmt.Errorf("%w\n%s", err, said)
	}
}

// RemoveFront removes what PlainFront has built.
func RemoveFront() {
	if front.dir != "" {
		_ = os.RemoveAll(front.dir) // in the system's folder for what is temporary
	}
}
