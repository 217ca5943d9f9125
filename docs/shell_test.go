package docs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// notRun are commands of the documentation that no test here runs, each with the reason.
var notRun = map[string]string{
	"go run ./starter demo":                "TestDemo in starter/command plays each example",
	"go test ./...":                        "this is it",
	"cd /srv":                              "each command is typed there",
	"claude mcp add unwind -- starter mcp": "it needs Claude Code; starter/command/mcp_test.go serves a client of its own",
	"codex mcp add unwind -- starter mcp":  "it needs Codex; starter/command/mcp_test.go serves a client of its own",
	"claude mcp add files -- starter mcp --wrap 'npx -y @modelcontextprotocol/server-filesystem /srv/app' " +
		"--declarations /etc/unwind/filesystem.yaml": "it needs " +
		"Claude Code and the network; starter/command/mcpwrap_linux_test.go wraps a server of its own",
	"starter mcp --listen 127.0.0.1:7380 --token env:MCP_TOKEN": "it takes a fixed port; " +
		"starter/command/mcp_http_test.go serves on a free one",
	"starter serve": "it takes a fixed port; starter/command/page_test.go serves on a free one",
	"go install ./starter ./worker": "it would change the machine; the deep tests of " +
		"deploy/release build both and run what they have built",
	"worker --config worker.yaml": "TestTheDocumentationWorks starts a worker with this " +
		"config; worker/main_test.go runs the command",
	"starter resolve TASK STEP --do reset": "it needs a container that was removed: " +
		"activities/container/reset_test.go",
}

// scene is what a command line needs: a task in some state.
type scene func(p *place) (task string)

// scenes are what stands behind TASK and STEP in a command line, by how the line begins.
var scenes = []struct {
	prefix string
	set    scene
	check  func(p *place, task, out string)
}{
	{"starter approve TASK STEP", (*place).atGate, committedSoon},
	{"temporal workflow signal --workflow-id TASK", (*place).atGate, committedSoon},
	{"starter cancel TASK", (*place).atGate, gone},
	{"starter rollback TASK --to SAVEPOINT", (*place).committed, nil},
	{"starter rollback TASK --step STEP", (*place).committed, nil},
	{"starter rollback TASK", (*place).committed, gone},
	{"starter redo TASK", (*place).rolledBack, nil},
	{"starter resolve TASK STEP --do retry --with", (*place).failed, nil},
	{"starter resolve TASK STEP --do unwind", (*place).failed, gone},
	{"starter resolve TASK STEP --do", (*place).parked, nil},
	{"starter recover TASK", (*place).terminated, gone},
	{"starter show TASK -o json", (*place).committed, isJSON},
	{"starter policy try policy.yaml TASK", (*place).committed, nil},
	{"starter list", (*place).atGate, nil},
}

// typeCommands types every command of the documentation, in its order, on a real server.
func (p *place) typeCommands() {
	all := blocks(p.T, "sh", "shell", "bash")
	require.Greater(p, len(all), 8)
	unused := maps.Clone(notRun)
	for _, b := range all {
		for _, line := range b.commands() {
			delete(unused, typedPart(line))
		}
		p.Run(b.String(), func(t *testing.T) { p.in(t).typeBlock(b) })
	}
	require.Empty(p, unused, "no page has these")
}

// typedPart is a command line without its comment.
func typedPart(line string) string {
	typed, _, _ := strings.Cut(line, " #")
	return strings.TrimSpace(typed)
}

func (p *place) typeBlock(b block) {
	p.writeNamedFiles(b.page)
	for _, line := range b.commands() {
		typed := typedPart(line)
		if notRun[typed] != "" {
			continue
		}
		p.typeLine(b, typed)
	}
}

// writeNamedFiles writes the files that the commands of a page name: the first blocks of their kind
// on it.
func (p *place) writeNamedFiles(page string) {
	written := map[string]bool{}
	for _, b := range blocks(p.T, "yaml", "hcl") {
		name := "worker.yaml"
		switch {
		case b.lang == "hcl":
			name = "infra/main.tf"
		case b.isSession():
			name = "session.yaml"
		case b.isEnvironment():
			name = "environment.yaml"
		case b.isPolicy():
			name = "policy.yaml"
		case b.isTask():
			name = "release.yaml"
		}
		if b.page == page && !written[name] {
			written[name] = true
			p.file(name, p.here(b.text))
		}
	}
}

