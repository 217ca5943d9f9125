package containertest

import (
	"os"
	"testing"

	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container"
)

// Main is the TestMain of a package with cases of actiontest that work in containers.
func Main(m *testing.M, cases ...actiontest.Case) {
	container.Attend()
	code := actiontest.Main(m, cases...)
	if err := RemoveImages(); err != nil {
		panic(err)
	}
	os.Exit(code)
}
