package snapshot

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"io"
)

// tree is a document of a store. It begins with the digest of all that follows, and goes on with
// the number of chunks that it needs and their names, so that a Sweep reads no more.
type tree struct {
	// Root is the folder that it is of.
	Root  string
	Label string
	// Needs are the chunks of all files, sorted.
	Needs []sum
	State state
}

var errDamaged = errors.New("it is not as it was written")

// encode uses gob: JSON keeps no name that is not UTF-8.
func (t tree) encode() ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, sha256.Size))
	b.Write(binary.BigEndian.AppendUint64(nil, uint64(len(t.Needs))))
	for _, name := range t.Needs {
		b.Write(name[:])
	}
	zip, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	t.Needs = nil
	if err := errors.Join(gob.NewEncoder(zip).Encode(t), zip.Close()); err != nil {
		return nil, err
	}
	raw := b.Bytes()
	digest := sha256.Sum256(raw[sha256.Size:])
	copy(raw, digest[:])
	return raw, nil
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
	zip, err := gzip.NewReader(bytes.NewReader(rest))
	if err != nil {
		return t, err
	}
	err = gob.NewDecoder(zip).Decode(&t)
	t.Needs = needs
	return t, err
}

func split(raw []byte) (needs []sum, rest []byte, err error) {
	const head = sha256.Size + 8
	if len(raw) < head || sum(raw) != sha256.Sum256(raw[sha256.Size:]) {
		return nil, nil, errDamaged
	}
	count := binary.BigEndian.Uint64(raw[sha256.Size:head])
	rest = raw[head:]
	if count > uint64(len(rest))/sha256.Size {
		return nil, nil, io.ErrUnexpectedEOF
	}
	needs = make([]sum, count)
	for i := range needs {
		needs[i], rest = sum(rest), rest[sha256.Size:]
	}
	return needs, rest, nil
}
