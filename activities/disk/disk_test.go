package disk_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/disk"
)

// newDisk is a folder with a disk.
func newDisk(t *testing.T) string {
	needTools(t)
	dir := t.TempDir()
	start(t, dir)
	return dir
}

func preflight(t *testing.T, dir, action string, with params) error {
	a, _, s := stepOf(t, dir, action, "preflight", with)
	return a.(activities.Preflighter).Preflight(context.Background(), activities.Outlook{Step: s})
}

// TestACheckpointSharesWhatIsNotOverwritten and hundreds of them take no longer than the first.
func TestACheckpointSharesWhatIsNotOverwritten(t *testing.T) {
	dir := newDisk(t)
	size := func() int64 {
		info, err := os.Stat(diskOf(dir))
		require.NoError(t, err)
		return info.Size()
	}
	first := size()
	for range 20 {
		keepAs(t, dir, "one")
	}
	require.Len(t, tags(t, diskOf(dir)), 1, "one step takes one checkpoint")
	for name := range strings.FieldsSeq("a b c d e f g h") {
		keepAs(t, dir, name)
	}
	require.Less(t, size()-first, int64(1<<20))
	require.Len(t, tags(t, diskOf(dir)), 9)
}

// TestTheSizeOfADiskGoesBack as well.
func TestTheSizeOfADiskGoesBack(t *testing.T) {
	dir := newDisk(t)
	keepAs(t, dir, "one")
	before := content(t, diskOf(dir))
	run(t, "qemu-img", "resize", "-q", diskOf(dir), "24M")
	write(t, diskOf(dir), "write -P 9 20M 1M")
	grown := content(t, diskOf(dir))
	with := params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "one")}
	diff, err := apply(t, dir, "disk.compare", "compare", with)
	require.NoError(t, err)
	require.Equal(t, "~ size: 25165824 bytes (was 16777216)\n~ bytes 20971520 to 22020095\n", diff.Outputs["diff"])
	_, err = apply(t, dir, "disk.restore", "back", with)
	require.NoError(t, err)
	require.Equal(t, before, content(t, diskOf(dir)))
	u, err := undo(t, dir, "disk.restore", "back", with, activities.Decision{Done: true})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome)
	require.Equal(t, grown, content(t, diskOf(dir)))
	require.Equal(t, []string{"unwind-" + checkpointOf(dir, "one")}, tags(t, diskOf(dir)), "the undo leaves nothing behind")
}

// TestAnUndoSeesWritesThoughTheCheckpointIsGone: then the disk's clusters are written in place.
func TestAnUndoSeesWritesThoughTheCheckpointIsGone(t *testing.T) {
	dir := newDisk(t)
	keepAs(t, dir, "one")
	write(t, diskOf(dir), "write -P 8 0 64k")
	before := content(t, diskOf(dir))
	with := params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "one")}
	_, err := apply(t, dir, "disk.restore", "back", with)
	require.NoError(t, err)
	u, err := undo(t, dir, "disk.checkpoint", "one", params{"disk": diskOf(dir)}, activities.Decision{Done: true})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome)
	write(t, diskOf(dir), "write -P 7 8k 4k")
	u, err = undo(t, dir, "disk.restore", "back", with, activities.Decision{Done: true})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome)
	require.Equal(t, "~ bytes 8192 to 12287\n", u.Drift.Diff)
	shown := u.Drift.Digest
	write(t, diskOf(dir), "write -P 6 8k 4k") // in place: no map changes
	u, err = undo(t, dir, "disk.restore", "back", with, activities.Decision{Done: true, Force: shown})
	require.NoError(t, err)
	require.Equal(t, activities.Drifted, u.Outcome, "what was not shown is not overwritten")
	u, err = undo(t, dir, "disk.restore", "back", with, activities.Decision{Done: true, Force: u.Drift.Digest})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome)
	require.Equal(t, before, content(t, diskOf(dir)))
}

// TestComparingCountsWhatReadsDifferently and not what was written with what it had.
func TestComparingCountsWhatReadsDifferently(t *testing.T) {
	dir := newDisk(t)
	keepAs(t, dir, "one")
	write(t, diskOf(dir), "write -P 1 0 64k", "write -z 12M 64k", "write -P 0 13M 64k", "write -P 9 1020k 8k", "discard 4M 4k")
	keepAs(t, dir, "two")
	write(t, diskOf(dir), "write -P 3 14M 512")
	with := params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "one"), "with": checkpointOf(dir, "two")}
	r, err := apply(t, dir, "disk.compare", "both", with)
	require.NoError(t, err)
	require.Equal(t, "~ bytes 1044480 to 1052671\n~ bytes 4194304 to 4198399\n", r.Outputs["diff"])
	require.Equal(t, "12288", fmt.Sprint(r.Outputs["changed"]))
	delete(with, "with")
	r, err = apply(t, dir, "disk.compare", "now", with)
	require.NoError(t, err)
	require.Contains(t, r.Outputs["diff"], "~ bytes 14680064 to 14684159\n")
	require.Equal(t, "16384", fmt.Sprint(r.Outputs["changed"]))
}

