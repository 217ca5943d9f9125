package qcow2

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
)

// View is the disk at one moment: now, or as a snapshot has it.
type View struct {
	image *Image
	// Size is how many bytes the disk has.
	Size int64

	made [8]byte  // when the snapshot was taken
	l1   []uint64 // where the L2 tables are; 0: there is none
}

// Masks of the entries of tables. The bit that says that only one map has a cluster is left out: it
// comes and goes with snapshots.
const (
	offsetMask    = 0x00fffffffffffe00
	bitCopied     = 1 << 63
	bitCompressed = 1 << 62
	bitZero       = 1 << 0
)

// Now is the disk as it is now.
func (i *Image) Now() (View, error) {
	return i.view(i.Size, int64(i.header.L1Offset), int64(i.header.L1Size)) //nolint:gosec // checked by at
}

// View is the disk as a snapshot has it.
func (i *Image) View(s Snapshot) (View, error) {
	v, err := i.view(s.Size, s.l1Offset, s.l1Size)
	v.made = s.made
	return v, err
}

func (i *Image) view(size, offset, entries int64) (View, error) {
	v := View{image: i, Size: size}
	if entries*8 > maxL1 || size < 0 {
		return v, &DamageError{"a map is too large"}
	}
	table, err := i.at(offset, entries*8)
	if err != nil {
		return v, err
	}
	v.l1 = make([]uint64, i.tablesFor(size))
	for n := range v.l1 {
		if n < int(entries) {
			v.l1[n] = binary.BigEndian.Uint64(table[n*8:]) & offsetMask
		}
	}
	return v, nil
}

// perTable is how many clusters an L2 table has.
func (i *Image) perTable() int64 { return i.ClusterSize / i.entry }

func (i *Image) tablesFor(size int64) int64 {
	covered := i.perTable() * i.ClusterSize
	n := size / covered
	if size%covered != 0 {
		n++
	}
	return min(n, maxL1/8)
}

// Equal says that no byte of the disk has changed between two views of one image.
func (v View) Equal(other View) bool { return v.Size == other.Size && slices.Equal(v.l1, other.l1) }

// IsMixOf says that each part of the disk is as one of two views has it: what is left where putting
// back a snapshot was cut short.
func (v View) IsMixOf(a, b View) bool {
	for n, at := range v.l1 {
		if at != a.table(n) && at != b.table(n) {
			return false
		}
	}
	return v.Size == a.Size || v.Size == b.Size
}

func (v View) table(n int) uint64 {
	if n < len(v.l1) {
		return v.l1[n]
	}
	return 0
}

// entries reads the entries of an L2 table, and nothing where there is none.
func (v View) entries(n int) ([]cluster, error) {
	at := v.table(n)
	all := make([]cluster, v.image.perTable())
	if at == 0 {
		return all, nil
	}
	table, err := v.image.at(int64(at), v.image.ClusterSize) //nolint:gosec // masked
	if err != nil {
		return nil, err
	}
	for c := range all {
		all[c].entry = binary.BigEndian.Uint64(table[int64(c)*v.image.entry:]) &^ bitCopied
		if v.image.entry > 8 {
			all[c].parts = binary.BigEndian.Uint64(table[int64(c)*v.image.entry+8:])
		}
	}
	return all, nil
}

// Map is what a view has in the file.
type Map struct {
	// Digest covers where each cluster is, and when the snapshot was taken: no other has the same.
	Digest string
	// Bytes are those of the clusters that are in the file.
	Bytes int64
}

// ReadMap reads the whole map, and checks that it leads nowhere but into the file.
func (v View) ReadMap() (m Map, err error) {
	h := sha256.New()
	fmt.Fprintln(h, v.Size, v.made)
	for n := range v.l1 {
		if v.l1[n] == 0 {
			continue
		}
		fmt.Fprintln(h, n, v.l1[n])
		all, err := v.entries(n)
		if err != nil {
			return m, err
		}
		for _, c := range all {
			if err := v.image.check(c); err != nil {
				return m, err
			}
			if c.isStored() {
				m.Bytes += v.image.ClusterSize
			}
			h.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, c.entry), c.parts))
		}
	}
	m.Digest = hex.EncodeToString(h.Sum(nil))
	return m, nil
}

// MapBytes is how many bytes the map of the disk as it is now takes.
func (i *Image) MapBytes() (int64, error) {
	v, err := i.Now()
	n := int64(len(v.l1)) * 8
	for _, at := range v.l1 {
		if at != 0 {
			n += i.ClusterSize
		}
	}
	return n, err
}
