package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/testrun"
)

// shelf is a folder that is kept in a store.
type shelf struct {
	*testing.T
	root, stage string
	store       *Store
	want        Content
}

// newShelf makes a folder that holds each kind of thing, and keeps it.
func newShelf(t *testing.T) *shelf {
	t.Helper()
	testrun.NeedRoot(t, "devices and owners")
	testrun.NeedShell(t)
	dir := t.TempDir()
	s := &shelf{T: t, root: filepath.Join(dir, "beside", "root"), stage: filepath.Join(dir, "beside", "stage")}
	require.NoError(t, os.MkdirAll(s.root, 0o755))
	s.sh(`mkdir -p a/b c empty doomed/sub; echo one >a/b/f; echo two >c/g; echo keep >same; ln -s ../nowhere a/link; ln a/b/f c/hard
		echo x >doomed/sub/x; mkfifo -m 600 pipe; mknod -m 640 dev b 7 9; truncate -s 8M sparse; echo end >>sparse; echo r >turns
		chown 12:34 a c/g; chmod 2750 a; chmod 4711 same; touch -h -d @1000000000.987654321 a/link; touch -d @1234567890.123456789 c/g same a .`)
	s.set("c/g", "user.note", "kept")
	s.set("a", "trusted.note", "kept")
	// A default access list of a folder is one attribute; what is made in the folder would take it
	// over.
	list, err := hex.DecodeString("0200000001000700ffffffff02000500393000000400" +
		"0500ffffffff10000500ffffffff20000500ffffffff")
	require.NoError(t, err)
	require.NoError(t, unix.Setxattr(filepath.Join(s.root, "a"), "system.posix_acl_default", list, 0))
	s.store, err = Open(filepath.Join(dir, "store"))
	require.NoError(t, err)
	s.want, err = s.store.Keep(t.Context(), Root{Path: s.root}, Keeping{Name: "kept"})
	require.NoError(t, err)
	return s
}

func (s *shelf) sh(script string) {
	s.Helper()
	c := exec.Command("sh", "-ec", script)
	c.Dir = s.root
	out, err := c.CombinedOutput()
	require.NoError(s, err, "%s", out)
}

func (s *shelf) set(at, name, value string) {
	s.Helper()
	require.NoError(s, unix.Setxattr(filepath.Join(s.root, at), name, []byte(value), 0))
}

func (s *shelf) restore() Restore {
	return Restore{Root: Root{Path: s.root}, From: s.store, Want: s.want, Stage: s.stage, Over: func() error { return nil }}
}

func (s *shelf) scan() Content {
	s.Helper()
	now, err := Scan(s.Context(), Root{Path: s.root}, Look{})
	require.NoError(s, err)
	return now
}

// run restores, and makes sure that nothing is left beside the folder.
func (s *shelf) run(r Restore) error {
	s.Helper()
	differs, err := r.Run(s.Context())
	if err == nil {
		require.Empty(s, differs)
	}
	require.NoError(s, r.Clear())
	beside, readErr := os.ReadDir(filepath.Dir(s.root))
	require.NoError(s, readErr)
	require.Len(s, beside, 1)
	return err
}