// TestCompressedAndLayeredDisks are kept as others: a machine writes what it changes elsewhere.
func TestCompressedAndLayeredDisks(t *testing.T) {
	dir := newDisk(t)
	for name, prepare := range map[string]func(at string){
		"compressed": func(at string) {
			run(t, "qemu-img", "convert", "-c", "-f", "qcow2", "-O", "qcow2", diskOf(dir), at)
		},
		"zstd": func(at string) {
			run(t, "qemu-img", "convert", "-c", "-o", "compression_type=zstd", "-f", "qcow2", "-O", "qcow2", diskOf(dir), at)
		},
		"over another": func(at string) { create(t, "-F", "qcow2", "-b", filepath.Base(diskOf(dir)), at) },
		"old": func(at string) {
			run(t, "qemu-img", "convert", "-f", "qcow2", "-O", "qcow2", "-o", "compat=0.10", diskOf(dir), at)
		},
		"extended": func(at string) { create(t, "-o", "extended_l2=on", at, "16M"); write(t, at, "write -P 1 2k 1M") },
		"small":    func(at string) { create(t, "-o", "cluster_size=512", at, "16M"); write(t, at, "write -P 1 2k 1M") },
	} {
		t.Run(name, func(t *testing.T) {
			at := filepath.Join(dir, "data", name)
			prepare(at)
			before := content(t, at)
			r, err := apply(t, dir, "disk.checkpoint", name, params{"disk": at})
			require.NoError(t, err)
			write(t, at, "write -P 33 512k 1M", "write -P 34 9M 4k")
			after := content(t, at)
			with := params{"disk": at, "checkpoint": r.Outputs["checkpoint"]}
			_, err = apply(t, dir, "disk.verify", name+" verify", with)
			require.NoError(t, err)
			_, err = apply(t, dir, "disk.restore", name+" back", with)
			require.NoError(t, err)
			require.Equal(t, before, content(t, at))
			u, err := undo(t, dir, "disk.restore", name+" back", with, activities.Decision{Done: true})
			require.NoError(t, err)
			require.Equal(t, activities.Restored, u.Outcome)
			require.Equal(t, after, content(t, at))
			require.Equal(t, "0 corruptions", isWhole(t, at))
		})
	}
}

// TestWhatCannotBeKeptIsRefused before anything is touched, with the way out.
func TestWhatCannotBeKeptIsRefused(t *testing.T) {
	dir := newDisk(t)
	in := func(name string) string { return filepath.Join(dir, "data", name) }
	outside := filepath.Join(dir, "outside.qcow2")
	create(t, outside, "1M")
	require.NoError(t, os.WriteFile(in("raw"), make([]byte, 1<<20), 0o600))
	require.NoError(t, os.Symlink(outside, in("link")))
	require.NoError(t, os.Mkdir(in("folder"), 0o700))
	create(t, "-F", "qcow2", "-b", outside, in("over-outside"))
	create(t, "-F", "raw", "-b", in("raw"), in("over-gone"))
	run(t, "qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", in("gone"), in("over-gone"))
	create(t, "-F", "raw", "-b", in("raw"), in("over-net"))
	run(t, "qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", "nbd:127.0.0.1:1", in("over-net"))
	run(t, "qemu-img", "create", "-q", "-f", "vmdk", in("vmdk"), "1M")
	create(t, "-F", "vmdk", "-b", in("vmdk"), in("over-vmdk"))
	create(t, "--object", "secret,id=s,data=x", "-o", "encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10",
		in("encrypted"), "1M")
	create(t, "-o", "data_file="+in("data")+",data_file_raw=on", in("split"), "1M")
	create(t, "-o", "refcount_bits=1", in("narrow"), "1M")
	create(t, in("bitmaps"), "1M")
	run(t, "qemu-img", "bitmap", "--add", in("bitmaps"), "backup")
	create(t, in("cut"), "1M")
	require.NoError(t, os.Truncate(in("cut"), 1000))
	for disk, why := range map[string]string{
		"shop.qcow2":       `disk: "shop.qcow2" must be an absolute path`,
		in("gone"):         "disk: there is no " + in("gone"),
		outside:            "is in none of the folders that this worker's config allows (disk.roots: " + filepath.Join(dir, "data"),
		in("link"):         outside + " is in none of the folders",
		in("folder"):       "is not a regular file",
		in("raw"):          "it is not a qcow2 image, and only such have snapshots; convert it (qemu-img convert -O qcow2",
		in("over-outside"): "lies over \"" + outside + "\", which cannot be used",
		in("over-gone"):    "which cannot be used: Refused: disk: there is no",
		in("over-net"):     `lies over "nbd:127.0.0.1:1", which is not named by a path`,
		in("over-vmdk"):    `of format "vmdk"; only qcow2 and raw are known`,
		in("encrypted"):    "it is encrypted",
		in("split"):        "its data is in another file",
		in("narrow"):       "its refcount_bits are below 16",
		in("bitmaps"):      "it has dirty bitmaps, which a restore would make wrong",
		in("cut"):          "leads to the bytes",
	} {
		err := preflight(t, dir, "disk.checkpoint", params{"disk": disk})
		require.ErrorContains(t, err, why)
		require.Equal(t, activities.Refused, activities.TypeOf(err), disk)
		_, err = apply(t, dir, "disk.checkpoint", disk, params{"disk": disk})
		require.ErrorContains(t, err, why)
		require.Equal(t, activities.Refused, activities.TypeOf(err), disk)
	}
}

