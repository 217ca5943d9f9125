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
)

// Apply applies the configuration once. A later attempt waits for the terraform of an earlier one and continues where that
// ended: with its result, or by planning and applying what is missing.
func (a *applyAction) Apply(ctx context.Context, e activities.Entry, s activities.Step, want activities.Digest) (_ activities.Result, err error) {
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
	if result, found, err := a.readApplied(t); err != nil || found {
		return result, errors.Join(err, removePlainText(t))
	}
	_, c, begun, err := a.readRecord(ctx, t)
	if err != nil {
		return activities.Result{}, err
	}
	if begun {
		return a.resume(ctx, e, s, c)
	}
	return a.startApply(ctx, e, s, want)
}

// startApply writes the record and applies.
func (a *applyAction) startApply(ctx context.Context, e activities.Entry, s activities.Step, want activities.Digest) (activities.Result, error) {
	pr, r, err := a.choosePlan(ctx, e, s, want)
	if err != nil {
		return activities.Result{}, err
	}
	if err := pr.ws.token.CheckOpen(); err != nil {
		return activities.Result{}, err
	}
	r.Owned = journal.Own(ctx, e)
	if _, err := pr.ws.token.Create(journal.Record, r); err != nil {
		return activities.Result{}, err
	}
	point.Reach("terraform.apply:recorded")
	if r.Unchanged {
		return a.finishApply(ctx, pr.ws, s, pr.bundle, report{}, pr.notes...)
	}
	said, err := pr.ws.applyPlan(ctx, pr.file)
	if err != nil {
		if want != "" && !said.Begun && strings.Contains(said.failure(), "Saved plan is stale") {
			// Nothing was touched: the next Apply must not take this record for started work.
			if err := pr.ws.token.Drop(journal.Record); err != nil {
				return activities.Result{}, err
			}
			return activities.Result{}, staleApproval(r.Dir)
		}
		return activities.Result{}, err
	}
	point.Reach("terraform.apply:applied")
	return a.finishApply(ctx, pr.ws, s, pr.bundle, said, pr.notes...)
}

// choosePlan returns the plan to apply: the one that was shown, or a new one with the wanted digest, or any.
func (a *applyAction) choosePlan(ctx context.Context, e activities.Entry, s activities.Step, want activities.Digest) (*planning, *record, error) {
	if want != "" {
		if pr, r, err := a.findOffer(ctx, e, s, want); err != nil || pr != nil {
			return pr, r, err
		}
	}
	pr, err := a.prepare(ctx, e, s)
	if err != nil {
		return nil, nil, err
	}
	if want != "" {
		digest, _, err := pr.digest(ctx)
		if err != nil {
			return nil, nil, err
		}
		if digest != want {
			return nil, nil, staleApproval(pr.bundle.Dir)
		}
	}
	r, err := pr.record(ctx, want)
	return pr, &r, err
}

// resume continues after an attempt that has written the record.
func (a *applyAction) resume(ctx context.Context, e activities.Entry, s activities.Step, c secretParts) (activities.Result, error) {
	if err := a.checkInstalled(); err != nil {
		return activities.Result{}, err
	}
	t, err := a.token(e)
	if err != nil {
		return activities.Result{}, err
	}
	last, err := a.awaitAll(ctx, t, false)
	if err != nil {
		return activities.Result{}, err
	}
	unsaved, err := moveErrands(t)
	if err != nil {
		return activities.Result{}, err
	}
	ws, err := a.workspace(ctx, e, "forward", c.Forward, 0)
	if err != nil {
		return activities.Result{}, err
	}
	if err := ws.pushErrands(ctx, unsaved); err != nil {
		return activities.Result{}, err
	}
	lost, err := a.settleAll(ctx, ws)
	if err != nil {
		return activities.Result{}, err
	}
	if lost, err = ws.adoptMade(ctx, lost); err != nil {
		return activities.Result{}, err
	}
	if unknown := unknowableAddresses(lost); len(unknown) > 0 {
		return activities.Result{}, activities.Errorf(activities.UnknownOutcome, "terraform was killed while it made %s: whether they exist "+
			"cannot be known, and making them again could double them", strings.Join(unknown, ", "))
	}
	if last.appliedAll() {
		said, err := readReport(stdoutOf(last.dir()))
		if err != nil {
			return activities.Result{}, err
		}
		return a.finishApply(ctx, ws, s, c.Forward, said, "the result of an earlier attempt")
	}
	said, err := ws.applyRest(ctx)
	if err != nil {
		return activities.Result{}, err
	}
	return a.finishApply(ctx, ws, s, c.Forward, said, "an earlier attempt had begun; what was missing was planned and applied again")
}

