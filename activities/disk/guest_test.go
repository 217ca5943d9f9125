package disk_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/testrun"
)

// initOf is the first program of a guest: it counts up in a file of a filesystem on the disk, and
// says how far it is.
const initOf = `#!/bin/busybox sh
/bin/busybox mkdir -p /dev /disk
/bin/busybox mount -t devtmpfs none /dev
until /bin/busybox mount -t ext4 /dev/nvme0n1 /disk 2>/dev/null; do :; done
n=$(/bin/busybox cat /disk/n 2>/dev/null || echo 0)
while :; do
	n=$((n + 1))
	echo $n >/disk/n.new && /bin/busybox mv /disk/n.new /disk/n && /bin/busybox sync
	echo "count $n" >/dev/ttyS0
	/bin/busybox usleep 20000
done
`

// archive is an initramfs with files, in the format newc of cpio.
func archive(files map[string][]byte) []byte {
	var b bytes.Buffer
	add := func(name string, mode int, content []byte) {
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", 0, mode, 0, 0, 1, 0, len(content), 0, 0, 0,
			0, len(name)+1, 0)
		b.WriteString(name + "\x00")
		b.Write(make([]byte, -b.Len()&3))
		b.Write(content)
		b.Write(make([]byte, -b.Len()&3))
	}
	add("bin", 0o040755, nil)
	for name, content := range files {
		add(name, 0o100755, content)
	}
	add("TRAILER!!!", 0, nil)
	return b.Bytes()
}

// counting is a machine whose guest counts.
type counting struct {
	*machine

	counts chan int
}

// boot starts a machine with the guest on the disk of a folder.
func boot(t *testing.T, dir string) *counting {
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	kernel := filepath.Join(cache, "unwind-test", "vmlinuz")
	if _, err := os.Stat(kernel); err != nil {
		testrun.Skipf(t, "%s is not there: put the kernel of Debian's linux-image-cloud-amd64 there, as .ci/run does", kernel)
	}
	testrun.NeedProgram(t, "busybox", "install the package busybox-static")
	at, err := exec.LookPath("busybox")
	require.NoError(t, err)
	busybox, err := os.ReadFile(at)
	require.NoError(t, err)
	initrd := filepath.Join(dir, "initrd")
	require.NoError(t, os.WriteFile(initrd,
		archive(map[string][]byte{"init": []byte(initOf), "bin/busybox": busybox}), 0o600))
	console, say, err := os.Pipe()
	require.NoError(t, err)
	defer say.Close()
	g := &counting{counts: make(chan int, 1000)}
	g.machine = startMachineWith(t, dir, say, "-m", "256", "-kernel", kernel, "-initrd", initrd,
		"-append", "console=ttyS0 quiet", "-serial", "stdio")
	go func() {
		defer console.Close()
		defer close(g.counts)
		line := regexp.MustCompile(`count (\d+)`)
		for in := bufio.NewScanner(console); in.Scan(); {
			if m := line.FindStringSubmatch(in.Text()); m != nil {
				n, _ := strconv.Atoi(m[1])
				g.counts <- n
			}
		}
	}()
	return g
}

// next is what the guest has counted to, once that is at least so much.
func (g *counting) next(least int) int {
	giveUp := time.After(2 * time.Minute)
	for {
		select {
		case n, runs := <-g.counts:
			require.True(g.t, runs, "the machine has ended")
			if n >= least {
				return n
			}
		case <-giveUp:
			require.FailNow(g.t, "the guest does not count")
		}
	}
}

// TestAGuestGoesBackAndForward and goes on from where its disk is each time.
func TestAGuestGoesBackAndForward(t *testing.T) {
	needTools(t)
	testrun.NeedProgram(t, "mkfs.ext4", "install the package e2fsprogs")
	dir := t.TempDir()
	raw := filepath.Join(dir, "raw")
	run(t, "truncate", "-s", "64M", raw)
	run(t, "mkfs.ext4", "-q", raw)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	run(t, "qemu-img", "convert", "-O", "qcow2", raw, diskOf(dir))

	g := boot(t, dir)
	require.Equal(t, 1, g.next(0))
	g.next(5)
	r, err := apply(t, dir, "disk.checkpoint", "early", params{"disk": diskOf(dir)})
	require.NoError(t, err)
	require.Equal(t, true, r.Outputs["running"])
	then := g.next(0)
	for len(g.counts) > 0 { // what it had said before the checkpoint
		then = g.next(0)
	}
	g.next(then + 50)
	g.stop()
	_, err = apply(t, dir, "disk.checkpoint", "late", params{"disk": diskOf(dir)})
	require.NoError(t, err)
	ahead := content(t, diskOf(dir))

	_, err = apply(t, dir, "disk.restore", "back", params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "early")})
	require.NoError(t, err)
	g = boot(t, dir)
	first := g.next(0)
	require.Greater(t, first, 5)
	require.LessOrEqual(t, first, then+1)
	g.stop()

	_, err = apply(t, dir, "disk.restore", "forward", params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "late")})
	require.NoError(t, err)
	require.True(t, bytes.Equal(ahead, content(t, diskOf(dir))))
	g = boot(t, dir)
	require.Greater(t, g.next(0), then+50)
}