// TestBadCheckpointsAreRefused.
func TestBadCheckpointsAreRefused(t *testing.T) {
	dir := newDisk(t)
	keepAs(t, dir, "one")
	other := params{"disk": diskOf(dir) + ".other", "checkpoint": checkpointOf(dir, "one")}
	for _, action := range []string{"disk.restore", "disk.verify", "disk.compare"} {
		_, err := apply(t, dir, action, "other", other)
		require.ErrorContains(t, err, "is of "+diskOf(dir)+", and the disk is "+diskOf(dir)+".other")
		_, err = apply(t, dir, action, "none", params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "none")})
		require.ErrorContains(t, err, "there is no cp-")
		err = preflight(t, dir, action, params{"disk": diskOf(dir), "checkpoint": "latest"})
		require.ErrorContains(t, err, `checkpoint: "latest" is no name of a checkpoint`)
	}
	run(t, "qemu-img", "snapshot", "-d", "unwind-"+checkpointOf(dir, "one"), diskOf(dir))
	with := params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "one")}
	_, err := apply(t, dir, "disk.verify", "gone", with)
	require.ErrorContains(t, err, "somebody has deleted it, or has put another file there")
	write(t, diskOf(dir), "write -P 99 0 64k")
	run(t, "qemu-img", "snapshot", "-c", "unwind-"+checkpointOf(dir, "one"), diskOf(dir))
	_, err = apply(t, dir, "disk.restore", "forged", with)
	require.ErrorContains(t, err, "is not as it was kept")
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err))
}

// TestADamagedImageIsRefused when QEMU finds that, and what QEMU has left open.
func TestADamagedImageIsRefused(t *testing.T) {
	dir := newDisk(t)
	file, err := os.OpenFile(diskOf(dir), os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	refcounts := make([]byte, 8)
	_, err = file.ReadAt(refcounts, 48)
	require.NoError(t, err)
	zero := func(at int64) {
		_, err := file.WriteAt(make([]byte, 8), at)
		require.NoError(t, err)
	}
	zero(int64(refcounts[5])<<16 | int64(refcounts[6])<<8) // clusters are used that nobody counts
	_, err = apply(t, dir, "disk.checkpoint", "one", params{"disk": diskOf(dir)})
	require.ErrorContains(t, err, "is damaged (")
	require.Equal(t, activities.Refused, activities.TypeOf(err))

	other := diskOf(dir) + ".other"
	lazy, err := os.OpenFile(other, os.O_RDWR, 0)
	require.NoError(t, err)
	defer lazy.Close()
	_, err = lazy.WriteAt([]byte{0, 0, 0, 0, 0, 0, 0, 1}, 72)
	require.NoError(t, err)
	_, err = apply(t, dir, "disk.checkpoint", "two", params{"disk": other})
	require.ErrorContains(t, err, "was not closed properly; mend it (qemu-img check -r all")
}

// TestADiskInUseIsRefused whoever has it open, and an undo waits for its end.
func TestADiskInUseIsRefused(t *testing.T) {
	dir := newDisk(t)
	keepAs(t, dir, "one")
	write(t, diskOf(dir), "write -P 8 0 64k")
	with := params{"disk": diskOf(dir), "checkpoint": checkpointOf(dir, "one")}
	_, err := apply(t, dir, "disk.restore", "back", with)
	require.NoError(t, err)
	release := occupy(t, diskOf(dir))
	for action, p := range map[string]params{"disk.checkpoint": {"disk": diskOf(dir)}, "disk.restore": with} {
		_, err := apply(t, dir, action, "in use", p)
		require.ErrorContains(t, err, "is in use: a machine or another program has it open; stop it, or name")
		require.Equal(t, activities.Refused, activities.TypeOf(err))
	}
	r, err := apply(t, dir, "disk.verify", "verify", with)
	require.NoError(t, err, "the map of a checkpoint can be read at any time")
	require.Contains(t, r.Notes[0], "is in use: the rest of the image was not checked")
	_, err = undo(t, dir, "disk.restore", "back", with, activities.Decision{Done: true})
	require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "it is tried again: %v", err)
	release()
	u, err := undo(t, dir, "disk.restore", "back", with, activities.Decision{Done: true})
	require.NoError(t, err)
	require.Equal(t, activities.Restored, u.Outcome)
}

