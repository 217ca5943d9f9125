package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/internal/durable"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// The host of an environment stores its checkpoints, a file for each: they are there whatever
// becomes of the workflow. What a checkpoint consists of is in the records of the steps that took
// it. The environment holds these, as a holder without a run: it ends its holds itself.

// holderOf is the holder of the records of an environment's checkpoints.
func holderOf(name string) activities.Owner {
	return activities.Owner{Workflow: environment.WorkflowID(name)}
}

// isEnvironment reports whether a record is held until its holder says otherwise.
func isEnvironment(holder activities.Owner) bool { return holder.Run == "" }

func (b builtin) home(context.Context) (string, error) { return b.config.Host, nil }

func (b builtin) readDone(ctx context.Context, id string) ([]environment.Done, error) {
	defer activities.Beat(ctx)()
	done, err := b.server.Done(ctx, id, b.converter)
	return done, recovery.Final(err)
}

// readEnd waits for the end of a task that has been started before.
func (b builtin) readEnd(ctx context.Context, id string) (r compensations.Report, err error) {
	defer activities.Beat(ctx)()
	if err = b.server.Client.GetWorkflow(ctx, id, "").Get(ctx, &r); err != nil && ctx.Err() == nil {
		err = nonRetryable(errors.New(compensations.Reason(err)))
	}
	return r, err
}

// checkpointsOf is the folder of an environment's checkpoints.
func (b builtin) checkpointsOf(name string) (string, error) {
	if err := environment.CheckName(name); err != nil {
		return "", nonRetryable(err)
	}
	return filepath.Join(b.config.State, "environments", name), nil
}

// keepCheckpoint holds the records that a checkpoint has on this host, then stores it. Those on
// others are held already.
func (b builtin) keepCheckpoint(ctx context.Context, s environment.Stored) ([]environment.Stored, error) {
	defer activities.Beat(ctx)()
	dir, err := b.checkpointsOf(s.Environment)
	if err != nil {
		return nil, err
	}
	if err := protocol.CheckID(s.ID); err != nil {
		return nil, nonRetryable(err)
	}
	own := environment.Holding{Environment: s.Environment, Checkpoint: s.ID, Entries: s.On(b.config.Host)}
	if err := b.holdParts(ctx, own); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := durable.Replace(filepath.Join(dir, s.ID+".json"), raw); err != nil {
		return nil, err
	}
	return b.listCheckpoints(ctx, s.Environment)
}

// holdParts holds the records of what a checkpoint has on this host.
func (b builtin) holdParts(ctx context.Context, h environment.Holding) error {
	defer activities.Beat(ctx)()
	for _, e := range h.Entries {
		records := b.registry.Records()[activities.WorldOf(e.Action)]
		if records == nil {
			return fmt.Errorf("checkpoint %s: this worker has no world %s", h.Checkpoint, activities.WorldOf(e.Action))
		}
		held, err := records.Hold(ctx, e.Token, holderOf(h.Environment))
		if err == nil && !held {
			err = nonRetryable(fmt.Errorf("checkpoint %s: what step %s had kept was released before it was held", h.Checkpoint,
				e.Step))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// letGoParts ends the holds of what a checkpoint has on this host, and releases it.
func (b builtin) letGoParts(ctx context.Context, h environment.Holding) error {
	defer activities.Beat(ctx)()
	for _, e := range h.Entries {
		if err := b.letGo(ctx, h.Environment, e); err != nil {
			return fmt.Errorf("checkpoint %s, step %s: %w", h.Checkpoint, e.Step, err)
		}
	}
	return nil
}

// listCheckpoints lists what is stored of an environment, the newest first.
func (b builtin) listCheckpoints(_ context.Context, name string) ([]environment.Stored, error) {
	dir, err := b.checkpointsOf(name)
	if err != nil {
		return nil, err
	}
	return readCheckpoints(dir)
}

// readCheckpoints reads what a folder stores, the newest first.
func readCheckpoints(dir string) ([]environment.Stored, error) {
	files, err := filepath.Glob(filepath.Join(dir, "cp-*.json"))
	if err != nil {
		return nil, err
	}
	all := make([]environment.Stored, 0, len(files))
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var s environment.Stored
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, fmt.Errorf("%s is damaged: %w; restore it, or move it away: what it names is kept then for ever", file,
				err)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b environment.Stored) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

// dropCheckpoints ends the holds of checkpoints and releases their records on this host, then
// forgets them. Those on others are released already.
func (b builtin) dropCheckpoints(ctx context.Context, r environment.DropRequest) ([]environment.Stored, error) {
	defer activities.Beat(ctx)()
	dir, err := b.checkpointsOf(r.Environment)
	if err != nil {
		return nil, err
	}
	all, err := b.listCheckpoints(ctx, r.Environment)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if !slices.Contains(r.IDs, s.ID) {
			continue
		}
		own := environment.Holding{Environment: r.Environment, Checkpoint: s.ID, Entries: s.On(b.config.Host)}
		if err := b.letGoParts(ctx, own); err != nil {
			return nil, err
		}
		if err := os.Remove(filepath.Join(dir, s.ID+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return b.listCheckpoints(ctx, r.Environment)
}

// letGo releases the record of a step, unless a rollback of its task holds it: then retention does.
func (b builtin) letGo(ctx context.Context, name string, e activities.Entry) error {
	records := b.registry.Records()[activities.WorldOf(e.Action)]
	if records == nil {
		return fmt.Errorf("this worker has no world %s", activities.WorldOf(e.Action))
	}
	if err := records.EndHold(ctx, e.Token, holderOf(name)); err != nil {
		return err
	}
	err := b.registry.Release(ctx, b.host(), e)
	if app, is := errors.AsType[*temporal.ApplicationError](err); is && app.Type() == string(activities.Fenced) {
		return nil
	}
	return err
}
