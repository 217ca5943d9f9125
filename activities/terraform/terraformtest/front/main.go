// Command front is nothing but what a worker starts of itself to run terraform.
package main

import (
	"os"

	"github.com/seed-62bf7108/unwind/activities/terraform"
)

func main() {
	// A fifth of what a plan costs is the certificates that terraform and a provider make for each
	// other.
	os.Setenv("TF_DISABLE_PLUGIN_TLS", "1")
	terraform.Attend()
}
