package main

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const beTheServer = "UNWIND_TEST_BE_THE_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(beTheServer) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// serverProcess is the test binary running as the server.
type serverProcess struct {
	ready
	cmd    *exec.Cmd
	stderr *strings.Builder
}

func start(t *testing.T, args ...string) *serverProcess {
	t.Helper()
	r := startCommand(t, args...)
	out, err := r.cmd.StdoutPipe()
	must(t, err)
	must(t, r.cmd.Start())
	t.Cleanup(func() { _ = r.cmd.Process.Kill(); _ = r.cmd.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("no ready line: %v\n%s", err, r.stderr)
	}
	must(t, json.Unmarshal(line, &r.ready))
	return r
}

func startCommand(t *testing.T, args ...string) *serverProcess {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	r := &serverProcess{cmd: exec.Command(self, args...), stderr: &strings.Builder{}}
	r.cmd.Env = append(os.Environ(), beTheServer+"=1")
	r.cmd.Stderr = r.stderr
	return r
}

func dial(t *testing.T, at ready) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: at.Address, Namespace: "work", Logger: noLogger{}})
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func hello(workflow.Context) (string, error) { return "hello", nil }

func TestServesAndSurvivesAKillOnOtherPorts(t *testing.T) {
	ctx := t.Context()
	db := filepath.Join(t.TempDir(), "dev.db")
	args := []string{"--db", db, "--port", "0", "--ui-port", "0", "--namespace", "work",
		"--search-attribute", "UnwindStatus=Keyword", "--search-attribute", "UnwindPending=Int"}

	first := start(t, args...)
	resp, err := http.Get(first.UI)
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the UI answers %s", resp.Status)
	}
	c := dial(t, first.ready)
	known, err := c.OperatorService().ListSearchAttributes(ctx,
		&operatorservice.ListSearchAttributesRequest{Namespace: "work"})
	must(t, err)
	if k := known.CustomAttributes; k["UnwindStatus"] != enums.INDEXED_VALUE_TYPE_KEYWORD ||
		k["UnwindPending"] != enums.INDEXED_VALUE_TYPE_INT {
		t.Errorf("search attributes of the namespace: %v", k)
	}
	// No worker runs it yet: it has to be there after the crash.
	_, err = c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "kept", TaskQueue: "q"}, hello)
	must(t, err)
	must(t, first.cmd.Process.Kill())
	_ = first.cmd.Wait()

	second := start(t, args...)
	if second.Address == first.Address {
		t.Fatalf("the test needs another port, got %s again", second.Address)
	}
	c = dial(t, second.ready)
	w := worker.New(c, "q", worker.Options{})
	w.RegisterWorkflow(hello)
	must(t, w.Start())
	defer w.Stop()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var got string
	must(t, c.GetWorkflow(ctx, "kept", "").Get(ctx, &got))
	if got != "hello" {
		t.Errorf("the workflow of before the crash returned %q", got)
	}
}

func TestTwoServersNeverShareAFile(t *testing.T) {
	db := filepath.Join(t.TempDir(), "dev.db")
	start(t, "--db", db, "--port", "0", "--headless")
	second := startCommand(t, "--db", db, "--port", "0", "--headless")
	if err := second.cmd.Run(); err == nil {
		t.Fatal("a second server on the same file started")
	}
	if want := db + " is in use by another server"; !strings.Contains(second.stderr.String(), want) {
		t.Errorf("it says %q, not %q", second.stderr, want)
	}
}

func TestAHalfMadeFileIsNotTaken(t *testing.T) {
	db := filepath.Join(t.TempDir(), "dev.db")
	must(t, os.WriteFile(db+".new", []byte("left by a start that was killed"), 0o600))
	s := start(t, "--db", db, "--port", "0", "--headless", "--namespace", "work")
	_, err := dial(t, s.ready).ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Namespace: "work"})
	must(t, err)
}

func TestStopsGracefully(t *testing.T) {
	for name, stop := range map[string]func(*serverProcess, func() error) error{
		"on SIGTERM": func(r *serverProcess,
			_ func() error) error {
			return r.cmd.Process.Signal(syscall.SIGTERM)
		},
		"on SIGINT":               func(r *serverProcess, _ func() error) error { return r.cmd.Process.Signal(os.Interrupt) },
		"when its parent is gone": func(_ *serverProcess, closeStdin func() error) error { return closeStdin() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startCommand(t, "--port", "0", "--headless", "--with-parent")
			stdin, err := r.cmd.StdinPipe()
			must(t, err)
			out, err := r.cmd.StdoutPipe()
			must(t, err)
			must(t, r.cmd.Start())
			defer r.cmd.Process.Kill()
			_, err = bufio.NewReader(out).ReadBytes('\n')
			must(t, err)
			must(t, stop(r, stdin.Close))
			if err := r.cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, r.stderr)
			}
			if r.stderr.Len() > 0 {
				t.Errorf("it is not quiet: %s", r.stderr)
			}
		})
	}
}

func TestFlagsThatCannotBeMeant(t *testing.T) {
	for want, args := range map[string][]string{
		"only flags are known":           {"dev.db"},
		"is not Name=Type":               {"--search-attribute", "UnwindStatus"},
		"is no type of a search":         {"--search-attribute", "UnwindStatus=Word"},
		"is not KEY=VALUE":               {"--dynamic-config-value", "limit"},
		"is not JSON":                    {"--dynamic-config-value", "limit=many"},
		"cannot be opened as an SQLite":  {"--db", "what?.db"},
		"flag provided but not defined:": {"--portt", "1"},
	} {
		if _, err := parseFlags(args, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, not %q", args, err, want)
		}
	}
}
