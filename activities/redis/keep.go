package redis

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/internal/durable"
)

// keepAction is redis.checkpoint. It changes nothing: it keeps a file, which goes with its undo, unless
// somebody else has come to need it, and with its release.
type keepAction struct{ *world }

// keepParams are the parameters of redis.checkpoint.
type keepParams struct {
	Database string `json:"database" jsonschema:"the name of one of the worker's redis.databases"`
}

var keepSpec = activities.Spec{
	Name: "redis.checkpoint", Summary: "Keeps all keys of a Redis database as they are at one moment, for redis.restore.",
	Params: activities.ParamsSchema[keepParams](), UndoParams: []string{"database"},
	Outputs: map[string]string{
		"checkpoint": "the name of the checkpoint, for redis.restore",
		"bytes":      "how many bytes it takes",
		"keys":       "how many keys it has",
	},
	Keys:      []activities.Key{{Prefix: keyPrefix, Param: "database"}},
	HostBound: true, Preflights: true, Risk: activities.Low, Strategy: activities.Snapshot,
	Undo: "The checkpoint is dropped; the database was never changed.",
	Redo: "It runs again: the checkpoint holds what the database holds then.",
}

func (a *keepAction) Spec() activities.Spec { return keepSpec }

func (a *keepAction) reach(what string) { point.Reach("redis.checkpoint:" + what) }

// keepRecord is the document journal.Record.
type keepRecord struct {
	journal.Owned

	Want activities.Digest `json:"want,omitempty"`
}

// Preflight implements activities.Preflighter.
func (a *keepAction) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[keepParams](o.With)
	if err != nil {
		return err
	}
	return a.preflightWhole(ctx, o, compareParams{Database: p.Database})
}

// Touches implements activities.Toucher.
func (a *keepAction) Touches(ctx context.Context, o activities.Outlook) ([]activities.Touch, error) {
	return a.touch(ctx, o)
}

// Plan says what is kept.
func (a *keepAction) Plan(ctx context.Context, e activities.Entry, s activities.Step) (change activities.Change,
	err error) {
	if err := keyvalue.CheckPlaces(kind, s.Checks); err != nil {
		return change, err
	}
	t, err := a.openToken(e)
	if err == nil {
		err = t.CheckOpen()
	}
	if err != nil {
		return change, err
	}
	p, err := activities.DecodeParams[keepParams](s.With)
	if err != nil {
		return change, err
	}
	c, err := a.openWhole(ctx, e, p.Database)
	if err != nil {
		return change, err
	}
	defer c.end()
	return c.describeKeep(p), nil
}

func (c *connection) describeKeep(p keepParams) activities.Change {
	return activities.Change{
		Summary: "keep all keys of " + c.name, Strategy: activities.Snapshot, Risk: activities.Low,
		Undo: "the checkpoint is dropped", Keys: []string{keyPrefix + c.name},
		Digest: activities.DigestOf([]byte(keepSpec.Name), []byte(p.Database)),
		Facts:  append([]string{"other clients of the server wait while its keys are read"}, c.eviction()...),
	}
}

// Apply takes the checkpoint, unless an earlier attempt has.
func (a *keepAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	p, err := activities.DecodeParams[keepParams](s.With)
	if err != nil {
		return r, err
	}
	c, t, end, err := a.beginWhole(ctx, e, s, p.Database)
	if err != nil {
		return r, err
	}
	defer end()
	done, err := a.keep(c, t, e, p, want)
	if err != nil {
		return r, err
	}
	return done.Result, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, c.scene(done.Result))
}

func (a *keepAction) keep(c *connection, t *journal.Token, e activities.Entry, p keepParams,
	want activities.Digest) (done kept, err error) {
	var rec keepRecord
	found, err := t.Read(journal.Record, &rec)
	if err == nil && !found {
		err = t.CheckNotLost(false)
	}
	if err != nil {
		return done, err
	}
	if was, err := t.Read(journal.Applied, &done); err != nil || was {
		return done, err
	}
	if !found {
		change := c.describeKeep(p)
		if err := activities.Judge(c.ctx, change); err != nil {
			return done, err
		}
		if want != "" && want != change.Digest {
			return done, activities.Errorf(activities.StaleApproval, "the checkpoint is of another database than the one "+
				"that was approved")
		}
		rec = keepRecord{Owned: journal.Own(c.ctx, e), Want: want}
		if _, err := t.Create(journal.Record, &rec); err != nil {
			return done, err
		}
	}
	a.reach("recorded")
	if done, err = a.takeCheckpoint(c, t, e); err != nil {
		return done, err
	}
	a.reach("kept")
	_, err = t.Create(journal.Applied, &done)
	a.reach("applied")
	return done, err
}

