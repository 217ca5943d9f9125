// Package calltest has what a container with layers and one without are compared by: system calls
// on objects of each kind, programs as agents run them, and a listing of all that a program sees of
// a tree. A test binary that calls [Main] can be a program, named alike, in a container.
package calltest
