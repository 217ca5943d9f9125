package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

func (x *execAction) Observe(ctx context.Context, e activities.Entry) (activities.Observation, error) {
	t, err := x.token(ctx, e)
	if err != nil {
		return activities.Observation{}, err
	}
	rec, found, err := readRecord(t)
	switch {
	case err != nil:
		return activities.Observation{}, err
	case !found:
		return activities.Observation{State: activities.Unseen, Detail: "there is no record of the step: it has not run, or its record is released"}, nil
	}
	var undone activities.Undone
	over, err := t.Read(journal.Outcome, &undone)
	switch {
	case err != nil:
		return activities.Observation{}, err
	case rec.ReadOnly && over:
		return activities.Observation{State: activities.AsBefore, Detail: "the command only reads"}, nil
	case rec.ReadOnly:
		return activities.Observation{State: activities.AsLeft, Detail: "the command only reads"}, nil
	}
	s, err := x.look(ctx, t, rec)
	if err != nil {
		return activities.Observation{}, err
	}
	return s.observation(over), nil
}

// observation prefers what is expected where a step has changed nothing: as left, or after its undo as before.
func (s sight) observation(undone bool) activities.Observation {
	drift := s.drift()
	left := activities.Observation{State: activities.AsLeft, Detail: fmt.Sprintf("the filesystem of %s equals that after the step", s.name)}
	switch {
	case s.unread:
		return activities.Observation{State: activities.Unseen, Detail: "the filesystem of " + s.name + " cannot be read"}
	case s.gone:
		return activities.Observation{State: activities.Elsewise, Detail: s.say(), Drift: drift}
	case !undone && s.after != nil && len(s.after.diff(s.now)) == 0:
		return left
	case len(s.before.diff(s.now)) == 0:
		return activities.Observation{State: activities.AsBefore, Detail: fmt.Sprintf("the filesystem of %s equals that before the step", s.name)}
	case s.after == nil:
		return activities.Observation{State: activities.Unseen, Detail: "the command has not come to its end: what it has changed cannot be told from what others have"}
	case drift == nil:
		return left
	}
	return activities.Observation{State: activities.Elsewise, Detail: s.say(), Drift: drift}
}

// Release drops the checkpoint, what a rollback has kept, the container's settings, the manifests and the logs. What stays is the token's fate, and
// which container took the place of which, for the records of other steps.
func (x *execAction) Release(ctx context.Context, e activities.Entry) error {
	t, err := x.token(ctx, e)
	if err != nil {
		return err
	}
	if _, err := t.DecideReleasing(); err != nil {
		return err
	}
	if err := x.release(ctx, e.Token); err != nil {
		return err
	}
	rec, _, err := readRecord(t)
	if err != nil && !damaged(err) {
		return err
	}
	if err := dropVolumes(t, rec); err != nil {
		return err
	}
	bulk, err := filepath.Glob(filepath.Join(t.Dir(), "*"))
	if err != nil {
		return err
	}
	for _, file := range bulk {
		if name := filepath.Base(file); strings.HasSuffix(name, ".gz") || strings.HasPrefix(name, "log-") {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return errors.Join(t.Drop(journal.Record), t.MarkReleased())
}
