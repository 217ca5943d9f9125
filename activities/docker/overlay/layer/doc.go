// Package layer reads and writes the layers of an overlay as they lie on the disk: what a layer
// changes, what somebody else has changed since, the sum of several layers, the reverse of one, and
// writing them into what is below. It mounts nothing: that is package stack.
package layer
