// Package stage sets up what the examples work on: a site with configuration files of odd modes and
// old times, a newly made container, infrastructure that Terraform has applied before, and an
// emulator of Stripe. All of it is in one temporary folder and has unique names, so that several
// stages can exist at once.
package stage
