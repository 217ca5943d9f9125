// Package stack mounts overlays over the root of a running container and unmounts them: the system
// calls of the overlay backend. It keeps no state of its own, and reads everything from the kernel.
// What is in a layer is package layer's.
//
// The container's own root is the base. At most one overlay of ours is mounted over it, the top:
// its lower layers are the base and the folders of earlier steps, its upper layer is the folder
// written to now. A process that enters the container's mount namespace (as docker exec does) gets
// the topmost mount as its root. A process that entered earlier keeps its root.
//
// [Target.Show] replaces the top in one atomic step: the new overlay is mounted beneath the old
// one, which is then unmounted. A process that enters never sees the base or half a stack.
//
// The kernel reports whether any process still uses a mount being removed: a mount that a plain
// umount removes is in use by nobody, of the container or not. Only a busy one makes us search the
// processes of the host; what a checkpoint has to know of the container's processes comes from the
// container's own /proc. So neither costs more on a busy host.
package stack
