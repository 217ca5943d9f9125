package terraform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// keepAction is terraform.checkpoint. It changes nothing: what it keeps goes with its undo, unless
// somebody else has come to need it, and with its release.
type keepAction struct{ *world }

type keepParams struct {
	Dir string `json:"dir" jsonschema:"absolute path of the folder with the configuration; below a folder that the worker allows"`
}

// keepRecord says which folder a checkpoint is of.
type keepRecord struct {
	journal.Owned

	Dir string `json:"dir"`
}

// keys are those of an action on a configuration's folder.
func keys() []activities.Key {
	return []activities.Key{{Prefix: "terraform:", Param: "dir", Path: true}}
}

func (*keepAction) Spec() activities.Spec {
	return activities.Spec{
		Name:    KeepAction,
		Summary: "Keeps a Terraform configuration with its state, for terraform.restore.",
		Params:  activities.ParamsSchema[keepParams](), UndoParams: []string{"dir"},
		Outputs: map[string]string{
			"checkpoint": "the name of the checkpoint, for terraform.restore",
			"objects":    "how many objects the state has",
			"bytes":      "how many bytes it takes, encrypted; what another checkpoint has as well takes no more room",
		},
		Keys: keys(), HostBound: true, Preflights: true, Risk: activities.Low, Strategy: activities.Snapshot,
		Undo: "The checkpoint is dropped; nothing was ever changed.",
		Redo: "It runs again: the checkpoint holds what there is then.",
	}
}

func describeKeep(dir string) activities.Change {
	return activities.Change{
		Summary: "keep the configuration and the state of " + dir, Strategy: activities.Snapshot, Risk: activities.Low,
		Undo: "the checkpoint is dropped", Keys: []string{"terraform:" + dir},
		Digest: activities.DigestOf([]byte(KeepAction), []byte(dir)),
	}
}

// Plan says what would be kept; it does not start terraform.
func (a *keepAction) Plan(_ context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	t, err := a.token(e)
	if err == nil {
		err = t.CheckOpen()
	}
	if err != nil {
		return activities.Change{}, err
	}
	dir, err := a.decodeKeep(s)
	return describeKeep(dir), err
}

func (a *keepAction) decodeKeep(s activities.Step) (dir string, err error) {
	p, err := activities.DecodeParams[keepParams](s.With)
	if err == nil {
		err = a.checkInstalled()
	}
	if err == nil {
		dir, err = a.resolveFolder(p.Dir)
	}
	return dir, err
}

