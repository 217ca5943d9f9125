// Package checkpoint is the seam between the actions and the ways to keep a container's filesystem:
// docker commit (package dockercommit) and layers over the root of the running container (package
// layers). An action asks a [Backend] and never which one it is.
//
// A record has the [Choice] that was made for its step, and is undone by that backend whatever the
// worker's config says later.
package checkpoint
