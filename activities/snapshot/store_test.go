package snapshot

import (
	"bytes"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/internal/filetree"
	"github.com/seed-62bf7108/unwind/testrun"
)

// files is a folder of ordinary files beside a store.
type files struct {
	*testing.T
	root  string
	store *Store
}

func newFiles(t *testing.T) *files {
	t.Helper()
	dir := t.TempDir()
	f := &files{T: t, root: filepath.Join(dir, "root")}
	var err error
	f.store, err = Open(filepath.Join(dir, "store"))
	require.NoError(t, err)
	for i := range 20 {
		f.write(filepath.Join("d"+strconv.Itoa(i%4), strconv.Itoa(i)), []byte("file "+strconv.Itoa(i)))
	}
	f.write("large", f.noise(1, 4*chunkSize+5))
	return f
}

func (f *files) noise(seed int64, size int) []byte {
	data := make([]byte, size)
	rand.New(rand.NewSource(seed)).Read(data)
	return data
}

func (f *files) at(name string) string { return filepath.Join(f.root, name) }

func (f *files) write(name string, data []byte) {
	f.Helper()
	require.NoError(f, os.MkdirAll(filepath.Dir(f.at(name)), 0o755))
	require.NoError(f, os.WriteFile(f.at(name), data, 0o644))
}

// age has what was changed so far pass for what was changed long ago: it waits until a scan trusts
// it.
func (f *files) age() {
	f.Helper()
	top, err := filetree.Open(unix.AT_FDCWD, f.root)
	require.NoError(f, err)
	defer top.Close()
	trusted, err := trustedBefore(top)
	require.NoError(f, err)
	if trusted == 0 {
		testrun.Skipf(f, "change times are trusted on ext4, xfs and btrfs only, and %s is on none: set TMPDIR", f.root)
	}
	f.write("aged", []byte(time.Now().String()))
	require.Eventually(f, func() bool {
		now, err := scan(f.Context(), Root{Path: f.root}, nil, reading{})
		require.NoError(f, err)
		return now.Nodes["/aged"].Changed != 0
	}, time.Minute, 100*time.Millisecond)
}

func (f *files) keep(name string) Content {
	f.Helper()
	c, err := f.store.Keep(f.Context(), Root{Path: f.root}, Keeping{Name: name})
	require.NoError(f, err)
	return c
}

func (f *files) restore(name string) {
	f.Helper()
	kept, err := f.store.Load(name)
	require.NoError(f, err)
	r := Restore{Root: Root{Path: f.root}, From: f.store, Want: kept.Content, Stage: f.root + "-stage", Over: func() error { return nil }}
	differs, err := r.Run(f.Context())
	require.NoError(f, err)
	require.Empty(f, differs)
	require.NoError(f, r.Clear())
}

func (f *files) chunks() (names []string) {
	f.Helper()
	require.NoError(f, filepath.WalkDir(f.store.in(chunksDir), func(at string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, at)
		}
		return err
	}))
	return names
}

