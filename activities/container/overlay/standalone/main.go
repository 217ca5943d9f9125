// Standalone is the overlay helper as a program of its own, for sidecars. Build it static:
//
//	CGO_ENABLED=0 go build -o unwind-overlay-helper ./activities/container/overlay/standalone
package main

import (
	"fmt"
	"os"

	"github.com/seed-62bf7108/unwind/activities/container/overlay/helper"
)

func main() {
	helper.Attend()
	fmt.Fprintln(os.Stderr, "This program is started by a worker, in a container: name it as container.helper in the worker's config.")
	os.Exit(2)
}
