package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/worker/host"
)

const deploy = "../deploy"

// found is the config that the worker of a deployment finds, with the roots in a folder of the
// test's own.
func found(t *testing.T, path string, args ...string) host.Config {
	t.Helper()
	var served host.Config
	c := command(func(config host.Config) error {
		served = config
		return nil
	})
	src, err := os.ReadFile(path)
	require.NoError(t, err)
	root := t.TempDir()
	here := config(t, regexp.MustCompile(`roots: \[[^\]]*\]`).ReplaceAllLiteralString(string(src), "roots: ["+root+"]"))
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "/etc/unwind/worker.yaml", here)
	}
	t.Setenv("UNWIND_CONFIG", strings.ReplaceAll(os.Getenv("UNWIND_CONFIG"), "/etc/unwind/worker.yaml", here))
	c.SetArgs(args)
	require.NoError(t, c.Execute())
	require.Equal(t, []string{root}, host.SettingsOf[*file.Settings](served).Roots)
	return served
}

// The worker of the compose file finds its config and serves what it says: every root of it is in a
// volume.
func TestTheComposeFileStartsAWorkerThatServes(t *testing.T) {
	src, err := os.ReadFile(filepath.Join(deploy, "compose/docker-compose.yml"))
	require.NoError(t, err)
	var compose struct {
		Services map[string]struct {
			Environment map[string]string
			Volumes     []string
		}
	}
	require.NoError(t, yaml.Unmarshal(src, &compose))
	worker := compose.Services["worker"]
	mounted := map[string]string{}
	for _, v := range worker.Volumes {
		parts := strings.Split(v, ":")
		mounted[parts[1]] = parts[0]
	}
	at := worker.Environment["UNWIND_CONFIG"]
	require.Contains(t, mounted, at)
	path := filepath.Join(deploy, "compose", mounted[at])
	written, err := host.ReadConfig(path)
	require.NoError(t, err)
	for _, root := range host.SettingsOf[*file.Settings](written).Roots {
		require.Contains(t, mounted, root)
	}
	require.Contains(t, mounted, "/var/lib/unwind", "the state that the image names")

	for name, value := range worker.Environment {
		t.Setenv(name, value)
	}
	require.Equal(t, "compose", found(t, path).Host)
}

func TestTheSystemdUnitStartsAWorkerThatServes(t *testing.T) {
	src, err := os.ReadFile(filepath.Join(deploy, "systemd/unwind-worker.service"))
	require.NoError(t, err)
	start := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(string(src))
	require.NotNil(t, start)
	for _, m := range regexp.MustCompile(`(?m)^Environment=(\w+)=(.*)$`).FindAllStringSubmatch(string(src), -1) {
		t.Setenv(m[1], m[2])
	}
	c := found(t, filepath.Join(deploy, "systemd/worker.yaml"), strings.Fields(start[1])[1:]...)
	require.Equal(t, "/var/lib/unwind", c.State)
}
