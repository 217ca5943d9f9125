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

// initOf is the first program of a guest: it counts up from what a file of a filesystem on the disk
// has, notes there how far it is, and says it, with the id that the kernel has until it is booted again.
const initOf = `#!/bin/busybox sh
/bin/busybox mkdir -p /dev /disk /proc
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox mount -t proc none /proc
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
	if [ -e /$module.ko ]; then /bin/busybox insmod /$module.ko; fi
done
until /bin/busybox mount -t ext4 /dev/nvme0n1 /disk || /bin/busybox mount -t ext4 /dev/vda /disk; do :; done 2>/dev/null
n=$(/bin/busybox cat /disk/n 2>/dev/null || echo 0)
while :; do
	n=$((n + 1))
	echo $n >/disk/n.new && /bin/busybox mv /disk/n.new /disk/n && /bin/busybox sync
	echo "count $n $n $(/bin/busybox cat /proc/sys/kernel/random/boot_id)" >/dev/ttyS0
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

// count is what a guest says.
type count struct {
	n    int
	boot string
}

// counting is a machine whose guest counts.
type counting struct {
	*machine

	counts chan count
	heard  count // last
	jumps  []int // where it has counted from since, other than from the one before
	left   int   // where it was before the last of them
}

// needGuest makes the disk of a guest in a folder.
func needGuest(t *testing.T) (dir string) {
	needTools(t)
	testrun.NeedProgram(t, "mkfs.ext4", "install the package e2fsprogs")
	dir = t.TempDir()
	raw := filepath.Join(dir, "raw")
	run(t, "truncate", "-s", "64M", raw)
	run(t, "mkfs.ext4", "-q", raw)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	run(t, "qemu-img", "convert", "-O", "qcow2", raw, diskOf(dir))
	return dir
}

// boot starts a machine with the guest on the disk of a folder.
func boot(t *testing.T, dir, device string, more ...string) *counting {
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
	files := map[string][]byte{"init": []byte(initOf), "bin/busybox": busybox}
	if device == virtio {
		modules, err := filepath.Glob(filepath.Join(filepath.Dir(kernel), "*.ko"))
		require.NoError(t, err)
		for _, at := range modules {
			files[filepath.Base(at)], err = os.ReadFile(at)
			require.NoError(t, err)
		}
		if len(modules) == 0 {
			testrun.Skipf(t, "the kernel's virtio modules are not beside %s: put them there, as .ci/run does", kernel)
		}
	}
	initrd := filepath.Join(dir, "initrd")
	require.NoError(t, os.WriteFile(initrd, archive(files), 0o600))
	console, say, err := os.Pipe()
	require.NoError(t, err)
	defer say.Close()
	g := &counting{counts: make(chan count, 1000)}
	g.machine = startMachineWith(t, dir, device, say, append([]string{"-m", "256", "-kernel", kernel, "-initrd", initrd,
		"-append", "console=ttyS0 quiet", "-serial", "stdio"}, more...)...)
	go func() {
		defer console.Close()
		defer close(g.counts)
		line := regexp.MustCompile(`count (\d+) (\d+) (\S{36})$`)
		for in := bufio.NewScanner(console); in.Scan(); {
			if m := line.FindStringSubmatch(in.Text()); m != nil {
				if n, err := strconv.Atoi(m[1]); err == nil && m[1] == m[2] { // and not cut short where the machine was put back
					g.counts <- count{n, m[3]}
				}
			}
		}
	}()
	return g
}

// hear waits for what the guest says next.
func (g *counting) hear() count {
	select {
	case c, runs := <-g.counts:
		require.True(g.t, runs, "the machine has ended")
		if g.heard.n > 0 && c.n != g.heard.n+1 {
			g.jumps, g.left = append(g.jumps, c.n), g.heard.n
		}
		g.heard = c
		return c
	case <-time.After(2 * time.Minute):
		require.FailNow(g.t, "the guest does not count")
		return count{}
	}
}

// next is what the guest has counted to, once that is at least so much.
func (g *counting) next(least int) int {
	for {
		if c := g.hear(); c.n >= least {
			return c.n
		}
	}
}

// jump is where the guest counts from, the next time that it does not count on.
func (g *counting) jump() int {
	for len(g.jumps) == 0 {
		g.hear()
	}
	to := g.jumps[0]
	g.jumps = g.jumps[1:]
	return to
}

// last is what the guest has counted to by now.
func (g *counting) last() (n int) {
	for n = g.next(0); len(g.counts) > 0; {
		n = g.next(0)
	}
	return n
}

// TestAGuestGoesBackAndForward and goes on from where its disk is each time.
func TestAGuestGoesBackAndForward(t *testing.T) {
	dir := needGuest(t)
	g := boot(t, dir, nvme)
	require.Equal(t, 1, g.next(0))
	g.next(5)
	r, err := apply(t, dir, "disk.checkpoint", "early", params{"disk": diskOf(dir)})
	require.NoError(t, err)
	require.Equal(t, true, r.Outputs["running"])
	then := g.last()
	g.next(then + 50)
	g.stop()
	_, err = apply(t, dir, "disk.checkpoint", "late", params{"disk": diskOf(dir)})
	require.NoError(t, err)
	ahead := content(t, diskOf(dir))

	_, err = apply(t, dir, "disk.restore", "back", params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "early")})
	require.NoError(t, err)
	g = boot(t, dir, nvme)
	first := g.next(0)
	require.Greater(t, first, 5)
	require.LessOrEqual(t, first, then+1)
	g.stop()

	_, err = apply(t, dir, "disk.restore", "forward", params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "late")})
	require.NoError(t, err)
	require.True(t, bytes.Equal(ahead, content(t, diskOf(dir))))
	g = boot(t, dir, nvme)
	require.Greater(t, g.next(0), then+50)
}
