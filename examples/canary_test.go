package examples_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/activities/unit"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// edge is fourteen nginx servers, without limits, and a worker that may change them.
type edge struct {
	*player
	root    string
	servers []server
	script  string
}

type server struct {
	Name string `json:"name"`
	Port int    `json:"port"`
}

func newEdge(t *testing.T) *edge {
	testrun.NeedProgram(t, "nginx", "install the package nginx-light")
	script, err := filepath.Abs("canary/nginx.sh")
	require.NoError(t, err)
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	e := &edge{player: dial(t, t.Name()), root: root, script: script}
	units := map[string]unit.Unit{}
	for i := range 14 {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer free.Close() // until all have a port of their own
		s := server{fmt.Sprintf("web-%d", i+1), free.Addr().(*net.TCPAddr).Port}
		e.servers = append(e.servers, s)
		at := filepath.Join(root, s.Name)
		require.NoError(t, os.Mkdir(at, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(at, "nginx.conf"), fmt.Appendf(nil,
			"pid %s/nginx.pid;\nevents {}\nhttp {\n  access_log off;\n  client_body_temp_path tmp;\n  proxy_temp_path tmp;\n"+
				"  fastcgi_temp_path tmp;\n  uwsgi_temp_path tmp;\n  scgi_temp_path tmp;\n"+
				"  server { listen 127.0.0.1:%d; location / { empty_gif; } }\n}\n", at, s.Port), 0o644))
		units[s.Name] = unit.Unit{Start: []string{script, "start", at}, Stop: []string{script, "stop", at},
			Running: []string{script, "running", at}}
	}
	e.work(host.Config{
		Host: "edge", Queue: e.queue, State: t.TempDir(), StopTimeout: time.Second,
		CheckCommands: []string{"nginx"}, CheckAddresses: []string{"127.0.0.1"},
		Worlds: []activities.Settings{&file.Settings{Roots: []string{root}}, &unit.Settings{Units: units}},
	})
	return e
}

// startAll starts the servers as they are before the task.
func (e *edge) startAll() {
	for _, s := range e.servers {
		at := filepath.Join(e.root, s.Name)
		e.Cleanup(func() { _ = exec.Command(e.script, "stop", at).Run() })
		out, err := exec.Command(e.script, "start", at).CombinedOutput()
		require.NoError(e, err, "%s", out)
	}
}

// rollOut runs the example with other values for some of its vars, and returns its report.
func (e *edge) rollOut(values map[string]any) compensations.Report {
	source, err := os.ReadFile("canary/limits.yaml")
	require.NoError(e, err)
	values["root"], values["servers"] = e.root, e.servers
	_, err = e.start(e.id(), e.document(source, values))
	require.NoError(e, err)
	report, err := e.end(e.id())
	require.NoError(e, err)
	return report
}

// seen is what can be seen of a server from outside: its configuration, the process that serves,
// and how it answers two requests, one right after the other.
type seen struct{ config, process, answers string }

func (e *edge) seen() (all []seen) {
	for _, s := range e.servers {
		config, err := os.ReadFile(filepath.Join(e.root, s.Name, "nginx.conf"))
		require.NoError(e, err)
		process, err := os.ReadFile(filepath.Join(e.root, s.Name, "nginx.pid"))
		require.NoError(e, err)
		var answers []int
		for range 2 {
			answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", s.Port))
			require.NoError(e, err)
			require.NoError(e, answer.Body.Close())
			answers = append(answers, answer.StatusCode)
		}
		all = append(all, seen{string(config), string(process), fmt.Sprint(answers)})
	}
	return all
}

// untouched requires that nothing was done to any target but the first.
func (e *edge) untouched(report compensations.Report) {
	for _, s := range report.Steps {
		if !strings.HasPrefix(s.Step, "limits-web-1-") {
			require.Equal(e, "left-out", s.State, s.Step)
		}
	}
	for _, s := range e.servers[1:] {
		entries, err := os.ReadDir(filepath.Join(e.root, s.Name))
		require.NoError(e, err)
		require.NotContains(e, fmt.Sprint(entries), "next.conf")
	}
}

func TestATypoIsCaughtOnTheStagedFileOfTheFirstServer(t *testing.T) {
	e := newEdge(t)
	e.startAll()
	before := e.seen()
	report := e.rollOut(map[string]any{"rate": "rat=100r/s"})
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, "limits-web-1-candidate", report.Steps[0].Step)
	require.Contains(t, report.Steps[0].Summary, `check 1 (command, staged)`)
	require.Contains(t, report.Steps[0].Summary, `invalid parameter "rat=100r/s"`)
	e.untouched(report)
	require.Equal(t, before, e.seen(), "not one of them was even stopped")
	require.Equal(t, []string{"file.write", "file.write.undo"}, e.calls(e.id()))
}

func TestLimitsThatTurnProbesAwayAreCaughtOnTheCanary(t *testing.T) {
	e := newEdge(t)
	e.startAll()
	before := e.seen()
	report := e.rollOut(map[string]any{"rate": "rate=1r/m", "limit": "zone=each"})
	require.Equal(t, compensations.Partly, report.Status)
	require.Equal(t, []string{"limits-web-1-candidate restored", "limits-web-1-stop restored",
		"limits-web-1-config restored", "limits-web-1-start restored"}, outcomes(report)[:4])
	require.Contains(t, report.Steps[3].Summary, "check 2 (http, live): http://127.0.0.1:")
	require.Contains(t, report.Steps[3].Summary, "the status is 503, want 200")
	e.untouched(report)
	after := e.seen()
	require.Equal(t, before[1:], after[1:])
	require.Equal(t, before[0].config, after[0].config)
	require.Equal(t, "[200 200]", after[0].answers)
	require.NotEqual(t, before[0].process, after[0].process, "it was stopped and started again")
}

func TestGoodLimitsReachAllServersInBatches(t *testing.T) {
	e := newEdge(t)
	e.startAll()
	report := e.rollOut(map[string]any{})
	require.Equal(t, compensations.Committed, report.Status)
	for i, s := range e.seen() {
		require.Contains(t, s.config, "rate=100r/s", i)
		require.Equal(t, "[200 200]", s.answers)
	}
	ended := map[string]int{} // where in the history the last step of a target has ended
	first := map[string]int{}
	for i, call := range e.doneBy(e.id()) {
		name := strings.TrimPrefix(call[strings.LastIndex(call, " ")+1:], "limits-")
		if target := name[:strings.LastIndex(name, "-")]; strings.HasPrefix(target, "web-") {
			if _, begun := first[target]; !begun {
				first[target] = i
			}
			ended[target] = i
		}
	}
	require.Len(t, ended, 14)
	for _, batch := range [][2][]server{{e.servers[:1], e.servers[1:5]}, {e.servers[1:5], e.servers[5:9]},
		{e.servers[5:9], e.servers[9:13]}, {e.servers[9:13], e.servers[13:]}} {
		for _, earlier := range batch[0] {
			for _, later := range batch[1] {
				require.Less(t, ended[earlier.Name], first[later.Name], "%s, %s", earlier.Name, later.Name)
			}
		}
	}
}
