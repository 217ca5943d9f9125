// Package volumes keeps copies of the named volumes of a container, which engines keep in folders,
// and brings back what differs from them: see package snapshot. It needs root.
package volumes
