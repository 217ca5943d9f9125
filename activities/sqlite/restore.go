package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// sqlite.restore overwrites the database with a checkpoint, in one transaction: the mark of the
// step is written into a copy of the checkpoint first, and comes with it. What the database held
// before is copied once nobody else can write, as by a step of sqlite.exec that changes the schema,
// and is put back in the same way.

// restoreParams are the parameters of sqlite.restore and of sqlite.verify.
type restoreParams struct {
	Database   string `json:"database"   jsonschema:"the absolute path of the database file, below one of the worker's sqlite.roots"`
	Checkpoint string `json:"checkpoint" jsonschema:"the checkpoint of it: an output of sqlite.checkpoint"`
}

func restoreSpec() activities.Spec {
	return activities.Spec{
		Name: restoreName,
		Summary: "Makes an SQLite database hold what a checkpoint has kept of it, exactly: rows, schema and settings, in " +
			"the same file.",
		Params: activities.ParamsSchema[restoreParams](), UndoParams: []string{"database", "checkpoint"},
		Outputs:   map[string]string{"changed": "how many tables, other objects and settings were put back"},
		Keys:      []activities.Key{{Prefix: keyPrefix, Param: "database", Path: true}},
		HostBound: true, Preflights: true, Risk: activities.High, Strategy: activities.Snapshot,
		Undo: "What the database held before is kept, and put back, unless somebody has changed anything in it since.",
		Redo: "It runs again: the database holds what the checkpoint has, as long as that is kept.",
	}
}

func (c *call) planRestore() (change activities.Change, err error) {
	p, err := decodeParams[restoreParams](c.Step.With)
	if err != nil {
		return change, err
	}
	path, err := c.locateThere(p.Database)
	if err != nil {
		return change, err
	}
	from, err := c.openKept(p.Checkpoint, path)
	if err != nil {
		return change, err
	}
	defer from.Close()
	wanted, err := from.content()
	if err != nil {
		return change, explain(from.path, err)
	}
	now, err := c.contentNow(path)
	if err != nil {
		return change, err
	}
	return describeRestore(path, p.Checkpoint, now, wanted)
}

// contentNow reads the whole database at a path, as it is at one moment.
func (c *call) contentNow(path string) (now content, err error) {
	d, err := c.open(path)
	if err != nil {
		return now, err
	}
	defer d.Close()
	if err = d.beginReading(); err == nil {
		now, err = d.content()
	}
	return now, explain(path, err)
}

func describeRestore(path, checkpoint string, now, wanted content) (change activities.Change, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return change, err
	}
	lines := compareContent(now, wanted)
	change = activities.Change{
		Summary: fmt.Sprintf("put %s back to %s, from which it differs in %s", path, checkpoint,
			activities.CountOf(len(lines), "place")),
		Diff:     activities.HeadDiff(strings.Join(lines, "\n"), activities.MaxDiff),
		Strategy: activities.Snapshot, Risk: activities.High, Unchanged: len(lines) == 0,
		Undo: "what it holds now is kept, and put back, unless somebody has changed anything in it since",
		Keys: []string{keyPrefix + path},
		Digest: activities.DigestOf([]byte(restoreName), []byte(path), []byte(checkpoint), []byte(now.digest()),
			[]byte(wanted.digest())),
		Facts: []string{"everything that has changed since the checkpoint goes, whoever has changed it",
			"the whole file is copied first: " + activities.CountOf(info.Size(), "byte")},
	}
	if change.Unchanged {
		change.Summary = fmt.Sprintf("leave %s: it holds what %s has", path, checkpoint)
	}
	return change, nil
}

func (c *call) wantedFile(attempt string) string {
	return filepath.Join(c.token.Dir(), wantedName+attempt)
}

// restoring is an attempt of sqlite.restore.
type restoring struct {
	*call
	restoreParams

	rec    record
	judged bool
	mark   mark
	wanted *database // what it is to become
	effect effect
	sealed bool // the effect's store
}

