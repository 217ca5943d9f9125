package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// sqlite.checkpoint changes nothing: it keeps a copy of the database, which goes with its undo,
// unless somebody else has come to need it, and with its release.

// keepParams are the parameters of sqlite.checkpoint.
type keepParams struct {
	Database string `json:"database" jsonschema:"the absolute path of the database file, below one of the worker's sqlite.roots"`
}

func keepSpec() activities.Spec {
	return activities.Spec{
		Name: keepName, Summary: "Keeps a whole SQLite database, for sqlite.restore.",
		Params: activities.ParamsSchema[keepParams](), UndoParams: []string{"database"},
		Outputs: map[string]string{
			"checkpoint": "the name of the checkpoint, for sqlite.restore",
			"bytes":      "how many bytes it takes",
		},
		Keys:      []activities.Key{{Prefix: keyPrefix, Param: "database", Path: true}},
		HostBound: true, Preflights: true, Risk: activities.Low, Strategy: activities.Snapshot,
		Undo: "The checkpoint is dropped; the database was never changed.",
		Redo: "It runs again: the checkpoint holds what the database holds then.",
	}
}

// checkpoints is the folder of the state that has a file for each checkpoint, by its name.
const checkpoints = "checkpoints"

func (w *world) keptFile(token string) string {
	return filepath.Join(w.State, checkpoints, nameOf(token))
}

// keptBytes is what the checkpoint of an entry takes.
func (w *world) keptBytes(e activities.Entry) int64 {
	info, err := os.Lstat(w.keptFile(e.Token))
	if err != nil {
		return 0
	}
	return info.Size()
}

func (c *call) dropKept() error {
	if err := os.Remove(c.keptFile(c.Entry.Token)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// kept is the content of journal.Applied of a checkpoint.
type kept struct {
	Digest string            `json:"digest"` // that of the file
	Result activities.Result `json:"result"`
}

func (c *call) planKeep() (change activities.Change, err error) {
	p, err := decodeParams[keepParams](c.Step.With)
	if err != nil {
		return change, err
	}
	path, err := c.locateThere(p.Database)
	if err != nil {
		return change, err
	}
	d, err := c.open(path) // refuses what is no database
	if err != nil {
		return change, err
	}
	return describeKeep(path), d.Close()
}

func describeKeep(path string) activities.Change {
	return activities.Change{
		Summary: "keep what " + path + " holds", Strategy: activities.Snapshot, Risk: activities.Low,
		Undo: "the checkpoint is dropped", Keys: []string{keyPrefix + path},
		Digest: activities.DigestOf([]byte(keepName), []byte(path)),
	}
}

// keep takes the checkpoint, unless an earlier attempt has.
func (c *call) keep(ctx context.Context) (result activities.Result, err error) {
	p, err := decodeParams[keepParams](c.Step.With)
	if err != nil {
		return result, err
	}
	rec := record{Owned: journal.Own(ctx, c.Entry), Want: c.Want}
	found, err := c.token.Read(journal.Record, &rec)
	if err == nil && !found {
		if err = c.token.CheckNotLost(false); err == nil {
			rec.Path, err = c.locateThere(p.Database)
		}
	}
	if err != nil {
		return result, err
	}
	var done kept
	if was, err := c.token.Read(journal.Applied, &done); err != nil || was {
		return done.Result, err
	}
	d, err := c.open(rec.Path)
	if err != nil {
		return result, err
	}
	defer d.Close()
	if !found {
		rec.ID = d.id
		change := describeKeep(rec.Path)
		if err = errors.Join(c.Approval.Judge(change), c.checkApproved(change.Digest)); err == nil {
			_, err = c.token.Create(journal.Record, &rec)
		}
		if err != nil {
			return result, err
		}
	}
	c.reach("recorded")
	if done, err = c.copyOut(ctx, d); err != nil {
		return result, errors.Join(explain(rec.Path, err), c.dropKept())
	}
	c.reach("copied")
	if err := c.token.CheckOpen(); err != nil {
		return result, err
	}
	_, err = c.token.Create(journal.Applied, &done)
	c.reach("applied")
	return done.Result, err
}

// copyOut copies the database as it is at one moment.
func (c *call) copyOut(ctx context.Context, d *database) (done kept, err error) {
	if err := d.beginReading(); err != nil {
		return done, err
	}
	if err := c.runQueries(ctx, d); err != nil {
		return done, err
	}
	file := c.keptFile(c.Entry.Token)
	if done.Digest, err = d.copyTo(ctx, file); err == nil {
		err = durable.SyncFolder(filepath.Dir(file))
	}
	if err != nil {
		return done, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return done, err
	}
	done.Result = activities.Result{
		Summary: fmt.Sprintf("kept what %s holds: %s", d.path, activities.CountOf(info.Size(), "byte")),
		Outputs: map[string]any{"checkpoint": nameOf(c.Entry.Token), "bytes": info.Size()},
		After:   activities.Digest("sha256:" + done.Digest),
	}
	return done, nil
}

// letGo drops the checkpoint, unless it is that of somebody else by now.
func (c *call) letGo() (activities.Undone, error) {
	name := nameOf(c.Entry.Token)
	keeper, isKept, err := c.token.Keeper()
	if err != nil {
		return activities.Undone{}, err
	}
	if isKept {
		return activities.Undone{Outcome: activities.Nothing,
			Observed: fmt.Sprintf("checkpoint %s is that of %s by now, and stays", name, keeper.Workflow)}, nil
	}
	return activities.Undone{Outcome: activities.Restored, Observed: "checkpoint " + name + " is dropped"},
		c.dropKept()
}

// observeKept reports whether the checkpoint is there.
func (c *call) observeKept() (seen activities.Observation, err error) {
	var done kept
	found, err := c.token.Read(journal.Applied, &done)
	if err != nil {
		return activities.Observation{State: activities.Unseen}, err
	}
	if found {
		_, err = os.Lstat(c.keptFile(c.Entry.Token))
	}
	if !found || errors.Is(err, fs.ErrNotExist) {
		return activities.Observation{State: activities.AsBefore,
			Detail: "there is no checkpoint " + nameOf(c.Entry.Token)}, nil
	}
	if err == nil {
		err = checkFile(c.keptFile(c.Entry.Token), done.Digest)
	}
	return activities.Observation{State: activities.AsLeft}, err
}
