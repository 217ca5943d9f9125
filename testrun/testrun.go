// Package testrun is what the tests of all packages share about the run that they belong to: how deep it goes, what it
// draws at random, and what happens where the machine lacks something. Three environment variables decide:
//
//	UNWIND_TEST_DEEP=1    everything: each point of each call in each test, every time that the call reaches it; each
//	                      storage driver; the large matrices; every mutant. Hours. Without it a run breaks every call at
//	                      every point at least once, and draws a sample of the rest.
//	UNWIND_TEST_DEEP=90s  the sample, and of the rest of the points as many, in drawn order, as take 90 seconds of tests in
//	                      each package.
//	UNWIND_TEST_SEED=n    repeats the sample that another run drew. A process that draws prints its seed first, so the
//	                      output of a failed package starts with it.
//	CI=true               a test that lacks a part of the machine fails. Without it, it is skipped with one line.
//
// The deep run of everything, or of some packages, is one command:
//
//	.ci/run deep [PACKAGE...]
//
// while plain `.ci/run` takes of it what the change can reach, and a part drawn by a seed that it prints.
package testrun

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	deepVariable = "UNWIND_TEST_DEEP"
	seedVariable = "UNWIND_TEST_SEED"
)

// depth is how deep this run goes: whether it leaves nothing out, else how long the tests may take that a plain run leaves out.
func depth() (everything bool, extra time.Duration) {
	value := os.Getenv(deepVariable)
	if value == "" {
		return false, 0
	}
	if extra, err := time.ParseDuration(value); err == nil && extra > 0 {
		return false, extra
	}
	everything, err := strconv.ParseBool(value)
	if err != nil {
		panic(fmt.Sprintf("%s=%s: want 1 for everything, a time such as 90s for a part, or nothing", deepVariable, value))
	}
	return everything, 0
}

// Deep says that this run leaves nothing out.
func Deep() bool {
	everything, _ := depth()
	return everything
}

// spent is the time that the extra tests of this process have taken, each counted by itself.
var spent atomic.Int64

// Plain says that this run goes no deeper than its sample.
func Plain() bool {
	everything, extra := depth()
	return !everything && extra == 0
}

// Extra begins a test that a plain run leaves out. It skips the test when this run has had its share of them.
func Extra(t testing.TB) {
	t.Helper()
	everything, share := depth()
	if everything {
		return
	}
	if time.Duration(spent.Load()) >= share {
		t.Skipf("left out: not drawn in %s=%s", deepVariable, os.Getenv(deepVariable))
	}
	began := time.Now()
	t.Cleanup(func() { spent.Add(int64(time.Since(began))) })
}

// seed is read, or made up, and printed at the first draw of a process.
var seed = sync.OnceValue(func() uint64 {
	value := os.Getenv(seedVariable)
	if value == "" {
		value = strconv.FormatUint(uint64(rand.Uint32()), 10) //nolint:gosec // nobody gains by guessing it
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s=%s: want a whole number that is not negative", seedVariable, value))
	}
	fmt.Fprintf(os.Stderr, "%s=%d draws this run's sample\n", seedVariable, n)
	return n
})

// Rand draws for a test. What it draws hangs on the run's seed and the test's name alone, whichever other tests run.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	name := fnv.New64a()
	name.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(seed(), name.Sum64())) //nolint:gosec // nobody gains by guessing it
}

// Draw draws one of all, the whole of which a deep run takes.
func Draw[T any](t testing.TB, all ...T) []T {
	t.Helper()
	if Deep() || len(all) == 0 {
		return all
	}
	drawn := Rand(t).IntN(len(all))
	return all[drawn : drawn+1]
}

// RunWaiting runs tests that mostly wait, for disks, servers and other processes: three side by side for each processor, unless
// a flag on the command line says otherwise.
func RunWaiting(m *testing.M) (code int) {
	if err := flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	return m.Run()
}

// Skipf skips a test that lacks a part of the machine, saying which and how to get it. Where CI=true it fails the test.
func Skipf(t testing.TB, format string, args ...any) {
	t.Helper()
	why := fmt.Sprintf(format, args...)
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI=true allows no skipped test: %s", why)
	}
	t.Skip("SKIPPED: " + why)
}

// NeedRoot skips a test that others than root cannot run.
func NeedRoot(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skipf(t, "only root can test %s", what)
	}
}

// NeedProgram skips a test where a program is not on the PATH.
func NeedProgram(t testing.TB, name, wayOut string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		Skipf(t, "there is no %s on the PATH; %s", name, wayOut)
	}
}
