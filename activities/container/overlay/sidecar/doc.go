// Package sidecar runs the overlay helper in a container on the engine whose containers it works in. So the worker needs
// neither to be root nor to be on the engine's host: it needs the engine, which makes whoever may use it root anyway.
//
// The container is made from an image that holds the worker's own program, with the loader and the libraries that it runs
// with, and nothing else. It is imported from memory, named by its digest, and stays for the next start. The container keeps
// the layers in a volume, is spoken to over its attached input and output, ends when its input is closed, and is removed by
// the engine then.
package sidecar
