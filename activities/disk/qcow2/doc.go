// Package qcow2 reads the maps of a qcow2 image: where the clusters of the disk are in the file, as
// they are now and as each internal snapshot has them. It writes nothing.
//
// Clusters that a snapshot has are never written in place: QEMU writes a changed one elsewhere, and
// enters that in a copy of the map. So two equal maps of one image say that no byte differs, which
// takes no reading of the disk.
//
// The map of a snapshot can be read at any time. That of the disk as it is now can be read while no
// QEMU has the image open for writing: a running one writes it late.
//
// The format is described in QEMU's docs/interop/qcow2.txt.
package qcow2
