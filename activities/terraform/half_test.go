package terraform

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
)

const served = `terraform_data.served["eu"]`

// serving is a bench whose configuration makes an object with a provisioner that leaves a file of
// its id, and then hangs as long as there is a file "hold"; another provisioner removes the file
// when the object is destroyed, and hangs while there is a file "stay".
func serving(t *testing.T, release string) *bench {
	b := newBench(t, "")
	require.NoError(t, os.Mkdir(filepath.Join(b.dir, "effects"), 0o700))
	b.serve(release)
	return b
}

func (b *bench) serve(release string) {
	b.Helper()
	write(b, b.dir, "conf/main.tf", fmt.Sprintf(`
resource "terraform_data" "served" {
  for_each         = toset(["eu"])
  input            = %q
  triggers_replace = %q
  provisioner "local-exec" {
    command = "touch '${self.input}/effects/${self.id}'; while [ -e '${self.input}/hold' ]; do sleep 0.02; done"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "rm '${self.input}/effects/${self.id}'; gone=$?; while [ -e '${self.input}/stay' ]; do sleep 0.02; done; exit $gone"
  }
}
output "id" { value = terraform_data.served["eu"].id }`, b.dir, release))
}

// effects are the files that provisioners have left.
func (b *bench) effects() (ids []string) {
	b.Helper()
	files, err := os.ReadDir(filepath.Join(b.dir, "effects"))
	require.NoError(b, err)
	for _, f := range files {
		ids = append(ids, f.Name())
	}
	return ids
}

// cutOff applies a step whose terraform hangs in a provisioner, and kills its worker there: the
// supervisor interrupts terraform.
func (b *bench) cutOff() (activities.Entry, activities.Step) {
	b.Helper()
	was := b.effects()
	hold := filepath.Join(b.dir, "hold")
	require.NoError(b, os.WriteFile(hold, nil, 0o600))
	e, s := b.step(Params{})
	c := b.worker(e, s)
	b.eventually("a provisioner at work", func() bool {
		now := b.effects()
		return len(now) == 1 && !slices.Equal(now, was)
	})
	b.kill(c)
	b.eventually("the end of the supervisor", func() bool { return !b.supervisor(e).IsAlive() })
	require.NoError(b, os.Remove(hold))
	return e, s
}

func TestProvisionerThatIsCutOff(t *testing.T) {
	t.Run("undone", func(t *testing.T) {
		b := serving(t, "1")
		e, _ := b.cutOff()
		u := b.undo(e)
		assert.Equal(t, activities.Compensated, u.Outcome, "%v", u.Losses)
		assert.Empty(t, b.effects(), "what the provisioner had done is taken back")
		assert.NoFileExists(t, b.state())
	})
	t.Run("tried again", func(t *testing.T) {
		b := serving(t, "1")
		e, s := b.cutOff()
		r, err := b.action.Apply(b.ctx, e, s, "")
		require.NoError(t, err)
		assert.Equal(t, []string{fmt.Sprint(r.Outputs["id"])}, b.effects(), "once, and of the object that is there")
		assert.NoFileExists(t, b.state()+".backup")
		u := b.undo(e)
		assert.Equal(t, activities.Compensated, u.Outcome, "%v", u.Losses)
		assert.Empty(t, b.effects())
	})
	t.Run("of one that was there before", func(t *testing.T) {
		b := serving(t, "1")
		b.apply(Params{})
		b.serve("2")
		e, _ := b.cutOff() // the old one's provisioner for the destruction has removed its file
		u := b.undo(e)
		assert.Equal(t, activities.Compensated, u.Outcome, "%v", u.Losses)
		now, err := state.Parse([]byte(b.stateText()))
		require.NoError(t, err)
		require.Len(t, b.effects(), 1)
		assert.Contains(t, now.Managed()[served], b.effects()[0], "once, and of the object that is there")
	})
}

// Where the provisioners for the destruction fail, the object goes without them, and the report
// names it.
func TestProvisionerThatCannotBeTakenBack(t *testing.T) {
	const loss = served + ": a provisioner was cut off while it was made, and those for its destruction failed: " +
		"it was destroyed without them, and what it had done by then may still exist"
	lose := func(b *bench) {
		b.Helper()
		require.NoError(b, os.Remove(filepath.Join(b.dir, "effects", b.effects()[0])))
	}
	t.Run("undone", func(t *testing.T) {
		b := serving(t, "1")
		e, _ := b.cutOff()
		lose(b)
		u := b.undo(e)
		assert.Equal(t, activities.Residue, u.Outcome)
		assert.Equal(t, []string{loss}, u.Losses)
		assert.NoFileExists(t, b.state())
		assert.Equal(t, u, b.undo(e))
	})
	t.Run("tried again", func(t *testing.T) {
		b := serving(t, "1")
		e, s := b.cutOff()
		lose(b)
		r, err := b.action.Apply(b.ctx, e, s, "")
		require.NoError(t, err)
		assert.Contains(t, r.Notes, loss)
		assert.NoFileExists(t, b.state()+".backup")
		assert.Equal(t, []string{fmt.Sprint(r.Outputs["id"])}, b.effects())
		u := b.undo(e)
		assert.Equal(t, activities.Residue, u.Outcome)
		assert.Equal(t, []string{loss}, u.Losses)
		assert.Empty(t, b.effects())
	})
	t.Run("of one that was there before", func(t *testing.T) {
		b := serving(t, "1")
		b.apply(Params{})
		b.serve("2")
		e, _ := b.cutOff()
		lose(b)
		u := b.undo(e)
		assert.Equal(t, activities.Residue, u.Outcome)
		assert.Contains(t, u.Losses, loss)
		assert.Len(t, b.effects(), 1)
	})
}

// A destruction that was cut off has run its provisioners, which may fail the next time.
func TestProvisionerThatIsCutOffInTheDestruction(t *testing.T) {
	const loss = served + ": its destruction was cut off in a provisioner, and the next time its provisioners failed: " +
		"it was destroyed without them, and what they were to remove may still exist"
	cut := func(b *bench, e activities.Entry, work func() *exec.Cmd) {
		b.Helper()
		stay := filepath.Join(b.dir, "stay")
		require.NoError(b, os.WriteFile(stay, nil, 0o600))
		c := work()
		b.eventually("a provisioner that has done its work", func() bool { return len(b.effects()) == 0 })
		b.killLastRun(e)
		require.NoError(b, os.Remove(stay))
		_ = c.Wait() // it fails, or has begun again
	}
	t.Run("undone", func(t *testing.T) {
		b := serving(t, "1")
		e := b.apply(Params{})
		cut(b, e, func() *exec.Cmd { return b.undoer(e) })
		u := b.undo(e)
		assert.Equal(t, activities.Residue, u.Outcome)
		assert.Equal(t, []string{loss}, u.Losses)
		assert.NoFileExists(t, b.state())
		assert.Empty(t, b.effects())
	})
	t.Run("of one that was there before", func(t *testing.T) {
		b := serving(t, "1")
		b.apply(Params{})
		b.serve("2")
		e, s := b.step(Params{})
		cut(b, e, func() *exec.Cmd { return b.worker(e, s) })
		u := b.undo(e)
		assert.Equal(t, activities.Residue, u.Outcome)
		assert.Contains(t, u.Losses, loss)
		now, err := state.Parse([]byte(b.stateText()))
		require.NoError(t, err)
		require.Len(t, b.effects(), 1)
		assert.Contains(t, now.Managed()[served], b.effects()[0], "once, and of the object that is there")
	})
}
