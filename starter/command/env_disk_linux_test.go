package command

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/disk"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// TestADiskGoesBackWithTheRest and forward again.
func TestADiskGoesBackWithTheRest(t *testing.T) {
	testrun.NeedProgram(t, "qemu-img", "install the package qemu-utils")
	s := newSite(t)
	s.stopWorker()
	s.startWorker(s.worlds, func(c *host.Config) { *c = c.With(&disk.Settings{Roots: []string{s.root}}) })
	file, err := os.ReadFile(filepath.Join(s.root, "environment.yaml"))
	require.NoError(t, err)
	s.write("environment.yaml", string(file)+"  machine: {disk: "+s.root+"/root.qcow2}\n")
	s.sh("qemu-img create -q -f qcow2 root.qcow2 16M && qemu-io -f qcow2 -c 'write -P 1 0 1M' root.qcow2")
	content := func() string {
		return s.sh("qemu-img convert -O raw root.qcow2 root.raw && sha256sum root.raw && rm root.raw")
	}
	s.apply()
	before := content()
	first := s.checkpoint()
	require.Equal(t, "disk", first.Parts[1].Kind)
	require.Positive(t, first.Parts[1].Bytes)
	s.sh("qemu-io -f qcow2 -c 'write -P 2 512k 1M' root.qcow2; echo other >uploads/one")
	broken := content()
	back := s.rollBack(first.ID)
	require.Equal(t, before, content())
	require.Equal(t, "first\n", s.sh("cat uploads/one"))
	require.Equal(t, environment.RestoreDisks, back.Stages[4].Stage)
	require.Equal(t, []string{"machine"}, back.Stages[4].Parts)
	require.Contains(t, s.ok("env", "diff", s.name, first.ID, back.Safety.ID),
		"disk "+s.root+"/root.qcow2: 1048576 different bytes\n  ~ bytes 524288 to 1572863")
	s.rollBack(back.Safety.ID)
	require.Equal(t, broken, content())

	// A failing health check takes the disk back as well.
	s.sh("rm uploads/one; touch veto uploads/two")
	require.Equal(t, statusFailed, s.do("env", "rollback", s.name, first.ID).status)
	require.Equal(t, broken, content())
	s.sh("rm veto")
}
