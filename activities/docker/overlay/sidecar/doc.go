// Package sidecar runs the overlay helper in a container on the engine whose containers it works
// on. So the worker needs neither root nor a place on the engine's host: it needs the engine, and
// access to that amounts to root anyway.
//
// The image holds the worker's own program with its loader and libraries, and nothing else. It is
// imported from memory, named by its digest, and kept for the next start. The container keeps the
// layers in a volume, is spoken to over its attached standard streams, ends when its input is
// closed, and is then removed by the engine.
package sidecar
