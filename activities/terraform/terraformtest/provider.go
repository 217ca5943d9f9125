package terraformtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-62bf7108/unwind/internal/filelock"
	"github.com/seed-62bf7108/unwind/testrun"
)

// Source is the provider's address, for required_providers. Its resource is fake_thing: a file in
// the provider's dir.
const Source = "unwind.test/unwind/fake"

const (
	version = "1.0.0"
	module  = "github.com/seed-62bf7108/unwind/activities/terraform/"
)

// Require skips a test where there is no terraform, and fails it where CI=true.
func Require(t testing.TB) {
	t.Helper()
	testrun.NeedProgram(t, "terraform",
		"install it (https://developer.hashicorp.com/terraform/install), version 1.5 or later")
}

// CLIConfig returns a file of Terraform settings (for TF_CLI_CONFIG_FILE) under which the provider
// is found and the network is not used. The provider is built once for each version of its source,
// into the user's cache.
func CLIConfig(t testing.TB) string {
	t.Helper()
	path, err := cliConfig()
	if err != nil {
		t.Fatalf("the test provider: %v", err)
	}
	return path
}

func cliConfig() (string, error) {
	here, err := exec.Command("go", "list", "-f", "{{.Dir}}", module+"terraformtest").Output()
	if err != nil {
		return "", err
	}
	source := filepath.Join(filepath.Dir(strings.TrimSpace(string(here))), "fakeprovider") // a module of its own
	key, err := keyOf(source)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "unwind", "fakeprovider-"+key)
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	config := filepath.Join(dir, "terraform.rc")
	if _, err := os.Stat(config); err == nil {
		return config, nil
	}
	mirror := filepath.Join(dir, "mirror")
	program := filepath.Join(mirror, filepath.FromSlash(Source), version, runtime.GOOS+"_"+runtime.GOARCH,
		"terraform-provider-fake_v"+version)
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	build.Dir = source
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, said)
	}
	text := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror)
	return config, os.WriteFile(config, []byte(text), 0o644)
}

// keyOf tells versions of the source apart.
func keyOf(source string) (string, error) {
	h := sha256.New()
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		h.Write(b)
	}
	fmt.Fprint(h, runtime.Version())
	return hex.EncodeToString(h.Sum(nil)[:6]), nil
}

func lock(path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	l, err := filelock.Acquire(context.Background(), path)
	if err != nil {
		return nil, err
	}
	return l.Release, nil
}
