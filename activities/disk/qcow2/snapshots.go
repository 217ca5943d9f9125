package qcow2

import (
	"encoding/binary"
	"slices"
)

// Snapshot is an internal snapshot: a map of the disk, under a name.
type Snapshot struct {
	Name string
	// Size is how many bytes the disk had.
	Size int64
	// Memory is how many bytes it has of the memory and the devices of the machine; 0: none.
	Memory int64

	made     [8]byte // when it was taken, to the nanosecond
	l1Offset int64
	l1Size   int64
}

// The fixed part of an entry in the list of snapshots, and the largest that an entry can be.
const (
	snapshotLength = 40
	maxSnapshot    = snapshotLength + 1024 + 2*65535 + 7
)

// readSnapshots reads the list, of which nothing says how long it is.
func (i *Image) readSnapshots() error {
	at := int64(i.header.SnapshotOffset) //nolint:gosec // checked by at
	for range i.header.SnapshotCount {
		fixed, err := i.at(at, snapshotLength)
		if err != nil {
			return err
		}
		id, name := int64(binary.BigEndian.Uint16(fixed[12:])), int64(binary.BigEndian.Uint16(fixed[14:]))
		extra := int64(binary.BigEndian.Uint32(fixed[36:]))
		if snapshotLength+extra+id+name > maxSnapshot {
			return &DamageError{"its list of snapshots is none"}
		}
		rest, err := i.at(at+snapshotLength, extra+id+name)
		if err != nil {
			return err
		}
		s := Snapshot{Name: string(rest[extra+id:]), Size: i.Size,
			l1Offset: int64(binary.BigEndian.Uint64(fixed)), l1Size: int64(binary.BigEndian.Uint32(fixed[8:]))} //nolint:gosec // checked by at
		copy(s.made[:], fixed[16:])
		s.Memory = int64(binary.BigEndian.Uint32(fixed[32:]))
		if extra >= 8 {
			s.Memory = int64(binary.BigEndian.Uint64(rest)) //nolint:gosec // told only
		}
		if extra >= 16 {
			s.Size = int64(binary.BigEndian.Uint64(rest[8:])) //nolint:gosec // compared only
		}
		i.snapshot.table = append(append(i.snapshot.table, fixed...), rest...)
		i.Snapshots = append(i.Snapshots, s)
		at += (snapshotLength + extra + id + name + 7) &^ 7
	}
	return nil
}

// Find finds the snapshot with a name.
func (i *Image) Find(name string) (Snapshot, bool) {
	n := slices.IndexFunc(i.Snapshots, func(s Snapshot) bool { return s.Name == name })
	if n < 0 {
		return Snapshot{}, false
	}
	return i.Snapshots[n], true
}