// stagedPrefix begins the names of files that are to become checkpoints. They are the tickets of
// forwards: an undo removes them.
const stagedPrefix = "staged-"

// takeCheckpoint writes the file of a checkpoint.
func (a *keepAction) takeCheckpoint(c *connection, t *journal.Token, e activities.Entry) (done kept, err error) {
	if err := removeNamed(t, stagedPrefix, ""); err != nil { // of attempts that have ended
		return done, err
	}
	k, _, err := c.capture()
	if err != nil {
		return done, err
	}
	staged := filepath.Join(t.Dir(), stagedPrefix+newAttempt())
	defer os.Remove(staged)
	digest, size, err := writeFile(staged, k)
	if err != nil {
		return done, err
	}
	a.reach("staged")
	if err := t.CheckOpen(); err != nil {
		return done, err
	}
	file := a.keptFile(e.Token)
	if err := os.Rename(staged, file); errors.Is(err, fs.ErrNotExist) {
		return done, activities.Errorf(activities.Fenced, "token %s is undone: this forward came too late", e.Token)
	} else if err != nil {
		return done, err
	}
	return kept{Of: c.origin(), Digest: digest, Result: activities.Result{
		Summary: fmt.Sprintf("kept %s of %s: %s", activities.CountOf(len(k), "key"), c.name,
			activities.CountOf(size, "byte")),
		Outputs: map[string]any{"checkpoint": nameOf(e.Token), "bytes": size, "keys": len(k)},
		After:   activities.Digest("sha256:" + digest),
		Notes:   c.eviction(),
	}}, durable.SyncFolder(filepath.Dir(file))
}

// Undo drops the checkpoint, unless it is that of somebody else by now.
func (a *keepAction) Undo(_ context.Context, e activities.Entry, d activities.Decision) (u activities.Undone,
	err error) {
	t, err := a.openToken(e)
	if err != nil {
		return u, err
	}
	u, isOver, err := t.BeginUndo()
	if isOver || err != nil {
		return u, err
	}
	a.reach("undo-begun")
	if err := removeNamed(t, stagedPrefix, ""); err != nil {
		return u, err
	}
	a.reach("fenced")
	var rec keepRecord
	found, err := t.Read(journal.Record, &rec)
	if err != nil {
		return u, err
	}
	if !found {
		if err := t.CheckNotLost(d.Done); err != nil {
			return u, err
		}
		u = activities.Undone{Outcome: activities.Nothing, Observed: "no checkpoint was taken, and none can be any more"}
	} else if u, err = a.drop(t, e); err != nil {
		return u, err
	}
	_, err = t.Create(journal.Outcome, &u)
	a.reach("undone")
	return u, err
}

func (a *keepAction) drop(t *journal.Token, e activities.Entry) (u activities.Undone, err error) {
	name := nameOf(e.Token)
	keeper, isKept, err := t.Keeper()
	if err != nil {
		return u, err
	}
	if isKept {
		return activities.Undone{Outcome: activities.Nothing,
			Observed: fmt.Sprintf("checkpoint %s is that of %s by now, and stays", name, keeper.Workflow)}, nil
	}
	return activities.Undone{Outcome: activities.Restored, Observed: "checkpoint " + name + " is dropped"},
		removeFile(a.keptFile(e.Token))
}

// Observe reports whether the checkpoint is there, and whole.
func (a *keepAction) Observe(_ context.Context, e activities.Entry) (o activities.Observation, err error) {
	t, err := a.openToken(e)
	if err != nil {
		return o, err
	}
	var done kept
	found, err := t.Read(journal.Applied, &done)
	if err != nil {
		return activities.Observation{State: activities.Unseen}, err
	}
	if found {
		_, err = os.Lstat(a.keptFile(e.Token))
	}
	if !found || errors.Is(err, fs.ErrNotExist) {
		return activities.Observation{State: activities.AsBefore, Detail: "there is no checkpoint " + nameOf(e.Token)}, nil
	}
	if err == nil {
		_, err = readFile(a.keptFile(e.Token), done.Digest)
	}
	return activities.Observation{State: activities.AsLeft}, err
}

// Release drops the checkpoint.
func (a *keepAction) Release(_ context.Context, e activities.Entry) error {
	t, err := a.openToken(e)
	if err != nil {
		return err
	}
	if _, err := t.DecideReleasing(); err != nil {
		return err
	}
	if err := errors.Join(removeNamed(t, stagedPrefix, ""), removeFile(a.keptFile(e.Token))); err != nil {
		return err
	}
	for _, name := range []string{journal.Record, journal.Applied} {
		if err := t.Drop(name); err != nil {
			return err
		}
	}
	return t.MarkReleased()
}
