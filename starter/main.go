package main

import (
	"os"

	"github.com/seed-62bf7108/unwind/starter/command"
)

func main() { os.Exit(command.Main(command.Options{})) }
