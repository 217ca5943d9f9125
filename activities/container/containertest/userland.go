package containertest

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
)

// userland are this machine's own programs in an image: GNU's, on Debian, with all libraries that
// they load.
var userland = []string{
	"arch", "awk", "b2sum", "base64", "basename", "bash", "cat", "chgrp", "chmod", "chown", "cksum", "cmp", "column",
	"comm",
	"cp", "csplit", "cut", "dash", "date", "dd", "df", "diff", "dirname", "dmesg", "dpkg", "dpkg-deb", "dpkg-query",
	"dpkg-split", "du", "echo", "egrep",
	"env", "expand", "expr", "fallocate", "false", "fgrep", "file", "find", "flock", "fold", "free", "getconf", "getent",
	"git",
	"grep", "groups", "gzip", "head", "hexdump", "hostname", "iconv", "id", "install", "join", "jq", "kill", "link", "ln",
	"ls",
	"lsblk", "lscpu", "make", "mawk", "md5sum", "mkdir", "mkfifo", "mknod", "mktemp", "mount", "mv", "netstat", "nice",
	"nl",
	"nohup", "nproc", "od", "paste", "perl", "pgrep", "pkill", "printenv", "printf", "ps", "pwd", "readlink", "realpath",
	"rev", "rm",
	"rmdir", "script", "sed", "seq", "setfattr", "setsid", "sh", "sha256sum", "shred", "shuf", "sleep", "sort", "split",
	"ss", "stat",
	"stdbuf", "sum", "sync", "tac", "tail", "tar", "tee", "test", "timeout", "touch", "tr", "tree", "true", "truncate",
	"tsort",
	"tty", "umount", "uname", "unexpand", "uniq", "unlink", "uptime", "wc", "which", "who", "whoami", "xargs", "xxd", "xz",
	"[",
}

// project is what the commands find in /srv/app.
var project = map[string]string{
	"a.txt": "one 1\ntwo 2\nthree 3\n", "b.txt": "one 1\nfour 4\n", "data.csv": "id,name,n\n1,x,3\n2,y,7\n",
	"a": "1\n", "b": "2\n", "a.sh": "touch ran-a-script\n", "run.sh": "echo ran >ran\n",
	"prog":   `BEGIN{system("touch new")}` + "\n",
	"script": "w new\n", "list": "a.txt\n", "Makefile": "all:\n\techo built >built\n", "evil.mk": "$(shell touch new)\n",
	"package.json": `{"name":"app","version":"1.0.0","scripts":{"test":"true"}}` +
		"\n", "main.py": "print(1)\n", "magic": "0 string x y\n",
	"config/app.yml": "# comment\nport: 80\n", "src/main.c": "int main(void) { return 0; } // TODO\n",
	"src/util.c":     "// nothing\n",
	"docs/README.md": "# App\n", "logs/app.log": "INFO start\nERROR bad\n", ".env": "A=1\n", "fix.patch": "",
	"../evil/ls": "#!/bin/sh\ntouch /srv/app/ran-evil\n", "../evil/cat": "#!/bin/sh\ntouch /srv/app/ran-evil\n",
}

// busyboxVariable names a static busybox: its applets then take the place of GNU's programs.
const busyboxVariable = "UNWIND_TEST_BUSYBOX"

var gnu struct {
	once sync.Once
	ref  string
	err  error
}

// ImportUserland gives an engine of the test's own an image with this machine's own programs.
func ImportUserland(t testing.TB, e *enginetest.Engine) (ref string) {
	t.Helper()
	root, err := userlandRoot(t)
	require.NoError(t, err)
	ref = ImageRef("userland-own")
	answer, err := e.Client(t).ImageImport(t.Context(), image.ImportSource{Source: root, SourceName: "-"}, ref,
		image.ImportOptions{
			Changes: []string{"ENV PATH=/usr/local/bin:/usr/bin:/bin"},
		})
	require.NoError(t, err)
	defer answer.Close()
	_, err = io.Copy(io.Discard, answer)
	require.NoError(t, err)
	return ref
}

// UserlandImage is an image with this machine's own programs, made at the first need.
func UserlandImage(t testing.TB) string {
	t.Helper()
	c := Docker(t)
	gnu.once.Do(func() {
		gnu.ref = ImageRef("userland")
		var root io.Reader
		if root, gnu.err = userlandRoot(t); gnu.err != nil {
			return
		}
		var answer io.ReadCloser
		answer, gnu.err = c.ImageImport(t.Context(), image.ImportSource{Source: root, SourceName: "-"}, gnu.ref,
			image.ImportOptions{
				Changes: []string{"ENV PATH=/usr/local/bin:/usr/bin:/bin", `CMD ["/bin/sleep", "1000000"]`},
			})
		if gnu.err == nil {
			_, gnu.err = io.Copy(io.Discard, answer)
			answer.Close()
		}
	})
	require.NoError(t, gnu.err)
	return gnu.ref
}