// TestASecondTreeReadsAndKeepsOnlyWhatHasChanged: what has not changed is not even opened.
func TestASecondTreeReadsAndKeepsOnlyWhatHasChanged(t *testing.T) {
	f := newFiles(t)
	f.age()
	f.keep("first")
	kept := len(f.chunks())
	changed := f.noise(1, 4*chunkSize+5)
	changed[2*chunkSize+7]++
	f.write("large", changed)
	f.write("d1/1", []byte("another"))

	p := &Progress{}
	tally := p.begin("reading")
	_, err := scan(t.Context(), Root{Path: f.root}, f.store.latest(Root{Path: f.root}), reading{tally: tally})
	require.NoError(t, err)
	require.EqualValues(t, 2, tally.Nodes())
	second := f.keep("second")
	require.Len(t, f.chunks(), kept+3, "a small file, a chunk of the large one, and the list of its chunks")

	again, err := Scan(t.Context(), Root{Path: f.root}, Look{})
	require.NoError(t, err)
	require.Empty(t, second.Differs(again), "as if all had been read")
	f.restore("first")
	content, err := os.ReadFile(f.at("large"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(f.noise(1, 4*chunkSize+5), content))
	f.restore("second")
	content, err = os.ReadFile(f.at("large"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(changed, content))
}

// TestAChangeThatHidesItselfIsSeen: with the size and the time of what was there, through a mapping,
// by a rename, of an attribute alone, and at once after it was kept.
func TestAChangeThatHidesItselfIsSeen(t *testing.T) {
	f := newFiles(t)
	mapped, err := os.OpenFile(f.at("d2/2"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer mapped.Close()
	page, err := unix.Mmap(int(mapped.Fd()), 0, 6, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer unix.Munmap(page)
	page[5] = 'X' // the page is dirty from now on
	f.age()
	before := f.keep("before")

	page[5] = 'Y'
	info, err := os.Stat(f.at("d1/1"))
	require.NoError(t, err)
	f.write("d1/1", []byte("FILE 1"))
	require.NoError(t, os.Chtimes(f.at("d1/1"), info.ModTime(), info.ModTime()))
	require.NoError(t, os.Rename(f.at("d3/3"), f.at("d3/was-3")))
	require.NoError(t, os.Rename(f.at("d3/7"), f.at("d3/3")))
	require.NoError(t, unix.Setxattr(f.at("d0/0"), "user.note", []byte("x"), 0))
	want := []string{"/d0/0", "/d1/1", "/d2/2", "/d3", "/d3/3", "/d3/7", "/d3/was-3"}
	after := f.keep("after")
	require.Equal(t, want, before.Differs(after))

	f.write("d0/4", []byte("file!4"))
	require.Equal(t, []string{"/d0/4"}, after.Differs(f.keep("later")), "it was read just before")
	now, err := scan(t.Context(), Root{Path: f.root}, nil, reading{})
	require.NoError(t, err)
	require.Zero(t, now.Nodes["/d0/4"].Changed, "it may change again within one tick of the clock")
	require.NotZero(t, now.Nodes["/d0/8"].Changed)

	// A look writes back what it reads: keeping has synced the store, which is on the same disk here.
	page[5] = 'Z'
	f.age()
	now, err = scan(t.Context(), Root{Path: f.root}, nil, reading{})
	require.NoError(t, err)
	page[5] = 'W'
	again, err := scan(t.Context(), Root{Path: f.root}, now, reading{})
	require.NoError(t, err)
	require.Equal(t, []string{"/d2/2"}, now.content().Differs(again.content()))
}

func TestNamesThatAreNotTextComeBack(t *testing.T) {
	f := newFiles(t)
	f.write("d0/\xff\xfe", []byte("odd"))
	require.NoError(t, os.Symlink("\xfd", f.at("d0/\xfc")))
	f.keep("odd")
	require.NoError(t, os.RemoveAll(f.at("d0")))
	f.restore("odd")
	content, err := os.ReadFile(f.at("d0/\xff\xfe"))
	require.NoError(t, err)
	require.Equal(t, "odd", string(content))
	to, err := os.Readlink(f.at("d0/\xfc"))
	require.NoError(t, err)
	require.Equal(t, "\xfd", to)
}

func TestSweepRemovesWhatNoTreeNeeds(t *testing.T) {
	f := newFiles(t)
	f.keep("first")
	kept := len(f.chunks())
	f.write("large", f.noise(2, 3*chunkSize))
	f.keep("second")
	require.NoError(t, f.store.Copy("second", "third"))
	require.NoError(t, f.store.Sweep())
	require.Len(t, f.chunks(), kept+4)
	require.NoError(t, f.store.Drop("second"))
	require.NoError(t, f.store.Sweep())
	f.restore("first")
	f.restore("third")
	require.NoError(t, f.store.Drop("third", "never-there"))
	require.NoError(t, f.store.Sweep())
	require.Len(t, f.chunks(), kept)
	f.restore("first")
	names, err := f.store.Names()
	require.NoError(t, err)
	require.Equal(t, []string{"first"}, names)
	trash, err := readNames(f.store.in(trashDir))
	require.NoError(t, err)
	require.Empty(t, trash)

	require.NoError(t, os.WriteFile(f.store.in(treesDir, "broken"), []byte("x"), 0o600))
	var damaged *DamageError
	require.ErrorAs(t, f.store.Sweep(), &damaged, "what a damaged tree needs nobody knows")
}

// TestATreeThatIsMadeDuringASweepKeepsItsChunks stops a sweep after it has looked at the trees, and
// a keep before it has written its own.
func TestATreeThatIsMadeDuringASweepKeepsItsChunks(t *testing.T) {
	f := newFiles(t)
	c := f.keep("first")
	require.NoError(t, f.store.Drop("first"))
	now, err := scan(t.Context(), Root{Path: f.root}, nil, reading{put: f.store.put}) // what it needs is there still
	require.NoError(t, err)
	name, err := nameOf(c["/d1/1"])
	require.NoError(t, err)
	aside := f.store.in(trashDir, name.String())
	require.NoError(t, os.Rename(f.store.chunkPath(name), aside)) // the sweep had seen no tree
	require.NoError(t, f.store.keepTree(t.Context(), Root{Path: f.root}, Keeping{Name: "second"}, now))
	require.FileExists(t, f.store.chunkPath(name), "it is put again")

	require.NoError(t, os.Remove(aside))
	require.NoError(t, os.Rename(f.store.chunkPath(name), aside)) // the tree was written between its two looks
	require.NoError(t, f.store.Check(t.Context(), c, nil), "what is aside is still found")
	require.NoError(t, f.store.emptyTrash())
	require.FileExists(t, f.store.chunkPath(name))
	require.NoError(t, f.store.Check(t.Context(), c, nil))
}

// TestAFolderThatIsWrittenToAllTheTimeIsBusy changes a file in each look, after it was read.
func TestAFolderThatIsWrittenToAllTheTimeIsBusy(t *testing.T) {
	f := newFiles(t)
	looks, calm := 0, 2
	write := func(at string) bool {
		if at == "/large" && looks < calm {
			looks++
			f.write("d0/0", []byte(strconv.Itoa(looks)))
		}
		return false
	}
	keeping := Keeping{Name: "busy", Look: Look{Leave: write}}
	c, err := f.store.Keep(t.Context(), Root{Path: f.root}, keeping)
	require.NoError(t, err, "the last two looks agree")
	require.Equal(t, calm, looks)
	now, err := Scan(t.Context(), Root{Path: f.root}, Look{})
	require.NoError(t, err)
	require.Empty(t, c.Differs(now))
	require.NoError(t, f.store.Drop("busy"))

	calm = 100
	_, err = f.store.Keep(t.Context(), Root{Path: f.root}, keeping)
	var busy *BusyError
	require.ErrorAs(t, err, &busy)
	names, err := f.store.Names()
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestWhatUnwindKeepsForFilesIsLeftAlone(t *testing.T) {
	f := newFiles(t)
	f.write(".unwind/journal/x", []byte("old"))
	f.keep("before")
	f.write(".unwind/journal/x", []byte("new"))
	f.write("d0/.unwind/journal/y", []byte("new"))
	f.write("d1/1", []byte("changed"))
	f.restore("before")
	content, err := os.ReadFile(f.at(".unwind/journal/x"))
	require.NoError(t, err)
	require.Equal(t, "new", string(content))
	require.FileExists(t, f.at("d0/.unwind/journal/y"))

	f.write("more/sub/.unwind/journal/z", []byte("new"))
	f.write("more/own", []byte("goes"))
	f.restore("before")
	require.FileExists(t, f.at("more/sub/.unwind/journal/z"))
	require.NoFileExists(t, f.at("more/own"), "the folders stay")

	require.NoError(t, os.Rename(f.at("more"), f.at("d2/2-aside")))
	require.NoError(t, os.Remove(f.at("d2/2")))
	require.NoError(t, os.Rename(f.at("d2/2-aside"), f.at("d2/2")))
	kept, err := f.store.Load("before")
	require.NoError(t, err)
	r := Restore{Root: Root{Path: f.root}, From: f.store, Want: kept.Content, Stage: f.root + "-stage",
		Over: func() error { return nil }}
	_, err = r.Run(t.Context())
	require.ErrorContains(t, err, "/d2/2 would have to go, and /d2/2/sub/.unwind in it is left alone")
}

func TestWhatCannotBePutBackIsNotKept(t *testing.T) {
	testrun.NeedRoot(t, "mounting")
	f := newFiles(t)
	require.NoError(t, unix.Mount(f.at("d0"), f.at("d1"), "", unix.MS_BIND, ""))
	defer unix.Unmount(f.at("d1"), 0)
	_, err := f.store.Keep(t.Context(), Root{Path: f.root}, Keeping{Name: "mounted"})
	require.ErrorContains(t, err, "/d1: something else is mounted there")
	require.NoError(t, unix.Unmount(f.at("d1"), 0))

	const immutable = 0x10
	file, err := os.Open(f.at("d1/1"))
	require.NoError(t, err)
	defer file.Close()
	flags, err := unix.IoctlGetUint32(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, int(flags|immutable)))
	defer func() {
		require.NoError(t, unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, int(flags)))
	}()
	_, err = f.store.Keep(t.Context(), Root{Path: f.root}, Keeping{Name: "immutable"})
	require.ErrorContains(t, err, "/d1/1: it has attributes of the filesystem that cannot be put back (0x10")
}

func BenchmarkKeep(b *testing.B) {
	dir := b.TempDir()
	root := filepath.Join(dir, "root")
	for i := range 20_000 {
		at := filepath.Join(root, strconv.Itoa(i%200), strconv.Itoa(i))
		require.NoError(b, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(b, os.WriteFile(at, []byte("content of file "+strconv.Itoa(i)), 0o644))
	}
	store, err := Open(filepath.Join(dir, "store"))
	require.NoError(b, err)
	for b.Loop() {
		_, err := store.Keep(b.Context(), Root{Path: root}, Keeping{Name: "it"})
		require.NoError(b, err)
	}
}
