// Package environments is the long-lived workflow that has an environment. It does nothing to the
// parts itself: it runs a task for each checkpoint and each rollback, one at a time, and keeps the
// list of what these have kept, which its host stores. If the workflow is lost, another one with
// the same name goes on from there.
package environments
