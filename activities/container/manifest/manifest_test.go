package manifest

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

func manifestOf(t *testing.T, ignore []string, headers ...tar.Header) Manifest {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := h.Uname // the content of a file, for brevity
		h.Uname = ""
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		require.NoError(t, w.WriteHeader(&h))
		_, err := w.Write([]byte(content)[:h.Size])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	m, err := Read(&b, ignore)
	require.NoError(t, err)
	return m
}

func TestManifestDiffSaysWhatDiffers(t *testing.T) {
	then, later := time.Unix(100, 0), time.Unix(200, 0)
	was := manifestOf(t, []string{"/tmp", "/srv/cache"},
		tar.Header{Typeflag: tar.TypeDir, Name: "/", Mode: 0o755, ModTime: then},
		tar.Header{Typeflag: tar.TypeDir, Name: "srv/", Mode: 0o755, ModTime: then},
		tar.Header{Typeflag: tar.TypeReg, Name: "srv/a", Mode: 0o644, ModTime: then, Uname: "one"},
		tar.Header{Typeflag: tar.TypeReg, Name: "srv/b", Mode: 0o644, ModTime: then},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "srv/l", Linkname: "a", Mode: 0o777, ModTime: then},
		tar.Header{Typeflag: tar.TypeReg, Name: "tmp/x", ModTime: then, Uname: "ignored"},
		tar.Header{Typeflag: tar.TypeReg, Name: "etc/hosts", ModTime: then, Uname: "the engine's"},
		tar.Header{Typeflag: tar.TypeReg, Name: "srv/gone", ModTime: then},
	)
	is := manifestOf(t, []string{"/tmp", "/srv/cache"},
		tar.Header{Typeflag: tar.TypeDir, Name: "/", Mode: 0o755, ModTime: later},
		tar.Header{Typeflag: tar.TypeDir, Name: "srv/", Mode: 0o755, ModTime: later},
		tar.Header{Typeflag: tar.TypeReg, Name: "srv/a", Mode: 0o600, ModTime: then, Uname: "three"},
		tar.Header{Typeflag: tar.TypeReg, Name: "srv/b", Mode: 0o644, ModTime: later, Uid: 7,
			PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01"}},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "srv/l", Linkname: "b", Mode: 0o777, ModTime: then},
		tar.Header{Typeflag: tar.TypeReg, Name: "srv/cache/x", ModTime: then},
		tar.Header{Typeflag: tar.TypeReg, Name: "srv/new", ModTime: then},
	)
	assert.Equal(t, []string{
		"~ /srv/a (content, 3 -> 5 bytes, mode 0644 -> 0600)",
		"~ /srv/b (owner 0:0 -> 7:0, capabilities, time)",
		"- /srv/gone",
		"~ /srv/l (link a -> b)",
		"+ /srv/new",
	}, was.Diff(is))
	assert.Empty(t, was.Diff(was))
	assert.NotEqual(t, was.Digest(), is.Digest())
}

func TestDifferencesAreAcceptedWhereTheyBeginFromTheSameAndAreStillThere(t *testing.T) {
	node := func(owner string) Node { return Node{Kind: 'f', Owner: owner} }
	was := Manifest{"/kept": node("a"), "/written": node("a"), "/gone": node("a")}
	is := Manifest{"/kept": node("a"), "/written": node("b"), "/new": node("b")}
	all := was.Differences(is)
	assert.Len(t, all, 3)
	assert.Equal(t, is, was.Accept(all, is))
	assert.Equal(t, was, was.Accept(all, was))
	assert.Equal(t, was, was.Accept(nil, is))

	since := Manifest{"/kept": node("c"), "/written": node("c"), "/gone": node("a"), "/new": node("b")}
	assert.Equal(t, Manifest{"/kept": node("a"), "/written": node("a"), "/gone": node("a"), "/new": node("b")},
		was.Accept(all, since))
	other := Manifest{"/written": node("c"), "/new": node("c")}
	assert.Equal(t, other, other.Accept(all, is), "it was another before")
}

// TestManifestTakesALinkForItsFile: engines tell the same names now as links and now as files.
func TestManifestTakesALinkForItsFile(t *testing.T) {
	file := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Uname: "perl"}
	}
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to, Mode: 0o755}
	}
	ignore := []string{"/tmp"}
	was := manifestOf(t, ignore, file("bin/perlbug"), link("bin/perlthanks", "bin/perlbug"), file("tmp/one"),
		link("var/one", "tmp/one"))
	is := manifestOf(t, ignore, file("bin/perlbug"), file("bin/perlthanks"), file("tmp/one"), file("var/one"))
	assert.Empty(t, was.Diff(is))
	assert.Equal(t, was.Digest(), is.Digest())
	other := manifestOf(t, ignore, file("bin/perlbug"), link("bin/perlthanks", "bin/perlbug"),
		tar.Header{Typeflag: tar.TypeReg, Name: "tmp/one", Mode: 0o755}, link("var/one", "tmp/one"))
	assert.Equal(t, []string{"~ /var/one (content, 4 -> 0 bytes)"}, was.Diff(other))
	assert.Equal(t, []string{"/bin/perlbug", "/bin/perlthanks", "/var/one"}, was.Paths())
}

func TestManifestIsKeptWithItsDigest(t *testing.T) {
	dir := t.TempDir()
	m := manifestOf(t, nil, tar.Header{Typeflag: tar.TypeReg, Name: "a", Uname: "one"})
	digest, err := m.Save(dir, "m.gz")
	require.NoError(t, err)
	assert.Equal(t, m.Digest(), digest)
	read, err := Load(dir, "m.gz", m.Digest())
	require.NoError(t, err)
	assert.Equal(t, m, read)
	_, err = Load(dir, "m.gz", "sha256:another")
	assert.Equal(t, activities.DamagedRecord, activities.TypeOf(err))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m.gz"), []byte("garbage"), 0o600))
	_, err = Load(dir, "m.gz", m.Digest())
	assert.Equal(t, activities.DamagedRecord, activities.TypeOf(err))
}
