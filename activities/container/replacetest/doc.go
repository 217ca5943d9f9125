// Package replacetest holds the tests of the contract that container.replace keeps (actiontest), apart from those of
// container.exec (containertest): either takes as long as all scenarios.
package replacetest
