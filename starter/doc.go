// Command starter is what people type to run, watch and decide the tasks of their agents: see its
// --help, or package command.
package main
