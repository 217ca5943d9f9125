// Package dockercommit takes checkpoints by docker commit, and rolls back by making a new container
// from the image. It needs nothing but the engine's API, works with any storage driver, and costs
// what the container's own layer weighs.
//
// A new container is built beside the old one, compared with the manifest from before the step, and
// then takes the old one's place and name (see package lineage). Everything that a late forward
// knows, the container's id and the exec's, is dead from then on: the engine itself refuses it. So
// the fence needs nothing in the engine that a stopped process could hold.
package dockercommit
