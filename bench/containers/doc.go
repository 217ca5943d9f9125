// Package containers measures what a checkpoint of a container and a rollback to it cost: by docker commit and a new
// container, as people do it by hand; by a chain of containers, each from a commit of what the one before has written; and by
// layers over the root of the running one; side by side on one engine with the storage driver overlay2.
package containers
