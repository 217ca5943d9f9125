package host_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// The conformance of environment.checkpoint and environment.rollback, on an environment with one
// folder, whose worker is in the test's process.

func TestEnvironmentCheckpointConforms(t *testing.T) { actiontest.Run(t, environmentCases()[0]) }

func TestEnvironmentRollbackConforms(t *testing.T) { actiontest.Run(t, environmentCases()[1]) }

// chosenID is the id of a checkpoint that a step has taken.
var chosenID = regexp.MustCompile(`cp-[0-9a-f]{16}`)

type parameters = map[string]any

func environmentCases() []actiontest.Case {
	checkpoint := actiontest.Case{
		Name: "environment.checkpoint", Action: "environment.checkpoint",
		With:     func(dir string) any { return parameters{"environment": nameIn(dir), "notes": "one", "pinned": true} },
		Next:     func(dir string) any { return parameters{"environment": nameIn(dir), "notes": "two"} },
		Manifest: storedIn,
		Redone: func(left, now string) bool {
			return chosenID.ReplaceAllString(left, "") == chosenID.ReplaceAllString(now, "")
		},
		Meanwhile: func(t testing.TB, dir string) {
			d := documentIn(dir)
			d.Parts["other"] = environment.Part{Folder: filepath.Join(dir, "other")}
			askIn(t, dir, environment.UpdateApply, nil, d)
		},
	}
	rollback := actiontest.Case{
		Name: "environment.rollback", Action: "environment.rollback",
		With:     func(dir string) any { return parameters{"environment": nameIn(dir), "to": "cp-one"} },
		Next:     func(dir string) any { return parameters{"environment": nameIn(dir), "to": "cp-two"} },
		Manifest: heldIn,
		Drift: func(t testing.TB, dir string) {
			appendTo(t, filepath.Join(dir, "part", "file"), "by someone else")
		},
		Meanwhile: func(t testing.TB, dir string) { takeIn(t, dir, "cp-three") },
	}
	cases := []actiontest.Case{checkpoint, rollback}
	for i := range cases {
		c := &cases[i]
		c.Start, c.Open = startEnvironment, openEnvironment
		c.Checks = []activities.Check{{Command: &activities.CommandCheck{Run: []string{"true"}}}}
		c.Anew, c.Sample, c.EitherWay, c.Serial = true, 1, true, true
	}
	return cases
}

// nameIn is the name of the environment of a test's folder.
func nameIn(dir string) string { return filepath.Base(dir) }

func documentIn(dir string) environment.Document {
	return environment.Document{Name: nameIn(dir),
		Parts: map[string]environment.Part{"part": {Folder: filepath.Join(dir, "part")}}}
}

func configIn(dir string) host.Config {
	c := host.Config{Host: "here", Queue: nameIn(dir) + "@here", State: filepath.Join(dir, "state"), Schedules: "off",
		StopTimeout: 100 * time.Millisecond}
	return c.With(&folder.Settings{Roots: []string{dir}}).With(&host.EnvironmentSettings{Names: []string{"*"}})
}

// addressFile is where the processes of a test find the server.
const addressFile = "server.json"

type address struct{ Address, Namespace string }

var dialed sync.Map // from an address to its client

func connectIn(dir string) (client.Client, string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, addressFile))
	if err != nil {
		return nil, "", err
	}
	var a address
	if err := json.Unmarshal(raw, &a); err != nil {
		return nil, "", err
	}
	if known, is := dialed.Load(a); is {
		return known.(client.Client), a.Namespace, nil
	}
	c, err := client.Dial(client.Options{HostPort: a.Address, Namespace: a.Namespace,
		Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	dialed.Store(a, c)
	return c, a.Namespace, err
}

func openEnvironment(dir string) (activities.World, error) {
	c, namespace, err := connectIn(dir)
	if err != nil {
		return activities.World{}, err
	}
	return host.OpenEnvironments(configIn(dir), recovery.Server{Client: c, Namespace: namespace})
}

func startEnvironment(t testing.TB, dir string) {
	server := servertest.Shared(t)
	raw, err := json.Marshal(address{server.Address, server.Namespace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, addressFile), raw, 0o600))
	for _, name := range []string{"part", "other", "state"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	c, namespace, err := connectIn(dir)
	require.NoError(t, err)
	w, err := host.Start(t.Context(), configIn(dir), host.Options{Client: c, Namespace: namespace})
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	_, err = c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: environment.WorkflowID(nameIn(dir)), TaskQueue: configIn(dir).Queue,
	}, environment.WorkflowType, environment.Start{Document: documentIn(dir)})
	require.NoError(t, err)
	appendTo(t, filepath.Join(dir, "part", "file"), "one")
	takeIn(t, dir, "cp-one")
	appendTo(t, filepath.Join(dir, "part", "file"), "two")
	takeIn(t, dir, "cp-two")
	appendTo(t, filepath.Join(dir, "part", "now"), "three")
}

func takeIn(t testing.TB, dir, id string) {
	askIn(t, dir, environment.UpdateCheckpoint, nil, environment.CheckpointRequest{ID: id, Trigger: environment.Manual})
}

func askIn(t testing.TB, dir, update string, result any, argument any) {
	t.Helper()
	c, _, err := connectIn(dir)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	handle, err := c.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: environment.WorkflowID(nameIn(dir)), UpdateName: update, Args: []any{argument},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(t, err)
	require.NoError(t, handle.Get(ctx, result))
}

func appendTo(t testing.TB, file, text string) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = f.WriteString(text + "\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// storedIn is what the host stores of an environment, and what the environment has.
func storedIn(t testing.TB, dir string) string {
	all, err := filepath.Glob(filepath.Join(dir, "state", "environments", nameIn(dir), "*"))
	require.NoError(t, err)
	text := heldIn(t, dir)
	for _, file := range all {
		text += filepath.Base(file) + "\n"
	}
	return text
}

// heldIn is what the environment has.
func heldIn(t testing.TB, dir string) (text string) {
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, "part"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		text += e.Name() + ": " + string(raw)
		return err
	}))
	return text
}
