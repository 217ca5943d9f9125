// Package stage sets up what the examples work on: a site with configuration files of odd modes and old times, a container
// that is made on the spot, infrastructure that Terraform has applied before, and an emulator of Stripe. All of it is in
// one temporary folder and under names of its own, so that several stages can stand beside each other.
package stage
