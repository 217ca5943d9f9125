// Package image makes a small container image out of nothing but this module: a static shell with coreutils (see
// examples/shell), 4 MB, FROM scratch. Demo and tests use it, for many machines cannot pull an image.
package image
