// Command starter is what people type to run, watch and decide the tasks of their agents: see its --help, or package
// command.
package main

import (
	"os"

	"github.com/seed-62bf7108/unwind/starter/command"
)

func main() { os.Exit(command.Main(command.Options{})) }
