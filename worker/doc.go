// Command worker is the process that does what tasks say: see its --help, or package host.
package main
