package terraform

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/terraformtest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// damaged is a step that was applied on top of another one, so that its undo needs all that it has
// kept.
func damaged(t *testing.T) (b *bench, e activities.Entry, tokenDir string) {
	b = newBench(t, first)
	b.apply(Params{})
	b.configure(second)
	e = b.apply(Params{})
	tok, err := b.action.(*applyAction).token(e)
	require.NoError(t, err)
	return b, e, tok.Dir()
}

// replace puts content in place of a file, and returns what puts it back.
func replace(t *testing.T, file string, change func([]byte) []byte) (mend func()) {
	t.Helper()
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.Remove(file))
	if changed := change(whole); changed != nil {
		require.NoError(t, os.WriteFile(file, changed, 0o600))
	}
	return func() { require.NoError(t, os.WriteFile(file, whole, 0o600)) }
}

// A record that is damaged is said to be, and nothing is touched on its word; once it is mended the
// undo goes through.
func TestDamageIsToldAndNothingIsHalfUndone(t *testing.T) {
	half := func(whole []byte) []byte { return whole[:len(whole)/2] }
	b, e, dir := damaged(t)
	names, state := b.names(), b.stateText()
	for _, c := range []struct {
		name   string
		file   func(b *bench, tokenDir string) string
		change func([]byte) []byte
	}{
		{"a record cut in half", inToken(journal.Record), half},
		{"an empty record", inToken(journal.Record), func([]byte) []byte { return []byte{} }},
		{"a sealed part that was changed", inToken(journal.Record), resealed},
		{"what the step left, cut in half", inToken(record.DocLeft), half},
		{"how a run ended, cut in half", inToken("run-001." + run.DocExit), half},
		{"what a run left behind, cut in half", inToken("run-001." + run.DocSettled), half},
		{"no key", key, func([]byte) []byte { return nil }},
		{"a key cut in half", key, half},
		{"a key that is none", key, func([]byte) []byte { return []byte("none") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer replace(t, c.file(b, dir), c.change)()
			for range 2 {
				b.open() // another worker knows no better
				_, err := b.action.Undo(b.ctx, e, activities.Decision{})
				require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
				assert.Equal(t, names, b.names())
				assert.Equal(t, state, b.stateText())
			}
		})
	}
	assert.Equal(t, activities.Compensated, b.undo(e).Outcome)
	assert.Equal(t, map[string]int{"same": 1, "changed": 1, "replaced": 1, "removed": 1}, b.names())
}

func inToken(doc string) func(*bench, string) string {
	return func(_ *bench, tokenDir string) string { return filepath.Join(tokenDir, doc) }
}

func key(b *bench, _ string) string { return filepath.Join(b.config().State, "key") }

// resealed is a record whose sealed part was changed by someone who knows how records are written.
func resealed(whole []byte) []byte {
	var e struct {
		Digest string          `json:"sha256"`
		Body   json.RawMessage `json:"body"`
	}
	var r record.Record
	if json.Unmarshal(whole, &e) != nil || json.Unmarshal(e.Body, &r) != nil {
		return nil
	}
	r.Sealed[len(r.Sealed)/2] ^= 1
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return nil
	}
	defer os.RemoveAll(dir)
	j, err := journal.Open(dir)
	if err != nil {
		return nil
	}
	tok, err := j.Token(activities.NewToken("run", "step", 1))
	if err != nil {
		return nil
	}
	if _, err := tok.Create(journal.Record, &r); err != nil {
		return nil
	}
	changed, _ := os.ReadFile(filepath.Join(tok.Dir(), journal.Record))
	return changed
}

func TestWithoutItsKeyAWorkerBeginsNothing(t *testing.T) {
	b, undone, _ := damaged(t)
	b.rollBack(undone, activities.Compensated)
	names := b.names()
	mend := replace(t, key(b, ""), func([]byte) []byte { return nil })
	b.open()
	e, s := b.step(Params{})
	_, err := b.action.Apply(b.ctx, e, s, "")
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
	assert.Contains(t, err.Error(), "restore it from a backup")
	assert.NoFileExists(t, key(b, ""), "a new key would be in the way of the old one")
	e.Redoes = undone.Token
	_, err = b.action.Apply(b.ctx, e, s, "")
	require.Equal(t, activities.DamagedRecord, activities.TypeOf(err), "%v", err)
	assert.Equal(t, names, b.names())
	mend()
	_, err = b.action.Apply(b.ctx, e, s, "")
	require.NoError(t, err)
}

