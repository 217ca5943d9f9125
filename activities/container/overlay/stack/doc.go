// Package stack puts overlays over the root of a running container, and takes them away: the system calls of the overlay
// backend, and nothing else. It keeps no state; what stands where is read from the kernel.
//
// A container's own root is its base. Over it stands at most one overlay of ours, the top: its lower layers are the base
// and folders of earlier steps, its upper layer is the folder that is written to now. What enters the container's mount
// namespace (docker exec does) has the topmost mount as its root. What has entered before keeps the root that it had.
//
// [Target.Show] changes the top for another in one indivisible step: the new overlay is mounted beneath the old one, which
// is then taken off. At no time does a process that enters see the base, or half of a stack.
//
// Who stands in a top that goes is told by the kernel: a mount that can be taken off like any other is used by nobody, of
// the container or not. Only where it is in use are the processes of the host looked through; what a checkpoint needs to
// know before, of the container's own processes, its own /proc tells. So neither costs more on a host that runs much.
package stack
