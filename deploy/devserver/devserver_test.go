package devserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// startServer is Start for a test. The build, for which only the first test waits, has its own time
// limit.
func startServer(t *testing.T, opts Options) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	opts.Log = t.Output()
	s, err := Start(ctx, opts)
	require.NoError(t, err)
	t.Cleanup(s.Kill)
	return s
}

func dial(t *testing.T, s *Server) client.Client {
	t.Helper()
	opts := s.ClientOptions()
	opts.Logger = noLogger{}
	c, err := client.Dial(opts)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func hello(workflow.Context) (string, error) { return "hello", nil }

func TestStartsOnceBuilt(t *testing.T) {
	hideCLI(t)
	_, err := ensureBuilt(t.Context(), t.Output())
	require.NoError(t, err)
	s := startServer(t, Options{})
	require.NoError(t, s.Err())

	require.NoError(t, s.Stop())
	<-s.Done()
	require.NoError(t, s.Err(), "a stop that was asked for is no error")
	require.NoError(t, s.Stop(), "stopping twice is fine")
	require.ErrorContains(t, s.Restart(t.Context()), "in memory")
}

func TestRestartKeepsWorkflowsAndPorts(t *testing.T) {
	hideCLI(t)
	s := startServer(t, Options{DB: filepath.Join(t.TempDir(), "dev.db"), UI: true})
	address, ui := s.Address, s.UIURL
	c := dial(t, s)
	_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "kept", TaskQueue: "q"}, hello)
	require.NoError(t, err)

	s.Kill()
	require.NoError(t, s.Err(), "a kill that was asked for is no error")
	require.NoError(t, s.Restart(t.Context()))
	require.NoError(t, s.Restart(t.Context()), "a running server is stopped first")
	require.Equal(t, address, s.Address)
	require.Equal(t, ui, s.UIURL)

	// The old client goes on working: the address is the same.
	w := worker.New(c, "q", worker.Options{})
	w.RegisterWorkflow(hello)
	require.NoError(t, w.Start())
	defer w.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var got string
	require.NoError(t, c.GetWorkflow(ctx, "kept", "").Get(ctx, &got))
	require.Equal(t, "hello", got)
}

func TestAServerThatDiesSaysSo(t *testing.T) {
	hideCLI(t)
	s := startServer(t, Options{})
	require.NoError(t, s.child.cmd.Process.Kill(), "as somebody else would")
	<-s.Done()
	require.ErrorContains(t, s.Err(), "ended by itself: signal: killed")
}

func TestAPortThatIsTakenIsNamed(t *testing.T) {
	hideCLI(t)
	l, err := net.Listen("tcp", loopbackAddress(0))
	require.NoError(t, err)
	defer l.Close()
	_, err = Start(t.Context(), Options{Port: l.Addr().(*net.TCPAddr).Port, Log: t.Output()})
	require.ErrorContains(t, err, "address already in use")
}

func TestACancelledStartLeavesNoProcess(t *testing.T) {
	hideCLI(t)
	_, err := ensureBuilt(t.Context(), t.Output())
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the user left")
	s := &Server{Namespace: "default", opts: Options{Namespace: "default", Log: t.Output()}}
	s.program, err = findProgram(ctx, t.Output())
	require.NoError(t, err)
	cancel(gone)
	require.ErrorIs(t, s.startChild(ctx), gone)
	require.True(t, s.child.hasEnded())
}

// startAndWait is the parent of TestTheServerEndsWithItsParent: it starts a server, prints its
// address, and never stops it.
func startAndWait() error {
	s, err := Start(context.Background(), Options{})
	if err != nil {
		return err
	}
	fmt.Println(s.Address)
	select {}
}

func TestTheServerEndsWithItsParent(t *testing.T) {
	for name, path := range map[string]func(*testing.T){
		"our own server":                   hideCLI,
		"the CLI, which ignores its stdin": func(t *testing.T) { hideCLI(t); putCLIOnPath(t) },
	} {
		t.Run(name, func(t *testing.T) {
			path(t)
			self, err := os.Executable()
			require.NoError(t, err)
			parent := exec.Command(self)
			parent.Env = append(os.Environ(), beTheParent+"=1")
			parent.Stderr = t.Output()
			out, err := parent.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, parent.Start())
			defer parent.Process.Kill()
			line, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			at := strings.TrimSpace(line)
			require.NoError(t, reachable(t.Context(), at))

			require.NoError(t, parent.Process.Kill())
			_ = parent.Wait()
			require.Eventually(t, func() bool { return reachable(context.Background(), at) != nil }, time.Minute,
				50*time.Millisecond)
		})
	}
}