// occupy has a program open a disk as a machine would, until release.
func occupy(t *testing.T, at string) (release func()) {
	c := exec.Command("qemu-io", "-f", "qcow2", at)
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	_, err = in.Write([]byte("read 0 512\n"))
	require.NoError(t, err)
	_, err = out.Read(make([]byte, 64)) // it has answered
	require.NoError(t, err)
	ended := false
	release = func() {
		if !ended {
			ended = true
			in.Close()
			_ = c.Wait()
		}
	}
	t.Cleanup(release)
	return release
}

// TestNobodyOpensADiskThatIsWorkedOn: qemu-img is stopped in the middle, and its caller killed.
func TestNobodyOpensADiskThatIsWorkedOn(t *testing.T) {
	dir := newDisk(t)
	file, err := os.OpenFile(diskOf(dir), os.O_RDWR, 0)
	require.NoError(t, err)
	locked, err := disk.LockImage(file)
	require.NoError(t, err)
	require.True(t, locked)
	heir := exec.Command("sleep", "60")
	heir.ExtraFiles = []*os.File{file}
	require.NoError(t, heir.Start())
	require.NoError(t, file.Close())
	open := func() string {
		out, _ := exec.Command("qemu-io", "-f", "qcow2", "-c", "read 0 512", diskOf(dir)).CombinedOutput()
		return string(out)
	}
	require.Contains(t, open(), `Failed to get "write" lock`)
	require.NoError(t, heir.Process.Kill())
	require.Error(t, heir.Wait())
	require.Contains(t, open(), "read 512/512 bytes")
}

// TestAnUndoOfAKilledProgramLeavesAWholeImage kills qemu-img at moments of what it does. Until somebody
// comes back for the step, clusters may be counted that nobody refers to.
func TestAnUndoOfAKilledProgramLeavesAWholeImage(t *testing.T) {
	dir := newDisk(t)
	at := filepath.Join(dir, "data", "large")
	create(t, "-o", "cluster_size=512", at, "8M")
	write(t, at, "write -P 1 0 4M")
	_, err := apply(t, dir, "disk.checkpoint", "one", params{"disk": at})
	require.NoError(t, err)
	write(t, at, "write -P 2 1M 6M")
	two := content(t, at)
	with := params{"disk": at, "checkpoint": checkpointOf(dir, "one")}
	began := time.Now()
	_, err = apply(t, dir, "disk.restore", "whole", with)
	require.NoError(t, err)
	took := time.Since(began)
	_, err = undo(t, dir, "disk.restore", "whole", with, activities.Decision{Done: true})
	require.NoError(t, err)
	const moments = 10
	for n := range moments {
		a, e, s := stepOf(t, dir, "disk.restore", "killed"+string(rune('a'+n)), with)
		ctx, cancel := context.WithTimeout(context.Background(), took*time.Duration(n+1)/moments)
		_, _ = a.Apply(ctx, e, s, "") // the call's process is killed, and what it has started with the undo
		cancel()
		u, err := a.Undo(context.Background(), e, activities.Decision{})
		require.NoError(t, err)
		require.Contains(t, []activities.Outcome{activities.Restored, activities.Nothing}, u.Outcome)
		require.Equal(t, two, content(t, at))
		require.Contains(t, run(t, "qemu-img", "check", at), "No errors were found", "and nothing is left over")
		_, err = apply(t, dir, "disk.verify", "verify"+string(rune('a'+n)), with)
		require.NoError(t, err, "the checkpoint is as it was kept")
	}
}
