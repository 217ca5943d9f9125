package shortlived

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/childenv"
)

func runShell(ctx context.Context, script string) (string, error) {
	out, err := Output(ctx, "/", childenv.Minimal(), "sh", "-c", script)
	return string(out), err
}

// requireEnded waits for init to have reaped what was killed.
func requireEnded(t *testing.T, pid string) {
	t.Helper()
	id, err := strconv.Atoi(strings.TrimSpace(pid))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !isRunning(id) }, 10*time.Second, time.Millisecond, "process %d", id)
}

func isRunning(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n == 0 // a process that has ended is readable, reaped or not
}

func TestAChildThatKeepsThePipeIsEndedAndFailsNothing(t *testing.T) {
	out, err := runShell(t.Context(), "sleep 1000 & echo $!")
	require.NoError(t, err)
	requireEnded(t, out)
}

func TestAChildWithoutThePipeIsEndedAsWell(t *testing.T) {
	out, err := runShell(t.Context(), "sleep 1000 >/dev/null 2>&1 & echo $!")
	require.NoError(t, err)
	requireEnded(t, out)
}

func TestWhoLeftTheGroupKeepsThePipeAndFailsNothing(t *testing.T) {
	// $( ) ends when the leaver has said who it is, so it has left by then.
	out, err := runShell(t.Context(), `exec 3>&1; echo $(setsid sh -c 'echo $$; exec sleep 1000 >&3 2>&3' &)`)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	require.NoError(t, err)
	require.True(t, isRunning(pid), "it is in a session of its own, which is not ours to end")
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
}

func TestAFailureIsThatOfTheProgram(t *testing.T) {
	out, err := runShell(t.Context(), "echo why; sleep 1000 & exit 3")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 3, exit.ExitCode())
	require.Equal(t, "why\n", out)

	_, err = Output(t.Context(), "/", nil, "/no/such/program")
	require.ErrorContains(t, err, "no such file")
}

func TestTheDeadlineEndsTheWholeGroup(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	out, err := runShell(ctx, "sleep 1000 & echo $!; wait")
	require.ErrorContains(t, err, "killed")
	requireEnded(t, out)
}
