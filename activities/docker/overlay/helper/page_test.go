package helper

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tear leaves of a page what a write that was cut short may have.
func tear(t *testing.T, dir string, place int) {
	t.Helper()
	name := filepath.Join(dir, pageNames[place])
	raw, err := os.ReadFile(name)
	require.NoError(t, err)
	copy(raw[100:], strings.Repeat("x", 20))
	require.NoError(t, os.WriteFile(name, raw, 0o600))
}

func TestATornPageLeavesTheOneBefore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	next := func(told bool) *book {
		b, err := readBook(dir, boxID)
		require.NoError(t, err)
		b.Next++
		require.NoError(t, b.write(dir, told))
		return b
	}
	number := func() int {
		b, err := readBook(dir, boxID)
		require.NoError(t, err)
		return b.Next
	}
	require.Equal(t, 1, number(), "of a container that has no book yet")
	for want := 2; want < 8; want++ {
		next(false)
		assert.Equal(t, want, number())
	}
	for range 3 { // what nobody has waited for may be lost, one and all, and never what was there before
		next(true)
	}
	assert.Equal(t, 10, number())
	last := next(true)
	tear(t, dir, last.on.place)
	assert.Equal(t, 7, number())
	last = next(false)
	tear(t, dir, last.on.place)
	assert.Equal(t, 7, number())
	tear(t, dir, 1-last.on.place)
	_, err := readBook(dir, boxID)
	assert.Equal(t, Damaged, KindOf(err))
	stands, err := HasLayers(filepath.Dir(dir), filepath.Base(dir))
	assert.True(t, stands)
	assert.Equal(t, Damaged, KindOf(err))
}

func TestAPageShrinksAndGrows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, marks := range []int{0, 3000, 1, 200, 6000, 0, 0} {
		b, err := readBook(dir, boxID)
		require.NoError(t, err)
		clear(b.Marks)
		for i := range marks {
			b.Marks[strconv.Itoa(i)] = i
		}
		require.NoError(t, b.write(dir, false))
		again, err := readBook(dir, boxID)
		require.NoError(t, err)
		assert.Equal(t, b.Marks, again.Marks)
		info, err := os.Stat(filepath.Join(dir, pageNames[again.on.place]))
		require.NoError(t, err)
		assert.Zero(t, info.Size()%pageSize)
	}
}

func TestABookOfAnotherContainerIsNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, err := readBook(dir, boxID)
	require.NoError(t, err)
	require.NoError(t, b.write(dir, false))
	stands, err := HasLayers(filepath.Dir(dir), filepath.Base(dir))
	assert.Equal(t, Damaged, KindOf(err))
	assert.True(t, stands)
}
