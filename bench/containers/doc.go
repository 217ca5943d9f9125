// Package containers measures what a checkpoint of a container and a rollback to it cost: by docker
// commit and a new container, as people do it by hand, and by layers over the root of the running
// one, side by side on one engine with the storage driver overlay2. It also measures whole steps
// through tasks, both ways, against the same commands by hand.
package containers
