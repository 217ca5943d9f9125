package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestMain(m *testing.M) {
	host.Hooks()
	for _, name := range []string{"TEMPORAL_PROFILE", "TEMPORAL_NAMESPACE", "UNWIND_STATE", "UNWIND_QUEUE", "UNWIND_HOST",
		"UNWIND_LISTEN", "UNWIND_SCHEDULES", "UNWIND_CONFIG"} {
		_ = os.Unsetenv(name)
	}
	_ = os.Setenv("TEMPORAL_CONFIG_FILE", os.DevNull) // not the profile of who runs the tests
	if os.Getenv(mortalVar) != "" {
		serveMortally()
	}
	os.Exit(m.Run())
}

func config(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "worker.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestBadConfigIsStatusTwoAndNamesEveryField(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"flag":     {[]string{"--hosts", "x"}, []string{"unknown flag: --hosts; see worker --help"}},
		"argument": {[]string{"worker.yaml"}, []string{`unknown command "worker.yaml" for "worker"`}},
		"no file":  {[]string{"--config", "/nowhere.yaml"}, []string{"config: open /nowhere.yaml"}},
		"field": {[]string{"--config", config(t, "files: {}\n")},
			[]string{"worker.yaml:1: files: there is no such field; did you mean file?"}},
		"nothing": {[]string{"--state", "/tmp"},
			[]string{"config: it opens no world, so the worker could do nothing; write one of these sections into a " +
				"config file"}},
		"no world": {[]string{"--config", config(t, "activities: 7\n")}, []string{"worker.yaml: it opens no world"}},
		"values": {
			[]string{
				"--config", config(t,
					"file: {roots: [here]}\nsecrets: {A: b}\nnotices: [{name: ops, slack: {url: NONE}}]\npage: x\nretention: "+
						"{bytes: -1}\n"),
				"--host", "My Host", "--state", "s", "--schedules", "maybe",
			},
			[]string{
				`config: schedules: "maybe" must be on or off`, `worker.yaml:5: retention: `,
				`worker.yaml:4: page: "x" must be the address of the page`,
				`worker.yaml:3: notices[0].slack.url: "NONE" is not one of secrets`, `config: host: "My Host"`,
				`config: state: "s" must be an absolute path`,
				`worker.yaml:1: file.roots: "here"`, `worker.yaml:2: secrets.A: "b" must be env:VARIABLE`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out, log bytes.Buffer
			require.Equal(t, statusUsage, run(t.Context(), c.args, &out, &log))
			require.Empty(t, out.String())
			for _, want := range c.want {
				require.Contains(t, log.String(), want)
			}
		})
	}
}

func TestNoServerIsStatusOneWithTheWayOut(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
	var out, log bytes.Buffer
	require.Equal(t, statusFailed,
		run(t.Context(), []string{"--state", t.TempDir(), "--config", config(t, "container: {}\n")}, &out, &log))
	require.Contains(t, log.String(),
		"no Temporal server answers at 127.0.0.1:1; start one with `starter dev`, or set TEMPORAL_ADDRESS")
}

func TestFlagsGoBeforeTheEnvironmentAndThatBeforeTheFile(t *testing.T) {
	t.Setenv("UNWIND_HOST", "from-environment")
	t.Setenv("UNWIND_QUEUE", "from-environment")
	file := config(t, "host: from-file\nqueue: from-file\nlisten: from-file\ncontainer: {}\n")
	c, err := read(file, host.Config{Queue: "from-flag"})
	require.NoError(t, err)
	require.Equal(t, [3]string{"from-environment", "from-flag", "from-file"}, [3]string{c.Host, c.Queue, c.Listen})
}

func TestHelp(t *testing.T) {
	var out, log bytes.Buffer
	require.Equal(t, statusOK, run(t.Context(), []string{"--help"}, &out, &log))
	for _, want := range []string{"Examples:", "Exit status:", "UNWIND_LISTEN", "--config file"} {
		require.Contains(t, out.String(), want)
	}
}

func TestTheWorkerServesUntilItIsToldToStop(t *testing.T) {
	server := servertest.Shared(t)
	t.Setenv("TEMPORAL_ADDRESS", server.Address)
	ctx, stop := context.WithCancel(t.Context())
	var out, log testrun.Buffer
	ended := make(chan int, 1)
	args := []string{
		"--host", "build-1", "--queue", t.Name(), "--state", t.TempDir(), "--listen", "127.0.0.1:0",
		"--config", config(t,
			"stopTimeout: 1s\nfile: {roots: ["+t.TempDir()+"]}\nsecrets: {UNSET: 'env:UNWIND_TEST_UNSET'}\n"),
	}
	go func() { ended <- run(ctx, args, &out, &log) }()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "\n") || len(ended) > 0 }, time.Minute,
		10*time.Millisecond)
	line := regexp.MustCompile(`^worker: host build-1 serves file, wait on queues ` + t.Name() + ` and ` + t.Name() +
		`@build-1, health and metrics at (http://127\.0\.0\.1:\d+)\n$`).FindStringSubmatch(out.String())
	require.NotNil(t, line, out.String()+log.String())

	require.Contains(t, get(t, line[1]+"/healthz"), `"status":"ok"`)
	run, err := servertest.Client(t).ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: t.Name()},
		protocol.AgentTaskType,
		map[string]any{"name": "nothing known", "steps": []any{map[string]any{"id": "a", "uses": "no.such"}}})
	require.NoError(t, err)
	var report compensations.Report
	require.ErrorContains(t, run.Get(t.Context(), &report), "nothing was touched")
	require.Eventually(t, func() bool { return strings.Contains(get(t, line[1]+"/metrics"), "temporal_workflow_failed") },
		time.Minute, 50*time.Millisecond)

	unknown, err := servertest.Client(t).ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: t.Name()},
		"no.such.workflow")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "no.such.workflow") }, time.Minute,
		10*time.Millisecond)
	require.NoError(t, servertest.Client(t).TerminateWorkflow(t.Context(), unknown.GetID(), "", "seen"))

	stop()
	require.Equal(t, statusOK, <-ended)
	require.Contains(t, out.String(), "worker: stopping; running steps may finish for 1s\n")
	require.Regexp(t,
		"^worker: warning: secrets.UNSET: the worker's environment has no UNWIND_TEST_UNSET; steps that use it are refused\n",
		log.String())
	require.NotRegexp(t, `(?m)^worker: [^w]`, log.String(), "no error of the worker's own")
	require.Regexp(t, `level=(WARN|ERROR) .*no\.such\.workflow`, log.String())
	require.NotContains(t, log.String(), "level=INFO")
}

func get(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(body)
}
