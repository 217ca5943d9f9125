// Package readingtest holds the tests of the contract that container.exec keeps (actiontest) with a command that only reads;
// those of one that changes something are in containertest, and take as long as all of these.
package readingtest
