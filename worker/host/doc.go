// Package host is a worker process: it opens the worlds that its config allows, serves the shared task queue and its
// host's own, tells its health and its metrics, and stops gracefully.
//
// To run your own actions, make a worker of your own that passes their worlds to [Start].
package host
