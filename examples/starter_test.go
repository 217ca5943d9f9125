package examples_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/starter/command"
)

// typed is the result of a command.
type typed struct {
	status   int
	out, err string
}

// starter runs a starter command on the player's server and queue.
func (p *player) starter(args ...string) typed {
	p.Setenv("TEMPORAL_ADDRESS", servertest.Shared(p.T).Address)
	p.Setenv("UNWIND_QUEUE", p.queue)
	var out, err bytes.Buffer
	status := command.Run(p.Context(), command.Options{}, args,
		command.Streams{In: strings.NewReader(""), Out: &out, Err: &err})
	return typed{status, out.String(), err.String()}
}

// file writes a task file.
func (p *player) file(document []byte) string {
	name := filepath.Join(p.TempDir(), "task.yaml")
	require.NoError(p, os.WriteFile(name, document, 0o600))
	return name
}
