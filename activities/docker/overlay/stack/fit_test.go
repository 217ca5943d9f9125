package stack

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAServerIsNotTakenForAProgramThatWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		idle    bool
		program string
	}{
		{true, "sleep 600"}, {true, "/bin/sleep 1.5h 2"}, {true, "sleep infinity"}, {true, "/pause"},
		{true, "tail -f /dev/null"}, {true, "/sbin/docker-init -- x"},
		{false, "sleep"}, {false, "sleep --listen 80"}, {false, "/opt/sleep /etc/sleep.conf"}, {false, "pause -p 80"}, {false,
			"tail -f /var/log/x"},
	} {
		assert.Equal(t, c.idle, isIdleProgram(strings.Fields(c.program)), c.program)
	}
	for _, c := range []struct{ start, why string }{
		{"exec bash -c 'echo x; exec -a pause cat'", ""},
		{"exec bash -c 'echo x; exec 3<>/dev/udp/127.0.0.1/9; exec -a pause cat'",
			`process "pause", which is named like one that only waits, has a socket open`},
		{"exec bash -c 'echo x; exec -a pause sleep 599'", `process "pause 599" has the container's own root`},
	} {
		b := newBox(t)
		b.Start("exec 4</dev/null; mkfifo /dev/shm/in; exec <>/dev/shm/in; rm /dev/shm/in; " + c.start)
		check := func() string {
			_, err := b.CheckIdle(b.survey(t))
			if err == nil {
				return ""
			}
			return err.Error()
		}
		if c.why == "" {
			require.Eventually(t, func() bool { return check() == "" }, 60e9, 1e6, c.start)
			continue
		}
		require.Eventually(t, func() bool { return strings.HasPrefix(check(), c.why) }, 60e9, 1e6, c.start)
	}
}

func TestAFirstProcessWithAnotherRootIsUnfit(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	require.NoError(t, b.CheckFit(b.survey(t)))
	jail := "/srv/" + filepath.Base(t.TempDir()) + strconv.Itoa(os.Getpid())
	b.Start("mkdir " + jail + " && cp $(command -v busybox) " + jail + "/busybox && echo x && exec chroot " + jail +
		" /busybox sleep 597")
	var jailed int
	require.Eventually(t, func() bool {
		all, err := processes()
		require.NoError(t, err)
		for _, p := range all {
			if argv, err := p.arguments(); err == nil && strings.Join(argv, " ") == "/busybox sleep 597" && b.ownsProcess(p) {
				jailed = p.pid
			}
		}
		return jailed != 0
	}, 60e9, 1e6)
	in, err := Open(jailed)
	require.NoError(t, err)
	defer in.Close()
	_, err = in.Survey()
	require.True(t, IsUnfit(err), "%v", err)
	assert.ErrorContains(t, err, "has another root than the container (chroot)")
	_, err = b.CheckIdle(b.survey(t))
	assert.ErrorContains(t, err, "/busybox sleep 597", "it may use the container's files")
}
