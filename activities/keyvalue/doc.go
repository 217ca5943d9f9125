// Package keyvalue is what the worlds of key-value databases share: which keys a step may touch,
// how keys are counted and named to people, the journals of several databases in one place, and
// what the checks of a step see.
package keyvalue
