package terraform

import (
	"context"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
)

const namePrefix = "cp-"

// nameOf is the name of the checkpoint that a token makes.
func nameOf(token string) string { return namePrefix + token }

// configurations are those under which what a folder manages can be looked at: the one that is in
// it, and the last of it that is known to have made a state, for the other may be beyond terraform.
func (w *world) configurations(now configuration.Bundle) ([]configuration.Bundle, error) {
	last, err := w.records.FindLast(now.Dir)
	if err != nil || last == nil {
		return []configuration.Bundle{now}, err
	}
	return []configuration.Bundle{now, last.Arrived()}, nil
}

// underEach calls do with each of these, until it succeeds; the error is that of the first.
func (w *world) underEach(now configuration.Bundle, do func(configuration.Bundle) error) error {
	all, err := w.configurations(now)
	if err != nil {
		return err
	}
	err = do(all[0])
	if err == nil || activities.TypeOf(err) != activities.ActionFailed || len(all) == 1 || do(all[1]) != nil {
		return err
	}
	return nil
}

// checkpoint is a checkpoint of a folder, read.
type checkpoint struct {
	record.Kept

	name  string
	state *state.State
}

// findCheckpoint reads the checkpoint with a name, of the folder at a resolved path.
func (w *world) findCheckpoint(ctx context.Context, name, dir string) (*checkpoint, error) {
	token, is := strings.CutPrefix(name, namePrefix)
	if !is || token == "" {
		return nil, activities.Errorf(activities.Refused,
			"checkpoint: %q is no name of a checkpoint; take the output checkpoint of a step of %s", name, KeepAction)
	}
	t, err := w.journal.Token(token)
	if err != nil {
		return nil, err
	}
	var rec keepRecord
	var done record.DocKept
	found, err := t.Read(journal.Record, &rec)
	if err == nil && found && rec.Entry.Action == KeepAction {
		found, err = t.Read(journal.Applied, &done)
	} else {
		found = false
	}
	if err == nil && found && record.BytesOf(t) == 0 {
		fate, ferr := t.Fate()
		found, err = fate == journal.Undecided, ferr // else it is gone, and should not be
	}
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, activities.Errorf(activities.Refused,
			"checkpoint: there is no %s on this worker: it was never made here, was undone, or its record was released", name)
	case rec.Dir != dir:
		return nil, activities.Errorf(activities.Refused, "checkpoint: %s is of %s, and dir is %s", name, rec.Dir, dir)
	}
	c := &checkpoint{name: name}
	if c.Kept, err = w.records.ReadKept(t, done.Content); err != nil {
		return nil, err
	}
	c.state, err = state.ParseHidden(ctx, c.State)
	return c, err
}
