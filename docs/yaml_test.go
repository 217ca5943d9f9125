package docs_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/mcpserver"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/worker/policy"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// TestTheDocumentationWorks runs every block of YAML, every command and every query.
func TestTheDocumentationWorks(t *testing.T) {
	p := newPlace(t)
	p.work(p.config())
	t.Run("yaml", func(t *testing.T) { p.in(t).runYAML() })
	t.Run("commands", func(t *testing.T) { p.in(t).typeCommands() })
	t.Run("queries", func(t *testing.T) { p.in(t).runQueries() })
}

// runYAML runs every task file and every list of steps, takes them back, and starts a worker with
// every config.
func (p *place) runYAML() {
	all := blocks(p.T, "yaml", "yml")
	require.Greater(p, len(all), 15)
	for i, b := range all {
		switch {
		case b.isSession():
			p.Run(b.String(), func(t *testing.T) { p.in(t).runSession(b, fmt.Sprintf("%s-%d", p.queue(), i)) })
		case b.isDeclarations():
			p.Run(b.String(), func(t *testing.T) {
				_, err := mcpserver.ParseDeclarations([]byte(b.text))
				require.NoError(t, err)
			})
		case b.isPolicy():
			p.Run(b.String(), func(t *testing.T) {
				rules, err := policy.Load(p.in(t).file("policy.yaml", p.here(b.text)), "here")
				require.NoError(t, err)
				for _, tried := range rules.TryExamples(t.Context()) {
					require.Empty(t, tried.Wrong, tried.Example)
				}
			})
		case b.isEnvironment():
			p.Run(b.String(), func(t *testing.T) {
				_, err := environment.Parse(b.String(), []byte(b.text))
				require.NoError(t, err)
			})
		case b.isTask():
			p.Run(b.String(), func(t *testing.T) { p.in(t).runTask(b, fmt.Sprintf("%s-%d", p.queue(), i)) })
		default:
			p.Run(b.String(), func(t *testing.T) { p.in(t).startConfig(b, i) })
		}
	}
}

// in is the place in a test below the one that made it.
func (p *place) in(t *testing.T) *place {
	sub := *p
	sub.T = t
	return &sub
}

func (p *place) runTask(b block, id string) {
	file := p.file(id+".yaml", p.here(b.taskFile()))
	out := p.watched("starter run " + file + " --watch --id " + id)
	require.Contains(p, out, "committed: every step is done and stays")
	if strings.Contains(b.text, ".query") && !strings.Contains(b.text, ".exec") {
		return // nothing to take back
	}
	out = p.watched("starter rollback " + id + " --watch")
	require.Contains(p, out, "every step that acted was undone", b)
}

func (p *place) runSession(b block, id string) {
	p.sh("starter session open " + p.file(id+".yaml", p.here(b.text)) + " --id " + id)
	p.sh("starter session finish " + id)
}

// startConfig starts a worker with a config: on queues and with a state folder of its own, with our
// servers.
func (p *place) startConfig(b block, i int) {
	c, err := host.ReadConfig(p.file(fmt.Sprintf("worker-%d.yaml", i), p.here(b.text)))
	require.NoError(p, err)
	c = p.withServers(c)
	c.Queue, c.State, c.StopTimeout = fmt.Sprintf("%s-%d", p.queue(), i), filepath.Join(p.root,
		fmt.Sprintf("state-%d", i)), time.Second
	if c.Listen != "" {
		c.Listen = "127.0.0.1:0"
	}
	w := p.work(c)
	for _, notice := range w.Notices(p.Context()) {
		require.NotContains(p, notice, "refused")
	}
}
