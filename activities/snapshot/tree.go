package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
)

// tree is a document of a store. It begins with the digest of all that follows, and goes on with
// the number of chunks that it needs and their names, so that a Sweep reads no more.
type tree struct {
	// Root is the folder that it is of.
	Root string
	// Label and About are what its keeper has said of it.
	Label, About string
	// Needs are the chunks of all files, sorted.
	Needs []sum
	State state
}

var errDamaged = errors.New("it is not as it was written")

// encode writes what follows the chunks in the order of paths. A path is told by how much of it is
// that of the one before, and a file's content by which of the chunks it is: there may be a million.
func (t tree) encode() ([]byte, error) {
	b := make([]byte, sha256.Size, sha256.Size+len(t.Needs)*sha256.Size+len(t.State.Nodes)*64)
	b = binary.BigEndian.AppendUint64(b, uint64(len(t.Needs)))
	for _, name := range t.Needs {
		b = append(b, name[:]...)
	}
	b = appendTexts(b, t.Root, t.Label, t.About)
	b = binary.AppendUvarint(b, t.State.Device)
	b = binary.AppendUvarint(b, uint64(len(t.State.Nodes)))
	last := ""
	for _, at := range sorted(t.State.Nodes) {
		n := t.State.Nodes[at]
		shared := sharedPrefix(last, at)
		b = binary.AppendUvarint(b, uint64(shared)) //nolint:gosec // not negative
		b = appendTexts(b, at[shared:])
		b = n.appendFacts(b)
		if n.Kind == File {
			content, err := nameOf(n.Entry)
			if err != nil {
				return nil, err
			}
			i, _ := slices.BinarySearchFunc(t.Needs, content, compareSums)
			b = binary.AppendUvarint(b, uint64(i)) //nolint:gosec // not negative
		}
		b = binary.AppendUvarint(b, n.Inode)
		b = binary.AppendVarint(b, n.Changed)
		last = at
	}
	digest := sha256.Sum256(b[sha256.Size:])
	copy(b, digest[:])
	return b, nil
}

func compareSums(a, b sum) int { return bytes.Compare(a[:], b[:]) }

func sharedPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// appendTexts keeps names that are not UTF-8 as well.
func appendTexts(b []byte, texts ...string) []byte {
	for _, each := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(each))), each...)
	}
	return b
}

// appendFacts writes all of an entry but its path and digest.
func (e Entry) appendFacts(b []byte) []byte {
	b = append(b, e.Kind)
	for _, each := range []uint64{uint64(e.Mode), uint64(e.UID), uint64(e.GID), e.Device} {
		b = binary.AppendUvarint(b, each)
	}
	b = binary.AppendVarint(b, e.MTime)
	b = binary.AppendVarint(b, e.Size)
	return appendTexts(b, e.Attributes, e.Target, e.Same)
}

// decodeNeeds returns the chunks that a tree needs.
func decodeNeeds(raw []byte) ([]sum, error) {
	needs, _, err := split(raw)
	return needs, err
}

func decodeTree(raw []byte) (t tree, err error) {
	needs, rest, err := split(raw)
	if err != nil {
		return t, err
	}
	r := treeReader{left: string(rest)}
	t = tree{Root: r.text(), Label: r.text(), About: r.text(), Needs: needs, State: state{Device: r.number()}}
	count := r.number()
	t.State.Nodes = make(map[string]node, min(count, uint64(len(rest))))
	last := ""
	for range count {
		n := r.node(last, needs)
		if r.damaged {
			return tree{}, errDamaged
		}
		t.State.Nodes[n.Path], last = n, n.Path
	}
	if r.left != "" {
		return tree{}, errDamaged
	}
	return t, nil
}

// treeReader reads what follows the chunks. Once something is not as it is written, all is empty.
type treeReader struct {
	left    string
	damaged bool
}

func (r *treeReader) fail() { *r = treeReader{damaged: true} }

func (r *treeReader) take(n uint64) (text string) {
	if n > uint64(len(r.left)) {
		r.fail()
		return ""
	}
	text, r.left = r.left[:n], r.left[n:]
	return text
}

func (r *treeReader) number() uint64 {
	n, size := binary.Uvarint([]byte(r.left[:min(binary.MaxVarintLen64, len(r.left))]))
	if size <= 0 {
		r.fail()
		return 0
	}
	r.left = r.left[size:]
	return n
}

func (r *treeReader) signed() int64 {
	n := r.number()
	return int64(n>>1) ^ -int64(n&1)
}

func (r *treeReader) text() string { return r.take(r.number()) }

// node reads one that follows the one at last.
func (r *treeReader) node(last string, needs []sum) (n node) {
	shared := r.number()
	if shared > uint64(len(last)) {
		r.fail()
		return n
	}
	n.Path = last[:shared] + r.text()
	if kind := r.take(1); kind != "" {
		n.Kind = kind[0]
	}
	n.Mode, n.UID, n.GID = uint32(r.number()), uint32(r.number()), uint32(r.number()) //nolint:gosec // as written
	n.Device, n.MTime, n.Size = r.number(), r.signed(), r.signed()
	n.Attributes, n.Target, n.Same = r.text(), r.text(), r.text()
	if n.Kind == File {
		content := r.number()
		if content >= uint64(len(needs)) {
			r.fail()
			return n
		}
		n.Digest = needs[content].String()
	}
	n.Inode, n.Changed = r.number(), r.signed()
	return n
}

func split(raw []byte) (needs []sum, rest []byte, err error) {
	const head = sha256.Size + 8
	if len(raw) < head || sum(raw) != sha256.Sum256(raw[sha256.Size:]) {
		return nil, nil, errDamaged
	}
	count := binary.BigEndian.Uint64(raw[sha256.Size:head])
	rest = raw[head:]
	if count > uint64(len(rest))/sha256.Size {
		return nil, nil, errDamaged
	}
	needs = make([]sum, count)
	for i := range needs {
		needs[i], rest = sum(rest), rest[sha256.Size:]
	}
	return needs, rest, nil
}
