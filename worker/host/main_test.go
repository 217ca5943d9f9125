package host_test

import (
	"os"
	"testing"

	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/container/containertest"
	"github.com/seed-62bf7108/unwind/activities/mcpserver/mcptest"
	"github.com/seed-62bf7108/unwind/worker/host"
)

func TestMain(m *testing.M) {
	mcptest.Attend()
	host.Hooks()
	code := actiontest.Main(m, environmentCases()...)
	if err := containertest.RemoveImages(); err != nil {
		panic(err)
	}
	os.Exit(code)
}
