package terraform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/salvage"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// Apply applies the configuration once. A later attempt waits for the terraform of an earlier one
// and continues where that ended: with its result, or by planning and applying what is missing.
func (a *applyAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (_ activities.Result, err error) {
	t, err := a.token(e)
	if err != nil {
		return activities.Result{}, err
	}
	defer clearLate(t, &err)
	unlock, err := t.Lock(ctx)
	if err != nil {
		return activities.Result{}, err
	}
	defer unlock()
	if err := t.CheckOpen(); err != nil {
		return activities.Result{}, err
	}
	if result, found, err := a.records.ReadApplied(t); err != nil || found {
		return result, errors.Join(err, removePlainText(t))
	}
	r, c, begun, err := a.records.Read(ctx, t)
	if err != nil {
		return activities.Result{}, err
	}
	if begun {
		return a.resume(ctx, e, s, r, c)
	}
	return a.startApply(ctx, e, s, want)
}

// startApply writes the record and applies.
func (a *applyAction) startApply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	pr, r, err := a.choosePlan(ctx, e, s, want)
	if err != nil {
		return activities.Result{}, err
	}
	if err := pr.ws.Token.CheckOpen(); err != nil {
		return activities.Result{}, err
	}
	r.Owned = journal.Own(ctx, e)
	if _, err := pr.ws.Token.Create(journal.Record, r); err != nil {
		return activities.Result{}, err
	}
	point.Reach("terraform.apply:recorded")
	if r.Back == record.Nowhere {
		return a.finishApply(ctx, pr.ws, s, *r, pr.bundle, stream.Report{}, pr.notes...)
	}
	said, err := pr.ws.ApplyPlan(ctx, pr.file)
	if err != nil {
		if want != "" && !said.Begun && strings.Contains(said.Failure(), "Saved plan is stale") {
			// Nothing was touched: the next Apply must not take this record for started work.
			if err := pr.ws.Token.Drop(journal.Record); err != nil {
				return activities.Result{}, err
			}
			return activities.Result{}, staleApproval(r.Dir)
		}
		return activities.Result{}, err
	}
	point.Reach("terraform.apply:applied")
	return a.finishApply(ctx, pr.ws, s, *r, pr.bundle, said, pr.notes...)
}