// everything tells all about each path, with its inode where inodes matter.
func (s *shelf) everything(inodes bool) map[string]string {
	s.Helper()
	all, first := map[string]string{}, map[uint64]string{}
	require.NoError(s, filepath.WalkDir(s.root, func(at string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err := errors.Join(err, unix.Lstat(at, &st)); err != nil {
			return err
		}
		name, _ := filepath.Rel(s.root, at)
		line := fmt.Sprintf("%o %d:%d %d.%09d %d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec, st.Rdev)
		list := make([]byte, 4096)
		n, err := unix.Llistxattr(at, list)
		if err != nil {
			return err
		}
		for attribute := range strings.FieldsFuncSeq(string(list[:n]), func(r rune) bool { return r == 0 }) {
			value := make([]byte, 4096)
			n, err := unix.Lgetxattr(at, attribute, value)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %s=%x", attribute, value[:n])
		}
		switch {
		case d.Type().IsRegular():
			content, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x sparse %v", st.Size, sha256.Sum256(content), st.Blocks*512 < st.Size)
			if _, ok := first[st.Ino]; !ok {
				first[st.Ino] = name
			}
			line += fmt.Sprintf(" %d names, as %s", st.Nlink, first[st.Ino])
		case d.Type() == fs.ModeSymlink:
			to, err := os.Readlink(at)
			if err != nil {
				return err
			}
			line += " -> " + to
		}
		if inodes {
			line += fmt.Sprintf(" inode %d", st.Ino)
		}
		all[name] = line
		return nil
	}))
	return all
}

const everyChange = `rm -r doomed; echo more >>c/g; rm a/b/f; mkdir a/b/f; echo y >a/b/f/y; ln -sfn elsewhere a/link; echo new >new; ln new new-too
	mkdir -p x/y; echo z >x/y/z; rmdir empty; echo "not empty" >empty; chmod 700 a; chown 0:0 a; chmod 640 pipe; rm dev; rm sparse; echo short >sparse
	chmod 751 .; mv turns turned; rm c/hard; echo "on its own" >c/hard`

func TestWhatDiffersComesBackAndNothingElseIsTouched(t *testing.T) {
	s := newShelf(t)
	before, inodes := s.everything(false), s.everything(true)
	require.NoError(t, s.run(s.restore()))
	require.Equal(t, inodes, s.everything(true), "nothing differs, and nothing is touched")

	s.sh(everyChange)
	s.set("c/g", "user.note", "another")
	s.set("a", "user.more", "more")
	require.NotEqual(t, before, s.everything(false))
	require.NoError(t, s.run(s.restore()))
	require.Equal(t, before, s.everything(false))
	now := s.everything(true)
	for _, at := range []string{".", "a", "a/b", "c", "same"} {
		require.Equal(t, inodes[at], now[at], "%s is the same, or has been made so", at)
	}
}

func TestATimeThatAloneDiffersComesBack(t *testing.T) {
	s := newShelf(t)
	before := s.everything(false)
	s.sh("touch -d @1234567890.123456788 c/g a; touch -h -d @1 a/link")
	require.NoError(t, s.run(s.restore()))
	require.Equal(t, before, s.everything(false))
}

func TestADamagedCopyIsToldAndNothingIsRestored(t *testing.T) {
	chunkOf := func(s *shelf, at string) string {
		name, err := nameOf(s.want[at])
		require.NoError(s, err)
		return s.store.chunkPath(name)
	}
	for name, damage := range map[string]func(s *shelf) error{
		"content": func(s *shelf) error { return os.WriteFile(chunkOf(s, "/c/g"), []byte("peek\n"), 0o600) },
		"gone":    func(s *shelf) error { return os.Remove(chunkOf(s, "/a/b/f")) },
		"list":    func(s *shelf) error { return os.Truncate(chunkOf(s, "/sparse"), 32) },
		"all":     func(s *shelf) error { return os.RemoveAll(s.store.dir) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			s.sh(everyChange)
			require.NoError(t, damage(s))
			left := s.everything(true)
			var damaged *DamageError
			require.ErrorAs(t, s.run(s.restore()), &damaged)
			require.Equal(t, left, s.everything(true))
		})
	}
}

func TestNewerWorkIsNotOverwritten(t *testing.T) {
	s := newShelf(t)
	s.sh(everyChange)
	r := s.restore()
	r.Seen = s.scan()
	s.sh("echo mine >new; echo mine >c/mine; rm x/y/z")
	left := s.everything(true)
	var drifted *DriftError
	require.ErrorAs(t, s.run(r), &drifted)
	require.Equal(t, []string{"/c/mine", "/new", "/new-too"}, drifted.Paths, "what is as before already is nobody's")
	require.Equal(t, left, s.everything(true))
	s.sh("rm c/mine; echo new >new")
	r.Seen = s.scan()
	require.NoError(t, s.run(r))
}

// TestALateCallChangesNothing lets a call begin, and another come to its end before it goes on.
func TestALateCallChangesNothing(t *testing.T) {
	s := newShelf(t)
	s.sh(everyChange)
	late := s.restore()
	over := false
	var left map[string]string
	late.Over = func() error { // its stage stands, and it has not looked yet
		require.NoError(t, s.run(s.restore()))
		over = true
		s.sh("echo newer >c/g; rm same; mkdir more; chmod 701 a")
		left = s.everything(true)
		return nil // as a call that has just asked
	}
	_, err := late.Run(t.Context())
	require.Error(t, err)
	require.True(t, over)
	require.NoError(t, late.Clear())
	require.Equal(t, left, s.everything(true))

	late.Over = func() error { return errors.New("it is over") }
	_, err = late.Run(t.Context())
	require.ErrorContains(t, err, "it is over")
	require.NoError(t, late.Clear())
	require.Equal(t, left, s.everything(true))
}

func TestNoLinkLeadsOutOfAFolder(t *testing.T) {
	s := newShelf(t)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "g"), []byte("not yours"), 0o600))
	before := s.everything(false)
	s.sh("rm -r c; ln -s " + outside + " c")
	require.NoError(t, s.run(s.restore()))
	require.Equal(t, before, s.everything(false))
	content, err := os.ReadFile(filepath.Join(outside, "g"))
	require.NoError(t, err)
	require.Equal(t, "not yours", string(content))
}

// TestAFolderThatIsGoneIsNotMadeAnew: whoever has removed it may have meant that.
func TestAFolderThatIsGoneIsNotMadeAnew(t *testing.T) {
	s := newShelf(t)
	require.NoError(t, os.RemoveAll(filepath.Dir(s.root)))
	_, err := s.restore().Run(t.Context())
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoDirExists(t, filepath.Dir(s.root))
}
