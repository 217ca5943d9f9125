package qcow2

import (
	"bytes"
	"fmt"
)

// cluster is the entry of a cluster in a map. parts say which of its parts are in the file, where
// the image has such (extended_l2).
type cluster struct{ entry, parts uint64 }

func (c cluster) isCompressed() bool { return c.entry&bitCompressed != 0 }

// offset is where its bytes are in the file; 0: they are not in it.
func (c cluster) offset() int64 { return int64(c.entry & offsetMask) }

// isStored says that its bytes are in the file.
func (c cluster) isStored() bool { return c.isCompressed() || c.offset() != 0 }

// check is a DamageError where an entry leads out of the file.
func (i *Image) check(c cluster) error {
	at, _ := i.stored(c)
	// What is at the end of a file may have been given out and not yet written.
	if at > i.end || !c.isCompressed() && at%i.ClusterSize != 0 {
		return &DamageError{fmt.Sprintf("it leads to byte %d, and the file ends at %d", at, i.end)}
	}
	return nil
}

// stored is where the bytes of a cluster are in the file, and how many, as far as the file has them.
func (i *Image) stored(c cluster) (at, length int64) {
	if !c.isCompressed() {
		at, length = c.offset(), i.ClusterSize
	} else {
		bits := 62 - (i.header.ClusterBits - 8)
		at = int64(c.entry & (1<<bits - 1))                        //nolint:gosec // below 2^62
		sectors := int64(c.entry&^uint64(bitCompressed)>>bits) + 1 //nolint:gosec // a few bits
		length = sectors*sector - at%sector
	}
	return at, max(0, min(length, i.end-at))
}

const sector = 512

// content reads the bytes that the file has of a cluster, compressed ones as they are.
func (i *Image) content(c cluster) ([]byte, error) {
	at, length := i.stored(c)
	b, err := i.at(at, length)
	if err == nil && !c.isCompressed() && length < i.ClusterSize {
		b = append(b, make([]byte, i.ClusterSize-length)...)
	}
	return b, err
}

// holds says what a cluster reads as, where that is plain to see: zeros, or the bytes in the file.
func (i *Image) holds(c cluster) (b []byte, plain bool, err error) {
	switch {
	case i.entry > 8 || c.isCompressed():
		return nil, false, nil
	case c.entry&bitZero != 0 || !c.isStored() && i.Backing == "":
		return make([]byte, i.ClusterSize), true, nil
	case !c.isStored():
		return nil, false, nil // as the image below has it
	}
	b, err = i.content(c)
	return b, true, err
}

// same says that a cluster reads the same in two maps.
func (i *Image) same(a, b cluster) (bool, error) {
	if a == b {
		return true, nil
	}
	was, plain, err := i.holds(a)
	if !plain || err != nil {
		return false, err
	}
	is, plain, err := i.holds(b)
	return plain && bytes.Equal(was, is), err
}
