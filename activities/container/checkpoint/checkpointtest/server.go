package checkpointtest

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	dockertypes "github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// testServer has nginx as a container's first process: it holds its log open, and reads its
// configuration again when it is told to. Such a container gets docker commit, whatever is asked
// for.
func (s Subject) testServer(t *testing.T, on setting, tree []byte) {
	b := start(t, on, &dockertypes.Config{Image: on.image, Cmd: []string{"/usr/sbin/nginx", "-c", "/etc/nginx.conf"}},
		tree)
	web := server{b, t}
	web.says("one")
	id := b.Inspect(t).ID
	k := s.newTask(t, on, map[string]any{
		"container": b.Name,
		"command":   "echo 'return 200 two;' >/etc/answer.conf; /usr/sbin/nginx -c /etc/nginx.conf -s reload",
		"ignore":    []string{"/srv/log", "/run"},
	})
	plan, err := k.action.Plan(t.Context(), k.entry, k.with)
	require.NoError(t, err)
	const why = "by docker commit, not by a layer: process \"nginx"
	assert.Equal(t, s.Layers, strings.Contains(strings.Join(plan.Facts, "\n"), why), "%q", plan.Facts)
	applied, err := k.action.Apply(t.Context(), k.entry, k.with, plan.Digest)
	require.NoError(t, err)
	assert.Equal(t, s.Layers, strings.Contains(strings.Join(applied.Notes, "\n"), why), "%q", applied.Notes)
	web.says("two")
	web.logs()

	undone, err := k.action.Undo(t.Context(), k.entry, activities.Decision{})
	require.NoError(t, err)
	require.Equal(t, activities.Compensated, undone.Outcome, "%+v", undone)
	assert.Equal(t, s.Layers, strings.Contains(undone.Observed, why), undone.Observed)
	require.NotEqual(t, id, b.Inspect(t).ID)
	web.says("one")
	web.logs()
}

// nginx is a tree of Debian's nginx with the libraries that it needs, and a configuration, as a tar
// stream.
func nginx(t *testing.T) []byte {
	t.Helper()
	at := t.TempDir()
	if err := unpack(t, at); err != nil {
		testrun.Skipf(t, "nginx cannot be had, so no server is tested: %v", err)
	}
	for name, content := range map[string]string{
		"etc/answer.conf": "return 200 one;\n",
		"etc/nginx.conf": `daemon off; user root; worker_processes 1; pid /run/nginx.pid; error_log /srv/log/error.log;
events {}
http { access_log /srv/log/access.log; server { listen 127.0.0.1:80; location / { include /etc/answer.conf; } } }
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(at, "tree", name), []byte(content), 0o644))
	}
	for _, dir := range []string{"srv/log", "var/lib/nginx", "run"} {
		require.NoError(t, os.MkdirAll(filepath.Join(at, "tree", dir), 0o755))
	}
	var stream bytes.Buffer
	w := tar.NewWriter(&stream)
	require.NoError(t, w.AddFS(os.DirFS(filepath.Join(at, "tree"))))
	require.NoError(t, w.Close())
	return stream.Bytes()
}

// unpack gets the packages, and unpacks what of them the server needs.
func unpack(t *testing.T, at string) error {
	said, err := exec.CommandContext(t.Context(), "apt-cache", "depends", "nginx").Output()
	if err != nil {
		return err
	}
	packages := []string{"download", "nginx"}
	for line := range strings.Lines(string(said)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok &&
			(strings.HasPrefix(name, "lib") || strings.HasPrefix(name, "zlib")) {
			packages = append(packages, name)
		}
	}
	download := exec.CommandContext(t.Context(), "apt-get", packages...)
	download.Dir = at
	if said, err := download.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	found, err := filepath.Glob(filepath.Join(at, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range found {
		if said, err := exec.CommandContext(t.Context(), "dpkg-deb", "-x", deb,
			filepath.Join(at, "all")).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
	}
	for _, pattern := range []string{"usr/sbin/nginx", "lib/*/*.so*", "usr/lib/*/*.so*", "lib64/*"} {
		files, err := filepath.Glob(filepath.Join(at, "all", pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			to := filepath.Join(at, "tree", strings.TrimPrefix(file, filepath.Join(at, "all")))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			if err := os.Rename(file, to); err != nil {
				return err
			}
		}
	}
	return os.MkdirAll(filepath.Join(at, "tree", "etc"), 0o755)
}

// server is nginx in a box.
type server struct {
	*containertest.Box
	T *testing.T
}

// says waits until the server gives an answer, which is then in its log.
func (s server) says(answer string) {
	s.T.Helper()
	require.Eventually(s.T, func() bool {
		got, err := s.getPath("/" + answer)
		return err == nil && got == answer
	}, time.Minute, 20*time.Millisecond)
}

// getPath asks from within the container's network.
func (s server) getPath(path string) (string, error) {
	ns, err := os.Open("/proc/" + strconv.Itoa(s.Inspect(s.T).State.Pid) + "/ns/net")
	if err != nil {
		return "", err
	}
	defer ns.Close()
	conn := make(chan net.Conn, 1)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: so the thread ends
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			failed <- err
			return
		}
		c, err := net.Dial("tcp", "127.0.0.1:80")
		conn <- c
		failed <- err
	}()
	if err := <-failed; err != nil {
		return "", err
	}
	c := <-conn
	defer c.Close()
	web := http.Client{
		Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil },
			DisableKeepAlives: true}}
	answer, err := web.Get("http://nginx" + path)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

// logs asks more, and looks for each question in the log. None may have found the log read-only.
func (s server) logs() {
	s.T.Helper()
	for range 5 {
		path := "/" + containertest.Random()
		_, err := s.getPath(path)
		require.NoError(s.T, err)
		require.Eventually(s.T, func() bool { return strings.Contains(s.file("access.log"), "GET "+path+" ") }, time.Minute,
			10*time.Millisecond)
	}
	assert.NotContains(s.T, s.file("error.log"), "Read-only")
}

func (s server) file(name string) string {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(s.Inspect(s.T).State.Pid) + "/root/srv/log/" + name)
	require.NoError(s.T, err)
	return string(content)
}
