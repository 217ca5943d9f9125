package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"

	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
)

func TestMain(m *testing.M) {
	host.Hooks()
	code := m.Run()
	if err := containertest.RemoveImages(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// TestAnAgentBuildsARealProgram checks, by the container's own tar, that nothing is left of the
// failed attempt, and that the next attempt builds a program that runs.
func TestAnAgentBuildsARealProgram(t *testing.T) {
	testrun.Sampled(t)
	containertest.Docker(t)
	options := servertest.Shared(t).ClientOptions()
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	s, err := openSession(t.Context(), options, t.Output())
	if errors.Is(err, errNoDebian) {
		testrun.Skipf(t, "no real program is built: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	before := s.look(t)
	// A parked undo would wait for a person for ever.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()

	var out bytes.Buffer
	require.NoError(t, s.try(ctx, firstTry, &out))
	require.Contains(t, out.String(), "build less: unwound\n")
	require.Contains(t, out.String(), "Cannot find terminal libraries")
	after := s.look(t)
	for path, was := range before {
		require.Equal(t, was, after[path], path)
		delete(after, path)
	}
	require.Empty(t, after)

	out.Reset()
	require.NoError(t, s.try(ctx, secondTry, &out))
	require.Contains(t, out.String(), "build less, with its terminal library: committed\n")
	require.Contains(t, s.runs(t, "/opt/less/bin/less", "--version"), "less ")
}

// look returns what the container's own tar shows of each path, except for what the engine puts
// into every container. An export by the engine does not show layers.
func (s *session) look(t *testing.T) map[string]string {
	t.Helper()
	all := s.runs(t, "tar", "--create", "--one-file-system", "--numeric-owner", "--directory=/", ".")
	seen, links := map[string]string{}, map[string]string{}
	for r := tar.NewReader(strings.NewReader(all)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		h.Name = strings.TrimPrefix(h.Name, "./")
		if h.Typeflag == tar.TypeLink {
			h.Linkname = strings.TrimPrefix(h.Linkname, "./")
		}
		if h.Name == "" || strings.HasPrefix(h.Name, "dev/") ||
			slices.Contains([]string{".dockerenv", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab"}, h.Name) {
			continue
		}
		sum := sha256.New()
		_, err = io.Copy(sum, r)
		require.NoError(t, err)
		seen[h.Name] = fmt.Sprintf("%c %o %d:%d %s %x", h.Typeflag, h.Mode, h.Uid, h.Gid, h.Linkname, sum.Sum(nil))
		if h.Typeflag == tar.TypeReg {
			seen[h.Name] += h.ModTime.UTC().String()
		}
		if h.Typeflag == tar.TypeLink { // the engine shows the same names sometimes as links and sometimes as files
			links[h.Name] = h.Linkname
		}
	}
	for name, to := range links {
		seen[name] = seen[to]
	}
	return seen
}

// runs starts a program in the container without the worker, and returns its output.
func (s *session) runs(t *testing.T, argv ...string) string {
	t.Helper()
	made, err := s.engine.ContainerExecCreate(t.Context(), s.container,
		container.ExecOptions{Cmd: argv, AttachStdout: true, AttachStderr: true})
	require.NoError(t, err)
	stream, err := s.engine.ContainerExecAttach(t.Context(), made.ID, container.ExecAttachOptions{})
	require.NoError(t, err)
	defer stream.Close()
	var said bytes.Buffer
	_, err = stdcopy.StdCopy(&said, t.Output(), stream.Reader)
	require.NoError(t, err)
	return said.String()
}
