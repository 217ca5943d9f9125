package host

import (
	"github.com/seed-62bf7108/unwind/activities/container"
	"github.com/seed-62bf7108/unwind/activities/mcpserver"
	"github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/activities/terraform"
)

// Hooks lets the program run a worker: some worlds start the program itself as a supervisor that outlives the worker. Call
// it first in main and in TestMain: in a supervisor it never returns.
func Hooks() {
	container.Attend()
	mcpserver.Attend()
	sqlite.Attend()
	terraform.Attend()
}
