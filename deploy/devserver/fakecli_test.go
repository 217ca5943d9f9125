package devserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// runFakeCLI stands in for the temporal CLI, which takes minutes to build: it knows the flags of
// `temporal server start-dev`, refuses others, and runs our own server without its stdin.
func runFakeCLI(args []string) error {
	if len(args) < 2 || args[0] != "server" || args[1] != "start-dev" {
		return fmt.Errorf("unknown command %q", args)
	}
	if broken := os.Getenv("FAKE_TEMPORAL_ERROR"); broken != "" {
		return errors.New(broken)
	}
	var o Options
	var dynamic, pragmas, attributes list
	fs := flag.NewFlagSet("start-dev", flag.ContinueOnError)
	fs.String("log-level", "", "")
	fs.String("ip", "", "")
	fs.IntVar(&o.Port, "port", 0, "")
	fs.IntVar(&o.UIPort, "ui-port", 0, "")
	headless := fs.Bool("headless", false, "")
	fs.StringVar(&o.Namespace, "namespace", "", "")
	fs.StringVar(&o.DB, "db-filename", "", "")
	fs.Var(&dynamic, "dynamic-config-value", "")
	fs.Var(&pragmas, "sqlite-pragma", "")
	fs.Var(&attributes, "search-attribute", "")
	if err := fs.Parse(args[2:]); err != nil {
		return err
	}
	o.UI = !*headless
	var onDisk list
	if o.DB != "" {
		onDisk = list{"journal_mode=wal", "synchronous=1"}
	}
	for what, lists := range map[string][2]list{
		"dynamic-config-value": {dynamic,
			{"history.transferProcessorMaxPollRPS=2000", "matching.numTaskqueueReadPartitions=1",
				"matching.numTaskqueueWritePartitions=1", "system.enableActivityEagerExecution=true"}},
		"sqlite-pragma": {pragmas, onDisk},
		"search-attribute": {attributes,
			{"UnwindStatus=Keyword", "UnwindAgent=Keyword", "UnwindGate=Keyword", "UnwindParked=Keyword",
				"UnwindFailing=Keyword", "UnwindPending=Int", "UnwindTask=Keyword"}},
	} {
		if !slices.Equal(lists[0], lists[1]) {
			return fmt.Errorf("--%s is %v, not %v", what, lists[0], lists[1])
		}
	}
	server, err := ensureBuilt(context.Background(), os.Stderr)
	if err != nil {
		return err
	}
	nobody, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	if err := syscall.Dup2(int(nobody.Fd()), 0); err != nil {
		return err
	}
	own := slices.DeleteFunc(ownArgs(o), func(arg string) bool { return arg == "--with-parent" })
	return syscall.Exec(server, append([]string{server}, own...), os.Environ())
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// putCLIOnPath puts the stand-in on PATH, so that findProgram finds it.
func putCLIOnPath(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	bin := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(bin, "temporal")))
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// hideCLI takes a real temporal CLI off PATH, so that a test gets our own server; the go command
// stays.
func hideCLI(t *testing.T) {
	t.Helper()
	var kept []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, "temporal")); err != nil {
			kept = append(kept, dir)
		}
	}
	t.Setenv("PATH", strings.Join(kept, string(os.PathListSeparator)))
}

func TestTheCLIOnPathIsUsed(t *testing.T) {
	hideCLI(t) // so that only the stand-in is found
	putCLIOnPath(t)
	s := startServer(t, Options{DB: filepath.Join(t.TempDir(), "dev.db"), UI: true, Namespace: "work"})
	require.Equal(t, "temporal", filepath.Base(s.program.path))
	require.Equal(t, "http://127.0.0.1:"+strconv.Itoa(s.opts.UIPort), s.UIURL)
}

func TestAScriptRoundTheCLIEndsWithIt(t *testing.T) {
	hideCLI(t)
	putCLIOnPath(t)
	cli, err := exec.LookPath("temporal")
	require.NoError(t, err)
	bin := t.TempDir()
	script := "#!/bin/sh\n" + cli + " \"$@\"\nexit $?\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "temporal"), []byte(script), 0o700))
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	for name, end := range map[string]func(*Server){
		"stopped": func(s *Server) { require.NoError(t, s.Stop()) },
		"killed":  (*Server).Kill,
	} {
		s := startServer(t, Options{})
		require.Equal(t, filepath.Join(bin, "temporal"), s.program.path)
		end(s)
		require.Error(t, reachable(t.Context(), s.Address), name)
	}
}

func TestTheCLIsErrorIsShown(t *testing.T) {
	putCLIOnPath(t)
	t.Setenv("FAKE_TEMPORAL_ERROR", "unknown flag: --sqlite-pragma")
	_, err := Start(t.Context(), Options{DB: filepath.Join(t.TempDir(), "dev.db")})
	require.ErrorContains(t, err, "exit status 1")
	require.ErrorContains(t, err, "unknown flag: --sqlite-pragma")
}
