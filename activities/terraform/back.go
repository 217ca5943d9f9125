package terraform

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-exec/tfexec"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/run"
	"github.com/seed-62bf7108/unwind/activities/terraform/salvage"
	"github.com/seed-62bf7108/unwind/activities/terraform/state"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
)

// docEmptied says that from here on the undo itself may have emptied the state.
const docEmptied = "emptied"

// recoverState makes sure that the undo works on the state that the step left. One that went back
// or is gone is drift, told before anything is touched; with a person's force the last known state
// is pushed, where terraform takes it, and a refresh finds out what of it is still true.
func (u *undo) recoverState(ctx context.Context) (*activities.Drift, error) {
	now, err := u.ws.PullState(ctx)
	if err != nil {
		return nil, err
	}
	var at time.Time
	if emptied, err := u.ws.Token.Read(docEmptied, &at); err != nil || emptied {
		return nil, err
	}
	cleared, err := hasCleared(u.ws.Token)
	if err != nil {
		return nil, err
	}
	if !cleared {
		drift, err := u.findRegression(ctx, u.ws, u.record, now)
		if err != nil {
			return nil, err
		}
		if accepted, err := u.acceptRegression(drift); err != nil || !accepted {
			return drift, err
		}
	}
	last, found, err := u.records.ReadLeft(ctx, u.ws.Token)
	if err != nil {
		return nil, err
	}
	if !found {
		last = u.before
	}
	if !last.PushableOver(now) || cleared && now.Exists() || last.IsEmpty() {
		return nil, nil
	}
	if err := u.ws.PushState(ctx, last.Raw); err != nil {
		return nil, err
	}
	_, err = u.ws.RunChange(ctx, "apply -refresh-only", func(run.Order) error {
		return u.ws.CLI.ApplyJSON(ctx, io.Discard, u.ws.ApplyOptions(tfexec.RefreshOnly(true))...)
	})
	return nil, err
}

// acceptRegression reports whether the undo may go on: there is none, or a person has forced
// exactly this one, now or before.
func (u *undo) acceptRegression(drift *activities.Drift) (bool, error) {
	if drift == nil {
		return true, nil
	}
	return acceptDrift(u.ws.Token, u.decision, drift)
}

// acceptDrift reports whether a person has forced exactly this drift, now or before.
func acceptDrift(t *journal.Token, d activities.Decision, drift *activities.Drift) (bool, error) {
	at := time.Now().UTC()
	if drift.Digest != d.Force {
		return t.Read(docAccepted(drift.Digest), &at)
	}
	_, err := t.Create(docAccepted(drift.Digest), &at)
	return err == nil, err
}

// checkDrift looks for drift before the first change; nil if there is none, or if a person has
// decided to overwrite exactly that.
func (u *undo) checkDrift(ctx context.Context) (*activities.Drift, error) {
	if found, err := hasCleared(u.ws.Token); err != nil || found {
		return nil, err
	}
	now, err := u.ws.PullState(ctx)
	if err != nil {
		return nil, err
	}
	var drift *activities.Drift
	if !now.Same(u.before) {
		drift, err = u.findDrift(ctx, u.ws, u.record, now)
		if err != nil || drift != nil && drift.Digest != u.decision.Force {
			return drift, err
		}
	}
	_, err = u.ws.Token.Create(record.DocCleared, &record.Cleared{At: time.Now().UTC(), Forced: drift != nil})
	return nil, err
}

// destroyAdded destroys what the step added, under the step's own configuration, since only that
// has its provisioners and provider settings.
func (u *undo) destroyAdded(ctx context.Context) error {
	for {
		now, err := u.ws.PullState(ctx)
		if err != nil {
			return err
		}
		added, err := u.madeAddresses(now)
		if err != nil {
			return err
		}
		if len(added) == 0 && (u.record.Back != record.ToNothing || now.IsEmpty()) {
			return nil
		}
		half, err := salvage.PrepareCutOff(ctx, u.ws, now,
			func(address string) bool { return slices.Contains(added, address) })
		if err != nil {
			return err
		}
		said, err := u.destroyTargets(ctx, added)
		if err == nil || !salvage.IsRefusal(said, half) {
			return err
		}
	}
}