// restoreOnce makes the database hold what a checkpoint has.
func (c *call) restoreOnce(ctx context.Context, d *database, p restoreParams, rec record,
	judged bool) (none activities.Result, err error) {
	if err := c.removeFiles(); err != nil { // of attempts that have not committed
		return none, err
	}
	r := &restoring{call: c, restoreParams: p, rec: rec, judged: judged, mark: mark{Attempt: rand.Text()}}
	if err := r.prepare(); err != nil {
		return none, errors.Join(err, c.removeFiles())
	}
	defer r.wanted.Close()
	err = c.overwrite(ctx, d, r.wanted.Conn, func(now *database) error { return r.capture(ctx, now) })
	if err != nil {
		err = explain(d.path, err)
		if !r.sealed {
			err = errors.Join(err, r.effect.store.Close(), c.removeFiles())
		}
		return none, err
	}
	c.reach("committed")
	return c.confirm(d, r.mark)
}

// prepare makes a copy of the checkpoint, in which no step has a mark that is over.
func (r *restoring) prepare() (err error) {
	if r.wanted, err = r.unpack(r.Checkpoint, r.rec.Path, r.wantedFile(r.mark.Attempt)); err != nil {
		return err
	}
	if err = r.removeOldMarks(); err == nil {
		r.effect.After, err = r.wanted.content()
	}
	if err == nil {
		r.effect.store, err = newStore(r.rowsFile(r.mark.Attempt))
	}
	if err != nil {
		err = errors.Join(explain(r.rec.Path, err), r.wanted.Close())
	}
	return err
}

// capture keeps what the database holds, and marks what it is about to become, if the restore is the
// one that may be made.
func (r *restoring) capture(ctx context.Context, now *database) (err error) {
	e := &r.effect
	if err := r.token.CheckOpen(); err != nil {
		return err
	}
	r.reach("locked")
	if e.Before, err = now.content(); err != nil {
		return err
	}
	change, err := describeRestore(r.rec.Path, r.Checkpoint, e.Before, e.After)
	if err == nil && !r.judged {
		err = errors.Join(r.Approval.Judge(change), r.checkApproved(change.Digest))
	}
	if err == nil {
		err = r.runQueries(ctx, r.wanted)
	}
	if err != nil {
		return err
	}
	changed := len(compareContent(e.Before, e.After))
	e.Private = r.Private
	e.Result = activities.Result{
		Summary: fmt.Sprintf("%s holds what %s has; before, it differed in %s", r.rec.Path, r.Checkpoint,
			activities.CountOf(changed, "place")),
		Outputs: map[string]any{"changed": changed}, After: change.Digest,
	}
	if e.Checkpoint, err = now.copyTo(ctx, r.checkpointFile(r.mark.Attempt)); err != nil {
		return err
	}
	r.reach("copied")
	if err := e.noteLeft(r.wanted); err != nil {
		return err
	}
	r.sealed = true
	if r.mark.Digest, err = e.store.seal(e.notes); err != nil {
		return err
	}
	r.reach("captured")
	if _, err := r.token.Create(journal.Record, &r.rec); err != nil {
		return err
	}
	r.reach("recorded")
	if err := r.wanted.mark(r.Entry.Token, r.mark); err != nil {
		return err
	}
	r.reach("marked")
	return r.token.CheckOpen()
}

// removeOldMarks removes from the copy the marks of steps that are over: nobody else would do so.
func (r *restoring) removeOldMarks() error {
	there, err := r.wanted.hasMarks()
	if err != nil || !there {
		return err
	}
	var tokens []string
	err = run(r.wanted.Conn, "SELECT token FROM main."+markers, nil, func(q *sqlite.Stmt) error {
		tokens = append(tokens, q.ColumnText(0))
		return nil
	})
	for _, token := range tokens {
		var over bool
		if err == nil {
			over, err = r.isOver(token)
		}
		if err == nil && over {
			err = r.wanted.unmark(token)
		}
	}
	return err
}

// isOver reports whether a token was undone or released; of that of another journal nothing is
// known.
func (r *restoring) isOver(token string) (bool, error) {
	t, err := r.journal.Token(token)
	if activities.TypeOf(err) == activities.Refused {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, ended, err := t.Undone()
	if err != nil || ended {
		return ended, err
	}
	fate, err := t.Fate()
	return fate == journal.Releasing, err
}
