// Package host runs a worker process: it opens the worlds that its config allows, serves the shared
// task queue and the host's own, reports health and metrics, and stops gracefully.
//
// To run your own actions, make a worker of your own that passes their worlds to [Start].
package host
