// Package terraformtest is for tests that run Terraform: it finds the program, and brings a
// provider that needs no network. Its own tests are those of the contract that every action keeps
// (actiontest): apart from the scenarios of package terraform, for they take as long as all of
// these.
package terraformtest