// choosePlan returns the plan to apply: the one that was shown, or a new one with the wanted
// digest, or any.
func (a *applyAction) choosePlan(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (*planning, *record.Record, error) {
	if want != "" && e.Action == Action {
		if pr, r, err := a.findOffer(ctx, e, s, want); err != nil || pr != nil {
			if err == nil {
				err = activities.Judge(ctx, activities.Change{Risk: activities.High, Unchanged: r.Unchanged})
			}
			return pr, r, err
		}
	}
	pr, err := a.prepare(ctx, e, s)
	if err != nil {
		return nil, nil, err
	}
	if err := activities.Judge(ctx, pr.describeChange("", "")); err != nil {
		return nil, nil, err
	}
	if want == "" && pr.regression != "" && !pr.to.isAccepted() {
		return nil, nil, regressedError(pr.bundle.Dir, pr.regression)
	}
	digest, err := pr.digest()
	if err != nil {
		return nil, nil, err
	}
	if want != "" && digest != want {
		return nil, nil, staleApproval(pr.bundle.Dir)
	}
	r, err := a.record(ctx, pr, want)
	return pr, &r, err
}

// resume continues after an attempt that has written the record.
func (a *applyAction) resume(ctx context.Context, e activities.Entry, s activities.Step, r record.Record,
	c record.Contents) (activities.Result, error) {
	if err := a.checkInstalled(); err != nil {
		return activities.Result{}, err
	}
	t, err := a.token(e)
	if err != nil {
		return activities.Result{}, err
	}
	last, err := run.AwaitAll(ctx, t, a.Ending, run.Patiently)
	if err != nil {
		return activities.Result{}, err
	}
	unsaved, err := salvage.MoveUnsaved(t)
	if err != nil {
		return activities.Result{}, err
	}
	ws, err := a.openWorkspace(ctx, e, "forward", c.Forward, 0)
	if err != nil {
		return activities.Result{}, err
	}
	if err := salvage.PushUnsaved(ctx, ws, unsaved); err != nil {
		return activities.Result{}, err
	}
	now, err := ws.PullState(ctx)
	if err != nil {
		return activities.Result{}, err
	}
	if err := r.CheckRetry(now); err != nil {
		return activities.Result{}, err
	}
	lost, err := salvage.SettleAll(ctx, ws)
	if err != nil {
		return activities.Result{}, err
	}
	if lost, err = salvage.AdoptCompleted(ctx, ws, lost); err != nil {
		return activities.Result{}, err
	}
	if unknown := salvage.UnknowableAddresses(lost); len(unknown) > 0 {
		return activities.Result{},
			activities.Errorf(activities.UnknownOutcome, "terraform was killed while it made %s: whether they exist "+
				"cannot be known, and making them again could double them", strings.Join(unknown, ", "))
	}
	if r.Back == record.Nowhere {
		return a.finishApply(ctx, ws, s, r, c.Forward, stream.Report{})
	}
	if last.AppliedAll() {
		said, err := stream.ReadReport(run.Stdout(last.Folder()))
		if err != nil {
			return activities.Result{}, err
		}
		return a.finishApply(ctx, ws, s, r, c.Forward, said, "the result of an earlier attempt")
	}
	said, err := applyRest(ctx, ws, r)
	if err != nil {
		return activities.Result{}, err
	}
	return a.finishApply(ctx, ws, s, r, c.Forward, said,
		"an earlier attempt had begun; what was missing was planned and applied again")
}

// applyRest plans and applies what an earlier attempt left to do.
func applyRest(ctx context.Context, ws *workspace.Workspace, r record.Record) (stream.Report, error) {
	file := filepath.Join(ws.Dir, planFile)
	for {
		now, err := ws.PullState(ctx)
		if err != nil {
			return stream.Report{}, err
		}
		anew, err := salvage.PrepareCutOff(ctx, ws, now, func(string) bool { return true })
		if err != nil {
			return stream.Report{}, err
		}
		said, err := ws.Plan(ctx, append(salvage.ReplaceOptions(anew), tfexec.Out(file), tfexec.Destroy(r.Destroys))...)
		if err != nil || said.IsUnchanged() {
			return said, err
		}
		_, actions, err := ws.ShowPlan(ctx, file)
		if err != nil {
			return said, err
		}
		for _, rest := range actions {
			if !r.PlansFor(rest.Address) {
				return said,
					activities.Errorf(activities.UnknownOutcome,
						"an earlier attempt had begun, and what is missing is no longer what was "+
							"planned: %s is to be changed too (%s)", rest.Address, rest.Kind)
			}
		}
		if said, err = ws.ApplyPlan(ctx, file); err == nil {
			point.Reach("terraform.apply:applied")
			return said, nil
		}
		if !salvage.IsRefusal(said, anew) {
			return said, err
		}
	}
}

// finishApply stores what the step has left, checks it and makes its result.
func (a *applyAction) finishApply(ctx context.Context, ws *workspace.Workspace, s activities.Step, r record.Record,
	b configuration.Bundle, said stream.Report, notes ...string) (activities.Result, error) {
	now, err := ws.PullState(ctx)
	if err != nil {
		return activities.Result{}, err
	}
	if r.Checkpoint != "" {
		if err := a.placeFiles(ctx, ws.Token, r); err != nil {
			return activities.Result{}, err
		}
	}
	if err := a.dropBackup(ctx, ws, now); err != nil {
		return activities.Result{}, err
	}
	if err := ws.Token.CheckOpen(); err != nil {
		return activities.Result{}, err // what was read may be half undone
	}
	if err := a.writeMark(ws, record.MarkOf(now)); err != nil {
		return activities.Result{}, err
	}
	refused, err := salvage.ListRefusals(ws)
	if err != nil {
		return activities.Result{}, err
	}
	ran, err := salvage.ListProvisionings(ws.Token)
	if err != nil {
		return activities.Result{}, err
	}
	if err := a.records.WriteLeft(ws.Token, record.LeftState{Ran: ran, Refused: refused}, now); err != nil {
		return activities.Result{}, err
	}
	point.Reach("terraform.apply:left")
	b.LockLike(configuration.ReadLock(ws.Dir))
	if err := a.records.KeepKnown(now, b); err != nil {
		return activities.Result{}, err
	}
	if err := activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live,
		scene{b.Dir, b.Dir, a.host, a.host.CheckLimits()}); err != nil {
		return activities.Result{}, err
	}
	result := activities.Result{
		Summary: fmt.Sprintf("%d added, %d changed, %d destroyed", said.Counts.Add, said.Counts.Change, said.Counts.Remove) +
			countTransitions(r.Planned, " imported", " moved", " forgotten"),
		Outputs: shownOutputs(now, said.Counts),
		After:   now.Digest(),
		Notes:   append(notes, refused...),
	}
	if r.Checkpoint != "" {
		if err := a.addArrival(ctx, ws.Token, r, now, &result); err != nil {
			return activities.Result{}, err
		}
	}
	if _, err := salvage.SettleAll(ctx, ws); err != nil {
		return activities.Result{}, err
	}
	if err := a.records.WriteApplied(ws.Token, &result); err != nil {
		return activities.Result{}, err
	}
	point.Reach("terraform.apply:done")
	return result, removePlainText(ws.Token)
}

// dropBackup removes the backup beside a local state that some commands always make (taint, state
// push), unless there was one before the step.
func (a *applyAction) dropBackup(ctx context.Context, ws *workspace.Workspace, now *state.State) error {
	if !ws.HasBackupFile() {
		return nil
	}
	r, _, _, err := a.records.Read(ctx, ws.Token)
	if err != nil || r.Backup {
		return err
	}
	return ws.Sweep(ctx, run.SweepJob{Path: ws.StateFile, Lineage: now.Lineage, Backup: true})
}

// removePlainText removes what a finished apply left in plain text, including that of an
// interrupted observation. A concurrent one fails and is retried.
func removePlainText(t *journal.Token) error {
	said, err := filepath.Glob(filepath.Join(run.Folder(t), "*", "std*"))
	for _, f := range said {
		err = errors.Join(err, os.Remove(f))
	}
	return errors.Join(err, workspace.Remove(t, "forward", "forward.home", "prior", "prior.home", "observe-*"))
}

// shownOutputs are the outputs that may be shown, and the counts; an output of the same name wins.
func shownOutputs(s *state.State, n stream.Counts) map[string]any {
	shown := map[string]any{"added": n.Add, "changed": n.Change, "destroyed": n.Remove}
	for name, o := range s.Outputs {
		if o.Sensitive {
			delete(shown, name)
			continue
		}
		var v any
		if json.Unmarshal(o.Value, &v) == nil {
			shown[name] = v
		}
	}
	return shown
}
