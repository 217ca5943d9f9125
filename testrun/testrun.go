// Package testrun holds what the tests of all packages share about the run that they belong to: how
// deep it goes, what it draws at random, and what happens if the machine lacks something. Four
// environment variables decide:
//
//	UNWIND_TEST_DEEP=1    everything: each point of each call in each test, every time that the call reaches it; each
//	                      storage driver; the large matrices; every mutant. This takes hours. Without it a run
//	                      takes a sample.
//	UNWIND_TEST_DEEP=90s  the sample, and as many of the other tests as can be run in 90 seconds in each package.
//	UNWIND_TEST_SHARE=n   one in n of the slow tests, by chance, is in the sample. Defaults to 9. With 1 a run
//	                      breaks every call at
//	                      every point at least once.
//	UNWIND_TEST_SEED=n    draws another sample. By default the commit gives the seed, so that all runs judge it
//	                      alike. A
//	                      process that draws prints its seed first, so the output of a failed package starts with it.
//	CI=true               a test fails if the machine lacks what it needs. Otherwise it is skipped with one line.
//
// The deep run of everything, or of some packages, is one command:
//
//	.ci/run deep [PACKAGE...]
//
// Plain `.ci/run` takes the sample, and in the packages that the change is in, for a while, other tests
// as well. The seed that it prints draws the sample.
package testrun

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	deepVariable  = "UNWIND_TEST_DEEP"
	seedVariable  = "UNWIND_TEST_SEED"
	shareVariable = "UNWIND_TEST_SHARE"
)

// depth returns whether this run leaves nothing out and, if it does, how long the tests may take
// that a plain run leaves out.
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

// Deep reports whether this run leaves nothing out.
func Deep() bool {
	everything, _ := depth()
	return everything
}

// spent is the total time that the extra tests of this process have taken.
var spent atomic.Int64

// Plain reports whether this run goes no deeper than its sample.
func Plain() bool {
	everything, extra := depth()
	return !everything && extra == 0
}

// Extra begins a test that a plain run leaves out. It skips the test if the time for such tests is
// used up.
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

// Sampled begins a test that is slow, as many others are. Unless the seed draws it for the sample,
// a plain run leaves it out.
func Sampled(t testing.TB) {
	t.Helper()
	if n := share(); n > 1 && Rand(t).IntN(n) != 0 {
		Extra(t)
	}
}

// share returns n, where one in n of many tests is in the sample.
func share() int {
	value := os.Getenv(shareVariable)
	if value == "" {
		return 9
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		panic(fmt.Sprintf("%s=%s: want a whole number from 1 on", shareVariable, value))
	}
	return n
}

// seed is found and printed at the first draw of a process.
var seed = sync.OnceValue(func() uint64 {
	value := os.Getenv(seedVariable)
	if value == "" {
		value = commitSeed()
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s=%s: want a whole number that is not negative", seedVariable, value))
	}
	fmt.Fprintf(os.Stderr, "%s=%d draws this run's sample\n", seedVariable, n)
	return n
})

// commitSeed is the seed that the commit gives; 0 outside of a repository.
func commitSeed() string {
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil || len(head) < 6 {
		return "0"
	}
	n, _ := strconv.ParseUint(string(head[:6]), 16, 64) // a hash
	return strconv.FormatUint(n, 10)
}

// Rand returns a generator for a test. It depends only on the run's seed and the test's name, not
// on which other tests run.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	name := fnv.New64a()
	name.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(seed(), name.Sum64())) //nolint:gosec // not a secret
}

// Draw draws one of all; a deep run takes all of them.
func Draw[T any](t testing.TB, all ...T) []T {
	t.Helper()
	if Deep() || len(all) == 0 {
		return all
	}
	drawn := Rand(t).IntN(len(all))
	return all[drawn : drawn+1]
}

// DrawShare draws one in n of all, and at least one; a deep run takes all of them.
func DrawShare[T any](t testing.TB, all ...T) []T {
	t.Helper()
	n := share()
	if Deep() || n == 1 || len(all) == 0 {
		return all
	}
	drawn := slices.Clone(all)
	Rand(t).Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	return drawn[:(len(all)+n-1)/n]
}

// RunWaiting runs tests that mostly wait for disks, servers and other processes: three at a time
// for each processor, unless a flag on the command line says otherwise.
func RunWaiting(m *testing.M) (code int) {
	if err := flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	return m.Run()
}

// Skipf skips a test because the machine lacks something; the message says what, and how to get it.
// If CI=true it fails the test.
func Skipf(t testing.TB, format string, args ...any) {
	t.Helper()
	why := fmt.Sprintf(format, args...)
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI=true allows no skipped test: %s", why)
	}
	t.Skip("SKIPPED: " + why)
}

// NeedRoot skips a test that only root can run, unless this is root.
func NeedRoot(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skipf(t, "only root can test %s", what)
	}
}

// NeedShell skips a test if there is no shell with the usual Unix programs on PATH.
func NeedShell(t testing.TB) {
	t.Helper()
	for _, name := range []string{"sh", "cat", "grep"} {
		NeedProgram(t, name, "the test runs a script with the usual Unix programs: put them on the PATH")
	}
}

// NeedProgram skips a test if a program is not on PATH.
func NeedProgram(t testing.TB, name, wayOut string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		Skipf(t, "there is no %s on the PATH; %s", name, wayOut)
	}
}