var library = regexp.MustCompile(`(?m)(?:=> |^\s+)(/\S+)`)

// userlandRoot is the file tree of the image. Like Debian's, its /bin and /lib are links to those
// below /usr.
func userlandRoot(t testing.TB) (io.Reader, error) {
	var b bytes.Buffer
	tree := &archive{Writer: tar.NewWriter(&b), had: map[string]bool{}}
	for _, dir := range []string{"usr/bin", "usr/lib", "usr/lib64", "usr/local/bin", "etc", "root", "srv/app", "srv/evil",
		"tmp", "var/lib/dpkg"} {
		tree.dir(dir)
	}
	for _, name := range []string{"bin", "lib", "lib64"} {
		tree.addEntry(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: "usr/" + name, Mode: 0o777}, nil)
	}
	for _, name := range []string{"git-receive-pack", "git-upload-pack"} { // git starts them under these names
		tree.addEntry(&tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/bin/" + name, Linkname: "git", Mode: 0o777}, nil)
	}
	busybox := os.Getenv(busyboxVariable)
	if busybox != "" {
		tree.file(busybox, "usr/bin/busybox")
		applets, err := exec.CommandContext(t.Context(), busybox, "--list").Output() //nolint:gosec // the operator of the tests names it
		if err != nil {
			return nil, err
		}
		for name := range strings.FieldsSeq(string(applets)) {
			tree.addEntry(&tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/bin/" + name, Linkname: "busybox", Mode: 0o777}, nil)
		}
	}
	for _, name := range userland {
		at, err := exec.LookPath(name)
		if err != nil || tree.had["usr/bin/"+name] {
			continue
		}
		if at, err = filepath.EvalSymlinks(at); err != nil {
			return nil, err
		}
		tree.file(at, "usr/bin/"+name)
		said, err := exec.CommandContext(t.Context(), "ldd", at).Output()
		if err != nil {
			continue // a script, or static
		}
		for _, found := range library.FindAllStringSubmatch(string(said), -1) {
			if err := tree.library(found[1]); err != nil {
				return nil, err
			}
		}
	}
	for _, at := range []string{"/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/os-release"} {
		if file, err := filepath.EvalSymlinks(at); err == nil {
			tree.file(file, strings.TrimPrefix(at, "/"))
		}
	}
	tree.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
	tree.text("etc/group", "root:x:0:\nnogroup:x:65534:\n")
	for name, content := range project {
		tree.dir(filepath.Dir("srv/app/" + name))
		tree.text("srv/app/"+name, content)
	}
	tree.addEntry(&tar.Header{Typeflag: tar.TypeSymlink, Name: "srv/app/link", Linkname: "a.txt", Mode: 0o777}, nil)
	if tree.err == nil {
		tree.err = tree.Close()
	}
	return &b, tree.err
}

// archive is a tar stream that takes every path once, and remembers the first error.
type archive struct {
	*tar.Writer
	had map[string]bool
	err error
}

func (a *archive) addEntry(h *tar.Header, content []byte) {
	h.Name = filepath.Clean(h.Name)
	if a.err != nil || a.had[h.Name] {
		return
	}
	a.had[h.Name] = true
	h.Size, h.ModTime = int64(len(content)), time.Unix(1_700_000_000, 0)
	if a.err = a.WriteHeader(h); a.err == nil {
		_, a.err = a.Write(content)
	}
}

func (a *archive) dir(name string) {
	if name = filepath.Clean(name); name == "." || a.had[name] {
		return
	}
	a.dir(filepath.Dir(name))
	a.addEntry(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, nil)
}

func (a *archive) text(name, content string) {
	a.addEntry(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, []byte(content))
}

func (a *archive) file(from, name string) {
	raw, err := os.ReadFile(from)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.text(name, string(raw))
}

// library puts a library where programs look for it: below /usr, for /lib is a link.
func (a *archive) library(at string) error {
	file, err := filepath.EvalSymlinks(at)
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(at, "/")
	if !strings.HasPrefix(name, "usr/") {
		name = "usr/" + name
	}
	a.dir(filepath.Dir(name))
	a.file(file, name)
	return nil
}

// InUserland makes a container of the userland's image.
func InUserland(t testing.TB) func(*container.Config, *container.HostConfig, *network.NetworkingConfig) {
	ref := UserlandImage(t)
	return func(config *container.Config, _ *container.HostConfig, _ *network.NetworkingConfig) {
		config.Image = ref
	}
}
