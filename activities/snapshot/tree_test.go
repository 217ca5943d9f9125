package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// aTree has what a tree can have, names that are no text among it.
func aTree() tree {
	one, two := sum(sha256.Sum256([]byte("one"))), sum(sha256.Sum256([]byte("two")))
	needs := []sum{one, two}
	if compareSums(one, two) > 0 {
		needs = []sum{two, one}
	}
	nodes := map[string]node{}
	for _, e := range []Entry{
		{Path: "/", Kind: Folder, Mode: 0o755, MTime: -1},
		{Path: "/a\xff", Kind: File, Mode: 0o4755, UID: 1000, GID: 100, MTime: 1 << 60, Size: 3,
			Digest: hex.EncodeToString(one[:]), Attributes: `"user.x"=00` + "\n"},
		{Path: "/a\xff\n", Kind: File, Size: 1 << 40, Digest: hex.EncodeToString(two[:]), Same: "/a\xff"},
		{Path: "/link", Kind: Link, Target: "../else\xfe"},
		{Path: "/null", Kind: Char, Device: 1<<40 | 3},
		{Path: "/vendor", Kind: Left},
	} {
		nodes[e.Path] = node{Entry: e, Inode: uint64(len(nodes)) << 33, Changed: -int64(len(nodes))}
	}
	return tree{Root: "/srv/\xff", Label: "git", About: "{}", Needs: needs, State: state{Device: 1 << 63, Nodes: nodes}}
}

func TestATreeComesBackAsItWasWritten(t *testing.T) {
	raw, err := aTree().encode()
	require.NoError(t, err)
	again, err := decodeTree(raw)
	require.NoError(t, err)
	require.Equal(t, aTree(), again)
	needs, err := decodeNeeds(raw)
	require.NoError(t, err)
	require.Equal(t, aTree().Needs, needs)
}

// FuzzTree changes a tree, and gives what results the digest that belongs to it: it is damaged, or
// what is read can be written.
func FuzzTree(f *testing.F) {
	raw, err := aTree().encode()
	require.NoError(f, err)
	for i := range raw[sha256.Size:] {
		f.Add(i, byte(0xff), 0)
		f.Add(i, byte(1), i%7)
	}
	f.Fuzz(func(t *testing.T, at int, by byte, less int) {
		body := append([]byte{}, raw[sha256.Size:]...)
		body = body[:len(body)-max(0, min(less, len(body)))]
		if at >= 0 && at < len(body) {
			body[at] ^= by
		}
		digest := sha256.Sum256(body)
		read, err := decodeTree(append(digest[:], body...))
		if err != nil {
			require.ErrorIs(t, err, errDamaged)
			return
		}
		_, err = read.encode()
		require.NoError(t, err)
	})
}