// destroyTargets destroys what was added, unless something else would be destroyed too.
func (u *undo) destroyTargets(ctx context.Context, added []string) (stream.Report, error) {
	file := filepath.Join(u.ws.Dir, "unwind.destroy.tfplan")
	options := []tfexec.PlanOption{tfexec.Destroy(true), tfexec.Out(file)}
	if u.record.Back != record.ToNothing {
		for _, address := range added {
			options = append(options, tfexec.Target(address))
		}
	}
	said, err := u.ws.Plan(ctx, options...)
	if err != nil {
		return said, protectedError(said, err)
	}
	for _, address := range said.LostAddresses() {
		if !slices.Contains(added, address) {
			// Something from before now depends on what was added, and would be destroyed too. Applying the
			// previous configuration removes that dependency, and destroys what was added.
			return said, nil
		}
	}
	return u.ws.ApplyPlan(ctx, file)
}

// applyPrior applies the previous configuration to the present state. remains are addresses that it
// would still change afterwards.
func (u *undo) applyPrior(ctx context.Context) (remains []string, drift *activities.Drift, err error) {
	if u.contents.Prior == nil {
		return nil, nil, nil
	}
	ws, err := u.openWorkspace(ctx, u.entry, filepath.Base(u.ws.Dir)+"-prior", u.contents.Prior.Settled(), u.ws.Turn)
	if err != nil {
		return nil, nil, err
	}
	if drift, err := u.regainForgotten(ctx, ws); err != nil || drift != nil {
		return nil, drift, err
	}
	file := filepath.Join(ws.Dir, planFile)
	for {
		now, err := ws.PullState(ctx)
		if err != nil {
			return nil, nil, err
		}
		half, err := salvage.PrepareCutOff(ctx, ws, now, u.record.PlansFor)
		if err != nil {
			return nil, nil, err
		}
		said, err := ws.Plan(ctx, append(salvage.ReplaceOptions(half), tfexec.Out(file))...)
		if err != nil {
			return nil, nil, protectedError(said, err)
		}
		if said.IsUnchanged() {
			break
		}
		if drift, err := u.unexpectedLosses(ctx, ws, said); drift != nil || err != nil {
			return nil, drift, err
		}
		if said, err = ws.ApplyPlan(ctx, file); err == nil {
			break
		}
		if !strings.Contains(said.Failure(), "Saved plan is stale") && !salvage.IsRefusal(said, half) {
			return nil, nil, err
		}
	}
	said, err := ws.Plan(ctx)
	if err != nil {
		return nil, nil, err
	}
	now, err := ws.PullState(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := u.records.KeepKnown(now, *u.contents.Prior); err != nil {
		return nil, nil, err
	}
	if now.Same(u.before) {
		return nil, nil, nil // a configuration that never converges is no residue of the step
	}
	return addressesOf(said.Actions()), nil, nil
}

// removeNewFiles removes a local backend's files that did not exist before.
func (u *undo) removeNewFiles(ctx context.Context, now *state.State) error {
	path := u.ws.StateFile
	if path == "" {
		return nil
	}
	s := run.SweepJob{
		Path: path, Lineage: now.Lineage,
		State:  !u.record.Had && now.IsEmpty() && u.ws.HasStateFile(),
		Backup: !u.record.Backup && u.ws.HasBackupFile(),
	}
	if !s.State && !s.Backup && !u.ws.HasLockInfo() {
		return nil
	}
	at := time.Now().UTC()
	if _, err := u.ws.Token.Create(docEmptied, &at); err != nil {
		return err
	}
	return u.ws.Sweep(ctx, s)
}
