package stack

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const threadEnv = "UNWIND_TEST_THREAD"

// oneThreadEnters makes of this process one whose first thread stands outside, or has ended, and of
// which another thread stands in a container.
func oneThreadEnters(pid string) {
	go func() {
		runtime.LockOSThread()
		ns, err := unix.Open("/proc/"+pid+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(ns, unix.CLONE_NEWNS))
		}
		fmt.Println("entered:", err)
		select {}
	}()
	if os.Getenv(threadEnv+"_ENDS") != "" {
		unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0) // of the first thread alone: it is locked to this goroutine
	}
	select {}
}

func TestAThreadThatStandsInTheTopAloneIsSeen(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.show(t, 1)
	users := func() int { return b.users(t, b.top(t)) }
	require.Zero(t, users())
	for _, ends := range []string{"", "yes"} {
		c := exec.Command("/proc/self/exe")
		c.Env = append(os.Environ(), threadEnv+"="+strconv.Itoa(b.PID), threadEnv+"_ENDS="+ends)
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		t.Cleanup(func() { _ = c.Process.Kill() })
		said, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "entered: <nil>\n", said)
		assert.Equal(t, 1, users())
		require.NoError(t, c.Process.Kill())
		_ = c.Wait()
		assert.Zero(t, users())
	}
}
