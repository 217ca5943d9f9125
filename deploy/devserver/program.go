package devserver

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strconv"
)

// program is a server's binary and how to start it.
type program struct {
	path string
	args func(Options) []string
}

func (p program) newCommand(o Options) *exec.Cmd { return exec.Command(p.path, p.args(o)...) }

// findProgram returns the temporal CLI if it is on PATH, otherwise our own server, which it builds
// if necessary.
func findProgram(ctx context.Context, log io.Writer) (program, error) {
	if path, err := exec.LookPath("temporal"); err == nil {
		return program{path: path, args: cliArgs}, nil
	}
	path, err := ensureBuilt(ctx, log)
	return program{path: path, args: ownArgs}, err
}

// ownArgs are the arguments of the server in deploy/server, which has its tuning built in.
func ownArgs(o Options) []string {
	args := []string{"--with-parent", "--port", strconv.Itoa(o.Port), "--namespace", o.Namespace}
	if o.DB != "" {
		args = append(args, "--db", o.DB)
	}
	return slices.Concat(args, settingArgs(o), uiArgs(o), attributeArgs())
}

// cliArgs are the arguments of the temporal CLI's server, with the settings that deploy/server has
// built in: without them each activity waits up to 100 ms for the poll of its shard's queue, and
// each commit waits for two syncs of the disk.
func cliArgs(o Options) []string {
	args := []string{"server", "start-dev", "--log-level", "error", "--ip", loopback,
		"--port", strconv.Itoa(o.Port), "--namespace", o.Namespace,
		"--dynamic-config-value", "history.transferProcessorMaxPollRPS=2000",
		"--dynamic-config-value", "matching.numTaskqueueReadPartitions=1",
		"--dynamic-config-value", "matching.numTaskqueueWritePartitions=1",
		"--dynamic-config-value", "system.enableActivityEagerExecution=true",
	}
	if o.DB != "" {
		args = append(args, "--db-filename", o.DB, "--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=1")
	}
	return slices.Concat(args, settingArgs(o), uiArgs(o), attributeArgs())
}

func settingArgs(o Options) []string {
	var args []string
	for _, key := range slices.Sorted(maps.Keys(o.Settings)) {
		args = append(args, "--dynamic-config-value", fmt.Sprintf("%s=%v", key, o.Settings[key]))
	}
	return args
}

func uiArgs(o Options) []string {
	if !o.UI {
		return []string{"--headless"}
	}
	return []string{"--ui-port", strconv.Itoa(o.UIPort)}
}

func attributeArgs() []string {
	var args []string
	for _, a := range SearchAttributes {
		args = append(args, "--search-attribute", a.Name+"="+a.Type.String())
	}
	return args
}
