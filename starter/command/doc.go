// Package command is the command line of Unwind: run, watch, decide and look at tasks.
//
// A command speaks to the Temporal server that the user named (TEMPORAL_ADDRESS or a profile of the
// temporal CLI), else to that of a running `starter dev`, else to localhost:7233. It never talks to
// a worker: what it shows is a task's query "state", and once the task is closed its result or
// failure; what it decides are the signals approve, reject and resolve.
//
// Commands are here; what they are made of is beside them: package tasks knows the server, follow
// shows a task until its end, render prints, local runs a server and a worker, terminal lays out
// text, usage marks errors in the input.
//
// Workers run on Linux. What needs one in this process (init, dev, demo, postgres, --config) is in
// the files for Linux, behind workerSide; the rest is a client that builds for any Unix and imports
// no world.
//
// [Main] is the whole program. To have your own actions known to `validate`, `run`, `catalog`,
// `schema` and `dev`, make a starter of your own that passes their worlds in [Options].
package command
