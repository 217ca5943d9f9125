// Package terraformtest is for tests that run Terraform: it finds the program, and brings a provider that needs no network.
package terraformtest
