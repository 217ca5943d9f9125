// Package manifest describes what a container's filesystem holds: read from the engine's export, or
// told by a helper that looks into the container. Manifests are compared, saved in the journal with
// a digest, and covered by approvals.
package manifest