// Apply takes the checkpoint, unless an earlier attempt has.
func (a *keepAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (_ activities.Result, err error) {
	t, err := a.token(e)
	if err != nil {
		return activities.Result{}, err
	}
	defer a.clearLate(t, &err)
	unlock, err := t.Lock(ctx)
	if err != nil {
		return activities.Result{}, err
	}
	defer unlock()
	if err := t.CheckOpen(); err != nil {
		return activities.Result{}, err
	}
	var done record.DocKept
	if found, err := t.Read(journal.Applied, &done); err != nil || found {
		return done.Result, errors.Join(err, removePlainText(t))
	}
	dir, err := a.begin(ctx, t, e, s, want)
	if err != nil {
		return activities.Result{}, err
	}
	point.Reach("terraform.checkpoint:recorded")
	if _, err := run.AwaitAll(ctx, t, a.Ending, run.Patiently); err != nil {
		return activities.Result{}, err
	}
	if done, err = a.keep(ctx, t, e, dir); err != nil {
		return activities.Result{}, err
	}
	point.Reach("terraform.checkpoint:kept")
	if err := t.CheckOpen(); err != nil {
		return activities.Result{}, err
	}
	if _, err := t.Create(journal.Applied, &done); err != nil {
		return activities.Result{}, err
	}
	point.Reach("terraform.checkpoint:applied")
	return done.Result, errors.Join(removePlainText(t), activities.RunChecks(ctx, s.Checks, activities.Live,
		activities.Live, scene{dir, dir, a.host, a.host.CheckLimits()}))
}

// clearLate removes what a call may have left after the undo.
func (a *keepAction) clearLate(t *journal.Token, err *error) {
	if !run.IsSettled(t) {
		return
	}
	_, kept, kerr := t.Keeper()
	if *err = errors.Join(*err, kerr, removePlainText(t)); !kept && kerr == nil {
		*err = errors.Join(*err, a.records.DropKept(t))
	}
}

// begin makes the record of a checkpoint that may be taken, unless there is one.
func (a *keepAction) begin(ctx context.Context, t *journal.Token, e activities.Entry, s activities.Step,
	want activities.Digest) (dir string, err error) {
	var rec keepRecord
	if found, err := t.Read(journal.Record, &rec); err != nil || found {
		return rec.Dir, err
	}
	if err := t.CheckNotLost(false); err != nil {
		return "", err
	}
	if dir, err = a.decodeKeep(s); err != nil {
		return "", err
	}
	change := describeKeep(dir)
	if want != "" && want != change.Digest {
		return "", staleApproval(dir)
	}
	if err := activities.Judge(ctx, change); err != nil {
		return "", err
	}
	_, err = t.Create(journal.Record, &keepRecord{Owned: journal.Own(ctx, e), Dir: dir})
	return dir, err
}

// keep keeps the configuration and the state as they are at one moment.
func (a *keepAction) keep(ctx context.Context, t *journal.Token, e activities.Entry,
	dir string) (done record.DocKept, err error) {
	const tries = 3
	for range tries {
		k, now, drifted, err := a.read(ctx, e, dir)
		if err != nil {
			return done, err
		}
		if k == nil {
			continue
		}
		if done.Content, err = a.records.Keep(t, *k); err != nil {
			return done, err
		}
		objects := len(now.Managed())
		done.Result = activities.Result{
			Summary: fmt.Sprintf("kept %s with %s and %s", dir, activities.CountOf(len(k.Files), "file"),
				activities.CountOf(objects, "object")),
			Outputs: map[string]any{"checkpoint": nameOf(e.Token), "objects": objects, "bytes": record.BytesOf(t)},
			After:   activities.DigestOf([]byte(done.Content)),
		}
		for _, address := range drifted {
			done.Result.Notes = append(done.Result.Notes,
				address+": it is not as the state says; a restore makes it as the state says")
		}
		if len(k.Unsettled) > 0 {
			done.Result.Notes = append(done.Result.Notes, "the checkpoint is of what the configuration does not make: "+
				"applying it would change "+strings.Join(k.Unsettled, ", ")+", and so would a restore")
		}
		return done, nil
	}
	return done, activities.Errorf(activities.ActionFailed,
		"%s or its state is changed all the time: there is no moment to keep", dir)
}

// read reads what a checkpoint keeps; nil if somebody has changed it meanwhile.
func (a *keepAction) read(ctx context.Context, e activities.Entry, dir string) (k *record.Kept, now *state.State,
	drifted []string, err error) {
	if err := configuration.CheckDefaultWorkspace(dir); err != nil {
		return nil, nil, nil, err
	}
	b, err := configuration.ReadFolder(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	err = a.underEach(b, func(under configuration.Bundle) (err error) {
		k = &record.Kept{Dir: dir, Files: b.Files, Made: under}
		now, drifted, err = a.readUnder(ctx, e, k)
		return err
	})
	if err != nil || now == nil {
		return nil, nil, nil, err
	}
	if k.Places, err = configuration.StateNames(dir); err != nil {
		return nil, nil, nil, err
	}
	again, err := configuration.ReadFolder(dir)
	if err != nil || k.Files.Digest() != configuration.Files(again.Files).Digest() {
		return nil, nil, nil, err
	}
	return k, now, drifted, nil
}

// readUnder reads the state under a configuration; nil if somebody has changed it meanwhile.
func (a *keepAction) readUnder(ctx context.Context, e activities.Entry, k *record.Kept) (now *state.State,
	drifted []string, err error) {
	ws, err := a.openWorkspace(ctx, e, "forward", k.Made, 0)
	if err != nil {
		return nil, nil, err
	}
	if now, err = ws.PullState(ctx); err != nil {
		return nil, nil, err
	}
	k.State = now.Raw
	if ws, err = a.findMaker(ctx, e, ws, now, k); err != nil {
		return nil, nil, err
	}
	k.Made.LockLike(configuration.ReadLock(ws.Dir))
	if drifted, err = ws.RefreshLocked(ctx); err != nil {
		return nil, nil, err
	}
	after, err := ws.PullState(ctx)
	if err != nil || after.Serial != now.Serial || after.Lineage != now.Lineage || !after.Same(now) {
		return nil, nil, err
	}
	return now, drifted, nil
}

// findMaker finds the configuration that made the state, and returns a workspace of it.
func (a *keepAction) findMaker(ctx context.Context, e activities.Entry, ws *workspace.Workspace, now *state.State,
	k *record.Kept) (*workspace.Workspace, error) {
	if now.IsEmpty() {
		return ws, nil
	}
	known, err := a.records.FindKnown(now)
	if err != nil {
		return nil, err
	}
	if known != nil {
		k.Made = *known
		k.Made.Dir = k.Dir
		return a.openWorkspace(ctx, e, "prior", k.Made.Arrived(), 0)
	}
	if k.Unsettled, err = findUnsettled(ctx, ws, now); err != nil || len(k.Unsettled) > 0 {
		return ws, err
	}
	made := k.Made
	made.LockLike(configuration.ReadLock(ws.Dir))
	return ws, a.records.KeepKnown(now, made)
}

// findUnsettled lists what a configuration would change in the state that it is said to have made.
func findUnsettled(ctx context.Context, ws *workspace.Workspace, now *state.State) ([]string, error) {
	said, err := ws.Plan(ctx, tfexec.Refresh(false))
	if err != nil {
		return nil, err
	}
	tainted := now.Tainted()
	changed := slices.DeleteFunc(addressesOf(said.Actions()), func(address string) bool { return tainted[address] })
	if said.Outputs {
		changed = append(changed, "outputs")
	}
	slices.Sort(changed)
	return changed, nil
}

// Undo drops the checkpoint, unless it is that of somebody else by now.
func (a *keepAction) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (_ activities.Undone,
	err error) {
	t, err := a.token(e)
	if err != nil {
		return activities.Undone{}, err
	}
	defer a.clearLate(t, &err)
	u, isOver, err := t.BeginUndo()
	if isOver || err != nil {
		return u, err
	}
	point.Reach("terraform.checkpoint:closed")
	if _, err := run.AwaitAll(ctx, t, a.Ending, run.Interrupting); err != nil {
		return u, err
	}
	var rec keepRecord
	found, err := t.Read(journal.Record, &rec)
	if err == nil && !found {
		err = t.CheckNotLost(d.Done)
	}
	if err != nil {
		return u, err
	}
	keeper, isKept, err := t.Keeper()
	if err != nil {
		return u, err
	}
	u = activities.Undone{Outcome: activities.Nothing, Observed: "no checkpoint was made"}
	switch {
	case isKept:
		u.Observed = fmt.Sprintf("checkpoint %s is that of %s by now, and stays", nameOf(e.Token), keeper.Workflow)
	case found:
		if err := a.records.DropKept(t); err != nil {
			return u, err
		}
		u = activities.Undone{Outcome: activities.Restored, Observed: "checkpoint " + nameOf(e.Token) + " is dropped"}
	}
	point.Reach("terraform.checkpoint:dropped")
	_, err = t.Create(journal.Outcome, &u)
	return u, err
}

// Observe reports whether the checkpoint is there, and whole.
func (a *keepAction) Observe(_ context.Context, e activities.Entry) (activities.Observation, error) {
	t, err := a.token(e)
	if err != nil {
		return activities.Observation{}, err
	}
	var done record.DocKept
	found, err := t.Read(journal.Applied, &done)
	if err != nil || !found || record.BytesOf(t) == 0 {
		return activities.Observation{State: activities.AsBefore, Detail: "there is no checkpoint " + nameOf(e.Token)}, err
	}
	_, err = a.records.ReadKept(t, done.Content)
	return activities.Observation{State: activities.AsLeft}, err
}

// Release drops the checkpoint.
func (a *keepAction) Release(_ context.Context, e activities.Entry) error {
	t, err := a.token(e)
	if err != nil {
		return err
	}
	if _, err := t.DecideReleasing(); err != nil {
		return err
	}
	return errors.Join(a.dropRecord(t), t.Drop(journal.Applied), t.MarkReleased())
}

// Preflight implements activities.Preflighter.
func (a *keepAction) Preflight(ctx context.Context, o activities.Outlook) error {
	return a.preflight(ctx, o)
}

// Touches implements activities.Toucher.
func (a *keepAction) Touches(_ context.Context, o activities.Outlook) ([]activities.Touch, error) {
	return a.touches(dirIn(o.With), nil)
}

// dirIn is the folder that parameters name.
func dirIn(with json.RawMessage) string {
	var p keepParams
	_ = json.Unmarshal(with, &p) // a preflight says what is wrong with them
	return p.Dir
}
