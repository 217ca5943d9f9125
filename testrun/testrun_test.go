package testrun

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMissing is run again by TestSkip, in a separate process.
func TestMissing(t *testing.T) {
	if os.Getenv("TESTRUN_MISSING") != "" {
		NeedProgram(t, "no-such-program", "apt-get install it")
		t.Error("the test goes on without the program")
	}
}

func TestSkip(t *testing.T) {
	run := func(ci string) (string, error) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestMissing$")
		cmd.Env = append(os.Environ(), "TESTRUN_MISSING=1", "CI="+ci)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("")
	require.NoError(t, err)
	require.Contains(t, out, "--- SKIP: TestMissing")
	require.Contains(t, out, "SKIPPED: there is no no-such-program on the PATH; apt-get install it\n")
	out, err = run("true")
	require.Error(t, err)
	require.Contains(t, out, "--- FAIL: TestMissing")
	require.Contains(t, out,
		"CI=true allows no skipped test: there is no no-such-program on the PATH; apt-get install it\n")
}

func TestRand(t *testing.T) {
	require.Equal(t, Rand(t).Uint64(), Rand(t).Uint64(), "one test draws the same again")
	var other uint64
	t.Run("other", func(t *testing.T) { other = Rand(t).Uint64() })
	require.NotEqual(t, Rand(t).Uint64(), other)
}

func TestDraw(t *testing.T) {
	t.Setenv(deepVariable, "1")
	require.Equal(t, []string{"a", "b"}, Draw(t, "a", "b"))
	t.Setenv(deepVariable, "")
	require.Len(t, Draw(t, "a", "b"), 1)
	require.Empty(t, Draw[string](t))
	t.Setenv(deepVariable, "90s")
	require.Len(t, Draw(t, "a", "b"), 1)
	t.Setenv(deepVariable, "all")
	require.PanicsWithValue(t, "UNWIND_TEST_DEEP=all: want 1 for everything, a time such as 90s for a part, or nothing",
		func() { Deep() })
}

func TestDrawShare(t *testing.T) {
	all := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	t.Setenv(deepVariable, "")
	t.Setenv(shareVariable, "9")
	require.Len(t, DrawShare(t, all...), 2)
	require.Subset(t, all, DrawShare(t, all...))
	require.Len(t, DrawShare(t, "a"), 1)
	require.Empty(t, DrawShare[int](t))
	t.Setenv(shareVariable, "1")
	require.Equal(t, all, DrawShare(t, all...))
	t.Setenv(shareVariable, "9")
	t.Setenv(deepVariable, "1")
	require.Equal(t, all, DrawShare(t, all...))
}

func TestExtra(t *testing.T) {
	spent.Store(0)
	ran := func(deep string) (ran bool) {
		t.Run("extra", func(t *testing.T) {
			t.Setenv(deepVariable, deep)
			Extra(t)
			ran = true
		})
		return ran
	}
	require.False(t, ran(""))
	require.True(t, ran("1"))
	require.Zero(t, spent.Load(), "everything is not counted")
	require.True(t, ran("1ns"))
	require.NotZero(t, spent.Load())
	require.False(t, ran("1ns"), "the share is used up")
	require.True(t, ran("1h"))
}

func TestSampled(t *testing.T) {
	count := func(share, deep string) (ran int) {
		t.Run(share+" "+deep, func(t *testing.T) {
			t.Setenv(shareVariable, share)
			t.Setenv(deepVariable, deep)
			for range 100 {
				t.Run("one of many", func(t *testing.T) {
					Sampled(t)
					ran++
				})
			}
		})
		return ran
	}
	spent.Store(0)
	require.Equal(t, 100, count("1", ""))
	require.Equal(t, 100, count("3", "1"))
	require.Equal(t, 100, count("3", "1h"), "what was not drawn is an extra test")
	drawn := count("3", "")
	require.Greater(t, drawn, 0)
	require.Less(t, drawn, 70)
	t.Setenv(shareVariable, "0")
	require.PanicsWithValue(t, "UNWIND_TEST_SHARE=0: want a whole number from 1 on", func() { Sampled(t) })
}

// TestDrawing is run again by TestEachRunOfACommitDrawsAlike, in a separate process.
func TestDrawing(t *testing.T) {
	if os.Getenv("TESTRUN_DRAWING") != "" {
		Rand(t)
	}
}

func TestEachRunOfACommitDrawsAlike(t *testing.T) {
	draw := func(seed string) string {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDrawing$")
		cmd.Env = append(os.Environ(), "TESTRUN_DRAWING=1", seedVariable+"="+seed)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err)
		return string(out)
	}
	first := draw("")
	require.Contains(t, first, seedVariable+"=")
	require.Equal(t, first, draw(""))
	require.Contains(t, draw("7"), seedVariable+"=7 draws this run's sample\n")
}
