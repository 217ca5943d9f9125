// Package volumestest holds the tests of container.exec with copies of volumes: of the contract that it keeps (actiontest), and
// of what comes back.
package volumestest