func (p *place) typeLine(b block, line string) {
	for _, s := range scenes {
		if !strings.HasPrefix(line, s.prefix) {
			continue
		}
		task := s.set(p)
		line = strings.NewReplacer("TASK", task, "STEP", "infrastructure", "SAVEPOINT", "before").Replace(p.here(line))
		for _, g := range p.state(task).Gates {
			line = strings.ReplaceAll(line, "sha256:…", string(g.Digest))
		}
		out := p.atTerminal(line)
		if s.check != nil {
			s.check(p, task, out)
		}
		return
	}
	switch {
	case line == "starter env init": // it writes the file, which is there
		require.NoError(p, os.Remove(filepath.Join(p.root, "srv", "environment.yaml")))
		p.sh(line)
		p.writeNamedFiles(b.page)
	case strings.Contains(line, "CHECKPOINT"):
		p.sh(strings.ReplaceAll(line, "CHECKPOINT", p.checkpoint()))
	case strings.HasPrefix(line, "starter dev"):
		p.background(line)
	case strings.Contains(line, "--watch"):
		require.Contains(p, p.watched(p.here(line)), "committed: every step is done and stays", b)
	default:
		p.sh(p.here(line))
	}
}

// task starts a task of two writes under a new id; the second waits at a gate if it says so.
func (p *place) task(gate string) (id string) {
	p.Helper()
	p.runs++
	id = fmt.Sprintf("%s-%s-%d", p.queue(), strings.NewReplacer("/", "-", ".", "-", ":", "-").Replace(p.Name()),
		time.Now().UnixNano())
	file := p.file(id+".yaml", fmt.Sprintf(`
name: a scene
steps:
  - id: first
    uses: file.write
    with: {path: %[1]s/%[2]s.first, content: x}
  - id: infrastructure
    uses: file.write
    savepoint: before
    with: {path: %[1]s/%[2]s.second, content: x}
    gate: %[3]s
`, filepath.Join(p.root, "srv", "site"), id, gate))
	p.sh("starter run " + file + " --id " + id)
	return id
}

// checkpoint takes a checkpoint of the environment shop.
func (p *place) checkpoint() string {
	p.Helper()
	var taken environment.Checkpoint
	require.NoError(p, json.Unmarshal([]byte(p.sh("starter env checkpoint shop -o json")), &taken))
	return taken.ID
}

func (p *place) atGate() string {
	id := p.task("ask")
	require.Eventually(p, func() bool { return len(p.state(id).Gates) > 0 }, patience, 20*time.Millisecond)
	return id
}

func (p *place) committed() string {
	id := p.task("none")
	p.sh("starter watch " + id)
	return id
}

func (p *place) rolledBack() string {
	id := p.committed()
	p.sh("starter rollback " + id + " --watch")
	return id
}

// parked is a task whose step "infrastructure" has failed after somebody else changed what it
// wrote.
func (p *place) parked() string {
	p.Helper()
	id := fmt.Sprintf("%s-parked-%d", p.queue(), time.Now().UnixNano())
	path := filepath.Join(p.root, "srv", "site", id)
	file := p.file(id+".yaml", fmt.Sprintf(`
name: a scene
steps:
  - id: infrastructure
    uses: file.write
    with: {path: %q, content: x}
  - id: last
    uses: file.write
    with: {path: %q, content: x}
    gate: ask
`, path, path+".last"))
	p.sh("starter run " + file + " --id " + id)
	require.Eventually(p, func() bool { return len(p.state(id).Gates) > 0 }, patience, 20*time.Millisecond)
	require.NoError(p, os.WriteFile(path, []byte("somebody else's"), 0o600))
	_, _ = p.command("starter reject " + id + " last --why no").CombinedOutput()
	require.Eventually(p, func() bool {
		r := p.state(id).Report
		return r != nil &&
			slices.ContainsFunc(r.Steps,
				func(s compensations.StepReport) bool { return s.State == string(compensations.Parked) })
	}, patience, 20*time.Millisecond)
	return id
}

