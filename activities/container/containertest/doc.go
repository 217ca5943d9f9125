// Package containertest is for tests that need a container: it starts some of a small image, looks into them, and clears away
// what a step has left. Its own tests are those of the contract that container.exec keeps (actiontest): apart from the
// scenarios of package container, for they take as long as all of these.
package containertest