func TestADamagedRecordIsToldInTheList(t *testing.T) {
	b, e, dir := damaged(t)
	replace(t, filepath.Join(dir, journal.Record), func(whole []byte) []byte { return whole[:9] })
	records, problems, err := b.world.Records.Records(b.ctx)
	require.NoError(t, err)
	assert.Len(t, records, 1, "the other one")
	require.Len(t, problems, 1)
	assert.ErrorContains(t, problems[0], e.Token)
}

// smallBench keeps the worker's state on a disk of its own, which can be filled.
func smallBench(t *testing.T, configuration string) (b *bench, fill func(), free func()) {
	t.Helper()
	terraformtest.Require(t)
	t.Parallel()
	testrun.Sampled(t)
	dir := t.TempDir()
	disk := filepath.Join(dir, "worker")
	require.NoError(t, os.Mkdir(disk, 0o700))
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=16m"); err != nil {
		testrun.Skipf(t, "full disks are not tested: a small filesystem cannot be mounted: %v", err)
	}
	t.Cleanup(func() { // a supervisor may still be on its way out
		require.Eventually(t, func() bool { return unix.Unmount(disk, 0) == nil }, time.Minute, 10*time.Millisecond)
	})
	b = newBenchIn(t, dir, configuration)
	return b, func() { require.NoError(t, fillDisk(disk)) }, func() { require.NoError(t, os.Remove(filler(disk))) }
}

func filler(disk string) string { return filepath.Join(disk, "filler") }

// fillDisk leaves no byte free.
func fillDisk(disk string) error {
	f, err := os.Create(filler(disk))
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("the disk is not full: %w", err)
	}
	return nil
}

func TestAFullDisk(t *testing.T) {
	t.Run("before the step", func(t *testing.T) {
		b, fill, free := smallBench(t, one)
		e, s := b.step(Params{})
		fill()
		_, err := b.action.Apply(b.ctx, e, s, "")
		require.ErrorIs(t, err, unix.ENOSPC)
		require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "it is tried again")
		assert.Empty(t, b.names())
		free()
		_, err = b.action.Apply(b.ctx, e, s, "")
		require.NoError(t, err)
		assert.Equal(t, map[string]int{"a": 1}, b.names())
		assert.Equal(t, activities.Restored, b.undo(e).Outcome)
	})
	t.Run("before the undo", func(t *testing.T) {
		b, fill, free := smallBench(t, one)
		e := b.apply(Params{})
		fill()
		_, err := b.action.Undo(b.ctx, e, activities.Decision{})
		require.ErrorIs(t, err, unix.ENOSPC)
		require.Equal(t, activities.ActionFailed, activities.TypeOf(err), "it is tried again")
		assert.Equal(t, map[string]int{"a": 1}, b.names())
		free()
		assert.Equal(t, activities.Restored, b.undo(e).Outcome)
		assert.Empty(t, b.names())
		assert.NoFileExists(t, b.state())
	})
	for _, at := range testrun.Draw(t, "apply:recorded", "supervisor:registered", "supervisor:started", "supervisor:ended",
		"apply:applied", "apply:left") {
		t.Run("at "+at, func(t *testing.T) {
			b, _, free := smallBench(t, one)
			e, s := b.step(Params{})
			c := b.worker(e, s, breakVar+"=fill:terraform."+at, diskVar+"="+b.config().State)
			require.Error(t, c.Wait())
			free()
			b.mustTakeBack(e)
		})
	}
	for _, at := range testrun.Draw(t, "undo:fenced", "undo:cleared", "supervisor:registered", "supervisor:started",
		"undo:subtracted", "undo:back") {
		t.Run("in the undo at "+at, func(t *testing.T) {
			b, _, free := smallBench(t, one)
			e := b.apply(Params{})
			c := b.undoer(e, breakVar+"=fill:terraform."+at, diskVar+"="+b.config().State)
			require.Error(t, c.Wait())
			free()
			assert.Equal(t, activities.Restored, b.undo(e).Outcome)
			assert.Empty(t, b.names())
			assert.NoFileExists(t, b.state())
		})
	}
}