// failed is a task whose step "infrastructure" has failed and waits for a person.
func (p *place) failed() string {
	p.Helper()
	id := fmt.Sprintf("%s-failed-%d", p.queue(), time.Now().UnixNano())
	path := filepath.Join(p.root, "srv", "site", id)
	file := p.file(id+".yaml", fmt.Sprintf(`
name: a scene
steps:
  - id: first
    uses: file.write
    with: {path: %[1]s.first, content: x}
  - id: infrastructure
    uses: file.write
    with: {path: %[1]s.second, content: x}
    check: [{exists: %[1]s.missing, when: live}]
    on_failure: ask
`, path))
	p.sh("starter run " + file + " --id " + id)
	require.Eventually(p, func() bool { return len(p.state(id).Parks) > 0 }, patience, 20*time.Millisecond)
	return id
}

func (p *place) terminated() string {
	id := p.atGate()
	require.NoError(p, p.client.TerminateWorkflow(p.Context(), id, "", "for the documentation"))
	return id
}

func committedSoon(p *place, task, _ string) {
	require.Contains(p, p.sh("starter watch "+task), "committed: every step is done and stays")
}

// gone waits until what the first step wrote is gone.
func gone(p *place, task, _ string) {
	require.Eventually(p, func() bool {
		_, err := os.Stat(filepath.Join(p.root, "srv", "site", task+".first"))
		return os.IsNotExist(err)
	}, patience, 20*time.Millisecond)
}

func isJSON(p *place, _, out string) {
	require.True(p, json.Valid([]byte(strings.TrimSpace(out))), out)
}

// atTerminal runs a command line with a terminal as its standard input, at which somebody says yes.
func (p *place) atTerminal(line string) string {
	p.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(p, err)
	defer person.Close()
	require.NoError(p, unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	require.NoError(p, err)
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(p, err)
	defer screen.Close()
	_, err = person.WriteString("y\n")
	require.NoError(p, err)
	c := p.command(line)
	c.Stdin = screen
	out, err := c.CombinedOutput()
	require.NoError(p, err, "%s\n%s", line, out)
	return string(out)
}

// background starts `starter dev`, until the end of the block's test, for the lines that follow.
func (p *place) background(line string) {
	p.Helper()
	p.env = slices.Concat(p.env, []string{"UNWIND_QUEUE=" + p.queue() + "-dev"})
	// a test's context ends before its Cleanup, which stops it
	c := p.commandUntil(context.WithoutCancel(p.Context()), "exec "+line)
	var out testrun.Buffer
	c.Stdout, c.Stderr = &out, &out
	require.NoError(p, c.Start())
	p.Cleanup(func() {
		require.NoError(p, c.Process.Signal(os.Interrupt))
		require.NoError(p, c.Wait(), out.String())
		p.removeLayers(p.stateOfDev())
	})
	require.Eventually(p, func() bool { return strings.Contains(out.String(), "Ctrl-C stops it") }, patience,
		20*time.Millisecond, "%s", &out)
}

// TestTheOperatorsCommandRegistersEveryAttribute compares the command in the page on operations
// with what the server has.
func TestTheOperatorsCommandRegistersEveryAttribute(t *testing.T) {
	var line string
	for _, b := range blocks(t, "sh") {
		for _, each := range b.commands() {
			if strings.HasPrefix(each, "temporal operator search-attribute create") {
				line = each
			}
		}
	}
	words := strings.Fields(line)
	for _, a := range devserver.SearchAttributes {
		i := slices.Index(words, a.Name)
		require.Positive(t, i, a.Name)
		require.Equal(t, []string{"--name", a.Name, "--type", a.Type.String()}, words[i-1:i+3])
	}
	require.Equal(t, 4+4*len(devserver.SearchAttributes), len(words))
}
