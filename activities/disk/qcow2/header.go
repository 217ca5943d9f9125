package qcow2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Image is an open image.
type Image struct {
	file *os.File
	end  int64 // of the file

	// Size is how many bytes the disk has, ClusterSize how many a cluster.
	Size, ClusterSize int64
	// Backing is the name of the image below it, as it is written there, and BackingFormat its format;
	// empty: none.
	Backing, BackingFormat string
	// Snapshots are the internal ones, the oldest first.
	Snapshots []Snapshot

	header   header
	entry    int64 // how many bytes an entry of an L2 table has
	noticed  []string
	snapshot raw
}

// raw is the part of the image that changes with each snapshot.
type raw struct{ header, table []byte }

// header is the fixed part of version 2, and then that of version 3.
type header struct {
	Magic, Version   uint32
	BackingOffset    uint64
	BackingSize      uint32
	ClusterBits      uint32
	Size             uint64
	Crypt            uint32
	L1Size           uint32
	L1Offset         uint64
	RefcountOffset   uint64
	RefcountClusters uint32
	SnapshotCount    uint32
	SnapshotOffset   uint64
	Incompatible     uint64
	Compatible       uint64
	Autoclear        uint64
	RefcountOrder    uint32
	HeaderLength     uint32
}

const (
	magic        = 0x514649fb
	lengthV2     = 72
	lengthV3     = 104
	minClusters  = 9
	maxClusters  = 21
	maxL1        = 32 << 20 // bytes, as QEMU has it
	maxBacking   = 1023
	maxSnapshots = 65536
)

// Bits of the features that a reader must understand.
const (
	bitDirty       = 1 << 0
	bitCorrupt     = 1 << 1
	bitDataFile    = 1 << 2
	bitCompression = 1 << 3
	bitExtendedL2  = 1 << 4
	bitsKnown      = bitDirty | bitCorrupt | bitDataFile | bitCompression | bitExtendedL2
)

// The extensions of the header that matter here.
const (
	extensionEnd     = 0
	extensionFormat  = 0xe2792aca
	extensionBitmaps = 0x23852875
)

// usualRefcount is the order of a refcount of 16 bits: with less, a cluster cannot be in many
// snapshots.
const usualRefcount = 4

// ErrFormat says that a file is no qcow2 image.
var ErrFormat = errors.New("it is not a qcow2 image")

// Read reads the header of an image and the list of its snapshots. The file stays the caller's.
func Read(file *os.File) (*Image, error) {
	const tries = 50
	var last raw
	for range tries { // QEMU writes the list, and then the header that leads to it
		i, err := read(file)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(last.header, i.snapshot.header) && bytes.Equal(last.table, i.snapshot.table) {
			return i, nil
		}
		last = i.snapshot
	}
	return nil, errors.New("the list of its snapshots changes all the time")
}

func read(file *os.File) (*Image, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	i := &Image{file: file, end: info.Size()}
	first := make([]byte, min(i.end, 1<<16))
	if _, err := file.ReadAt(first, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := i.readHeader(first); err != nil {
		return nil, err
	}
	i.snapshot.header = first[:min(len(first), lengthV3)]
	return i, i.readSnapshots()
}

func (i *Image) readHeader(first []byte) error {
	h := &i.header
	if len(first) < lengthV2 || binary.BigEndian.Uint32(first) != magic {
		return ErrFormat
	}
	padded := make([]byte, lengthV3)
	copy(padded, first[:min(len(first), lengthV3)])
	if binary.BigEndian.Uint32(first[4:]) == 2 {
		clear(padded[lengthV2:])
	}
	if _, err := binary.Decode(padded, binary.BigEndian, h); err != nil {
		return err
	}
	switch {
	case h.Version == 2:
		h.HeaderLength, h.RefcountOrder = lengthV2, usualRefcount
	case h.Version != 3:
		return fmt.Errorf("%w of version 2 or 3, but of version %d", ErrFormat, h.Version)
	}
	if h.ClusterBits < minClusters || h.ClusterBits > maxClusters || h.HeaderLength < lengthV2 ||
		h.Size > 1<<62 || int64(h.L1Size)*8 > maxL1 || h.SnapshotCount > maxSnapshots || h.BackingSize > maxBacking {
		return fmt.Errorf("%w: its header is damaged", ErrFormat)
	}
	i.Size, i.ClusterSize, i.entry = int64(h.Size), 1<<h.ClusterBits, 8
	if h.Incompatible&bitExtendedL2 != 0 {
		i.entry = 16
	}
	i.notice(h.Crypt != 0, "it is encrypted")
	i.notice(h.Incompatible&bitDataFile != 0, "its data is in another file")
	i.notice(h.Incompatible&bitCorrupt != 0, "QEMU has marked it as corrupt")
	i.notice(h.Incompatible&^bitsKnown != 0, "it has features that are not known here")
	i.notice(h.RefcountOrder < usualRefcount, "it has room for few snapshots (its refcount_bits are below 16)")
	if h.BackingOffset != 0 {
		name, err := i.at(int64(h.BackingOffset), int64(h.BackingSize)) //nolint:gosec // checked by at
		if err != nil {
			return err
		}
		i.Backing = string(name)
	}
	return i.readExtensions(first[min(len(first), int(h.HeaderLength)):])
}

func (i *Image) notice(is bool, what string) {
	if is {
		i.noticed = append(i.noticed, what)
	}
}

func (i *Image) readExtensions(in []byte) error {
	for len(in) >= 8 {
		kind, length := binary.BigEndian.Uint32(in), int64(binary.BigEndian.Uint32(in[4:]))
		in = in[8:]
		if kind == extensionEnd {
			break
		}
		if length > int64(len(in)) {
			return fmt.Errorf("%w: its header is damaged", ErrFormat)
		}
		switch kind {
		case extensionFormat:
			i.BackingFormat = string(in[:length])
		case extensionBitmaps:
			i.notice(true, "it has dirty bitmaps, which a restore would make wrong")
		}
		in = in[min(int64(len(in)), (length+7)&^7):]
	}
	return nil
}

// Odd is what is not understood of the image, or stands in the way of snapshots; empty: nothing.
func (i *Image) Odd() []string { return i.noticed }

// IsDirty says that the counts of references in it are not true: QEMU has it open, or was killed.
func (i *Image) IsDirty() bool { return i.header.Incompatible&bitDirty != 0 }

// at reads bytes that must be in the file.
func (i *Image) at(offset, length int64) ([]byte, error) {
	if offset < 0 || length < 0 || length > i.end || offset > i.end-length {
		return nil, &DamageError{fmt.Sprintf("it leads to the bytes from %d on, and the file ends at %d", offset, i.end)}
	}
	b := make([]byte, length)
	_, err := i.file.ReadAt(b, offset)
	return b, err
}

// DamageError says that an image contradicts itself.
type DamageError struct{ Why string }

func (e *DamageError) Error() string { return "the image is damaged: " + e.Why }
