// Package layerstest holds the tests of the contract that container.exec keeps (actiontest) where its checkpoints are layers,
// on the engine at hand and on one with overlay2; those with docker commit are in containertest.
package layerstest