// applyRest plans and applies what an earlier attempt left to do.
func (ws *workspace) applyRest(ctx context.Context) (report, error) {
	file := filepath.Join(ws.dir, planFile)
	for {
		now, err := ws.pullState(ctx)
		if err != nil {
			return report{}, err
		}
		anew, err := ws.prepareCutOff(ctx, now, func(string) bool { return true })
		if err != nil {
			return report{}, err
		}
		said, err := ws.plan(ctx, append(replaceOptions(anew), tfexec.Out(file))...)
		if err != nil || said.unchanged() {
			return said, err
		}
		if said, err = ws.applyPlan(ctx, file); err == nil {
			point.Reach("terraform.apply:applied")
			return said, nil
		}
		if !isRefusal(said, anew) {
			return said, err
		}
	}
}

// finishApply stores what the step has left, checks it and makes its result.
func (a *applyAction) finishApply(ctx context.Context, ws *workspace, s activities.Step, b bundle, said report, notes ...string) (activities.Result, error) {
	now, err := ws.pullState(ctx)
	if err != nil {
		return activities.Result{}, err
	}
	if err := ws.dropBackup(ctx, now); err != nil {
		return activities.Result{}, err
	}
	if err := ws.token.CheckOpen(); err != nil {
		return activities.Result{}, err // what was read may be half undone
	}
	sealed, err := a.seal.encrypt(docLeft, now.raw)
	if err != nil {
		return activities.Result{}, err
	}
	refused, err := ws.refusals()
	if err != nil {
		return activities.Result{}, err
	}
	l := resultState{Digest: now.digest(), Lineage: now.Lineage, Serial: now.Serial, Refused: refused, Sealed: sealed}
	if _, err := ws.token.Create(docLeft, &l); err != nil {
		return activities.Result{}, err
	}
	point.Reach("terraform.apply:left")
	b.lockLike(readLock(ws.dir))
	if err := a.keepKnown(now, b); err != nil {
		return activities.Result{}, err
	}
	if err := activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{b.Dir, b.Dir}); err != nil {
		return activities.Result{}, err
	}
	result := activities.Result{
		Summary: fmt.Sprintf("%d added, %d changed, %d destroyed", said.Counts.Add, said.Counts.Change, said.Counts.Remove),
		Outputs: now.shownOutputs(said.Counts),
		After:   l.Digest,
		Notes:   append(notes, refused...),
	}
	if _, err := a.settleAll(ctx, ws); err != nil {
		return activities.Result{}, err
	}
	if err := a.writeApplied(ws.token, &result); err != nil {
		return activities.Result{}, err
	}
	point.Reach("terraform.apply:done")
	return result, removePlainText(ws.token)
}

// removePlainText removes what a finished apply left in plain text, including that of an interrupted observation. A
// concurrent one fails and is retried.
func removePlainText(t *journal.Token) error {
	said, err := filepath.Glob(filepath.Join(runsDir(t), "*", "std*"))
	for _, f := range said {
		err = errors.Join(err, os.Remove(f))
	}
	return errors.Join(err, removeWork(t, "forward", "prior", "observe-*"))
}

// shownOutputs are the outputs that may be shown, and the counts; an output of the same name wins.
func (s *state) shownOutputs(n counts) map[string]any {
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
