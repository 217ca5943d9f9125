// Command shell is a small static Unix userland in one file: a shell and coreutils, for container
// images that are made without pulling anything. Built with CGO_ENABLED=0 it is all that an image
// FROM scratch needs.
//
//	sh -c COMMAND [NAME [ARG...]]   run a command
//	sh FILE [ARG...]                run a script
//	sh                              run a script from standard input
//	cat, ls, sleep, ...             run one program: the name that it is called by says which
//
// "sleep infinity" makes a PID 1 that reaps its orphans and ends at the first SIGTERM.
package main
