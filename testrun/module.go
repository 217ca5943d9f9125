package testrun

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// StartModule builds the program of a module of its own, in a folder, and runs it until the test ends,
// which closes its input. It returns the first line that the program prints: where it can be reached.
func StartModule(t testing.TB, folder string, args ...string) (address string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(folder))
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = folder
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", folder, err, said)
	}
	p := exec.Command(program, args...)
	p.Stderr = os.Stderr
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := p.Wait(); err != nil {
			t.Errorf("%s: %v", folder, err)
		}
	})
	address, err = bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("%s has not told its address: %v", folder, err)
	}
	return strings.TrimSpace(address)
}
