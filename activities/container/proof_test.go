package container_test

import (
	"strings"
	"testing"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// reads says that a command is taken for read-only in the box.
func reads(t testing.TB, b *containertest.Box, s *stage, with map[string]any) bool {
	t.Helper()
	with["container"] = b.Name
	change, err := s.action.Plan(t.Context(), s.entry(t), step(t, with))
	require.NoError(t, err)
	return change.Strategy == activities.NoUndo
}

const looking = `cd /srv/app && ls -l | grep 'a b' | head -n 2; id; cat a.txt || echo "none"`

func TestProgramsOfTheImageAreProven(t *testing.T) {
	b, s := containertest.Start(t, containertest.InUserland(t)), newStage(t, t.TempDir())
	assert.True(t, reads(t, b, s, map[string]any{"command": looking}))
	assert.True(t, reads(t, b, s, map[string]any{"argv": []string{"ls", "-l"}}))
	assert.True(t, reads(t, b, s, map[string]any{"argv": []string{"/usr/bin/cat", "/srv/app/a.txt"}}))
	assert.True(t, reads(t, b, s, map[string]any{"command": "cat a.txt"}))
	b.Run(t, "echo more >>/srv/app/a.txt; mkdir /opt; cp /bin/ls /opt/ls; touch /usr/lib/unrelated")
	assert.True(t, reads(t, b, s, map[string]any{"command": looking}), "what has changed is no part of it")
	assert.False(t, reads(t, b, s, map[string]any{"command": "cat 0", "workdir": "/proc/1/fd"}))
	looked, err := b.ContainerList(t.Context(), dockertypes.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("name", "^/unwind-look-"), filters.Arg("ancestor", containertest.UserlandImage(t)))})
	require.NoError(t, err)
	assert.Empty(t, looked, "nothing is left of looking into the image")
}

// TestWhatMayHaveBeenReplacedIsRisky does what an earlier step could have done, and then looks at a
// command that would read.
func TestWhatMayHaveBeenReplacedIsRisky(t *testing.T) {
	t.Parallel()
	s := newStage(t, t.TempDir()) // it remembers what it has seen in the image
	for name, planted := range map[string]string{
		"a program earlier on the PATH": "cp /srv/evil/ls /usr/local/bin/ls",
		"the program itself":            "cp /srv/evil/ls /usr/bin/ls",
		"the program, with its time":    "cp -p /bin/ls /root/ls; cp /srv/evil/ls /usr/bin/ls; touch -r /root/ls /usr/bin/ls",
		"a link in its place":           "ln -sf /srv/evil/ls /usr/bin/ls",
		"the folder that it is in": "cp -a /usr/bin /usr/local/bins; cp /srv/evil/ls /usr/local/bins; mv /usr/bin " +
			"/usr/old; /usr/old/ln -s /usr/local/bins /usr/bin",
		"a folder in its place":       "rm /usr/bin/ls; mkdir /usr/bin/ls",
		"no program any more":         "rm /usr/bin/ls",
		"the shell":                   "cp /bin/sh /usr/local/bin/old; cp /srv/evil/ls /root/sh; mv /root/sh /usr/bin/sh",
		"a shell earlier on the PATH": "cp /srv/evil/ls /usr/local/bin/sh",
		"a library": "for l in /usr/lib/*/libc.so.6 /usr/lib64/libc.so.6 /usr/lib/libc.so.6; do [ -f " +
			"$l ] && cp $l /root/c && echo >>/root/c && mv /root/c $l; done; true",
		"the loader": "for l in /usr/lib64/ld-linux* /usr/lib/ld-linux*; do [ -f $l ] && cp $l " +
			"/root/l && echo >>/root/l && mv /root/l $l; done; true",
		"the list of preloads":    "echo /srv/evil.so >/etc/ld.so.preload",
		"the loader's cache":      "echo x >>/etc/ld.so.cache",
		"how users are looked up": "echo 'passwd: evil files' >/etc/nsswitch.conf",
		"a module of it":          "touch /usr/lib/libnss_nis.so.2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testrun.Sampled(t)
			b := containertest.Start(t, containertest.InUserland(t))
			plant(t, b, planted)
			assert.False(t, reads(t, b, s, map[string]any{"command": "ls"}))
		})
	}
}

// plant runs a command whose own end nobody can tell, for it may have replaced the shell.
func plant(t testing.TB, b *containertest.Box, command string) {
	t.Helper()
	made, err := b.ContainerExecCreate(t.Context(), b.Name,
		dockertypes.ExecOptions{Cmd: []string{"/bin/bash", "-c", command}, AttachStdout: true, AttachStderr: true})
	require.NoError(t, err)
	stream, err := b.ContainerExecAttach(t.Context(), made.ID, dockertypes.ExecAttachOptions{})
	require.NoError(t, err)
	defer stream.Close()
	var said strings.Builder
	_, err = stream.Reader.WriteTo(&said)
	require.NoError(t, err)
	require.Empty(t, said.String())
}

func TestContainerThatHidesWhatItWouldRunIsRisky(t *testing.T) {
	t.Parallel()
	b := containertest.Start(t, containertest.InUserland(t),
		func(c *dockertypes.Config, h *dockertypes.HostConfig, _ *network.NetworkingConfig) {
			h.Tmpfs = map[string]string{"/usr/local/bin": ""}
		})
	s := newStage(t, t.TempDir())
	assert.False(t, reads(t, b, s, map[string]any{"command": "ls"}))
	assert.True(t, reads(t, b, s, map[string]any{"argv": []string{"/usr/bin/ls"}}), "the rest of it is seen")
}
