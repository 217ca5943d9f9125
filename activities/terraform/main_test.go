package terraform

import (
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/terraformtest"
)

const (
	// breakVar names the environment variable that makes a worker of a test, and what it starts, kill
	// or stop themselves at a point, or fill the disk: "kill:LABEL".
	breakVar = "UNWIND_TERRAFORM_TEST_BREAK"
	// sleeperVar names the file in which one that stops itself leaves its process id.
	sleeperVar = "UNWIND_TERRAFORM_TEST_SLEEPER"
	// diskVar is that disk.
	diskVar = "UNWIND_TERRAFORM_TEST_DISK"
)

// ownSecret is in the environment of the worker of all tests.
const (
	ownSecretVar = "UNWIND_TERRAFORM_TEST_SECRET"
	ownSecret    = "sk_live_4711_do_not_print"
)

func TestMain(m *testing.M) {
	if at := os.Getenv(breakVar); at != "" &&
		(strings.HasPrefix(filepath.Base(os.Args[0]), run.FrontName) || os.Getenv(workerVar) != "") {
		point.Hook(func(label string) {
			switch at {
			case "kill:" + label:
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			case "stop:" + label:
				// The signal may take a moment to stop this thread: it goes on when the process is woken.
				woken := make(chan os.Signal, 1)
				signal.Notify(woken, unix.SIGCONT)
				if err := os.WriteFile(os.Getenv(sleeperVar), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
					panic(err)
				}
				_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
				<-woken
				signal.Stop(woken)
			case "fill:" + label:
				if err := fillDisk(os.Getenv(diskVar)); err != nil {
					panic(err)
				}
			}
		})
	}
	if filepath.Base(os.Args[0]) == run.FrontName {
		os.Setenv("TF_DISABLE_PLUGIN_TLS", "1") // as terraformtest/front
	}
	Attend()
	os.Setenv(ownSecretVar, ownSecret)
	// A program with the race detector sleeps a second at its end; fronts and supervisors are such
	// programs here.
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	if task := os.Getenv(workerVar); task != "" {
		os.Exit(work(task))
	}
	code := actiontest.Main(m)
	terraformtest.RemoveFront()
	os.Exit(code)
}
