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
)

// docEmptied says that from here on the undo itself may have emptied the state.
const docEmptied = "emptied"

// recoverState pushes the last known state if there is none any more, and lets a refresh find out what of it is still true.
func (u *undo) recoverState(ctx context.Context) error {
	now, err := u.ws.pullState(ctx)
	if err != nil || now.exists() {
		return err
	}
	var at time.Time
	if emptied, err := u.ws.token.Read(docEmptied, &at); err != nil || emptied {
		return err
	}
	last, found, err := u.readLeft(ctx, u.ws.token)
	if err != nil {
		return err
	}
	if !found {
		last = u.before
	}
	if last.empty() {
		return nil
	}
	if err := u.ws.pushState(ctx, last.raw); err != nil {
		return err
	}
	_, err = u.ws.runChange(ctx, "apply -refresh-only", func(order) error {
		return u.ws.tf.ApplyJSON(ctx, io.Discard, u.ws.applyOptions(tfexec.RefreshOnly(true))...)
	})
	return err
}

// checkDrift looks for drift before the first change; nil if there is none, or if a person has decided to overwrite exactly
// that.
func (u *undo) checkDrift(ctx context.Context) (*activities.Drift, error) {
	var at time.Time
	if found, err := u.ws.token.Read(docCleared, &at); err != nil || found {
		return nil, err
	}
	now, err := u.ws.pullState(ctx)
	if err != nil {
		return nil, err
	}
	if !now.same(u.before) {
		drift, err := u.ws.drift(ctx, u.record, now)
		if err != nil || drift != nil && drift.Digest != u.decision.Force {
			return drift, err
		}
	}
	at = time.Now().UTC()
	_, err = u.ws.token.Create(docCleared, &at)
	return nil, err
}

// addedAddresses are the addresses in the state that were not there before; a deposed object counts with its address.
func (u *undo) addedAddresses(now *state) []string {
	var all []string
	for address := range now.managed() {
		address, _, _ = strings.Cut(address, " (deposed")
		if !slices.Contains(u.record.Addresses, address) && !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	slices.Sort(all)
	return all
}

// destroyAdded destroys what the step added, under the step's own configuration, since only that has its provisioners and
// provider settings.
func (u *undo) destroyAdded(ctx context.Context) error {
	for {
		now, err := u.ws.pullState(ctx)
		if err != nil {
			return err
		}
		added := u.addedAddresses(now)
		if len(added) == 0 && (u.record.Back != toNothing || now.empty()) {
			return nil
		}
		half, err := u.ws.prepareCutOff(ctx, now, func(address string) bool { return slices.Contains(added, address) })
		if err != nil {
			return err
		}
		said, err := u.destroyTargets(ctx, added)
		if err == nil || !isRefusal(said, half) {
			return err
		}
	}
}

// destroyTargets destroys what was added, unless something else would be destroyed too.
func (u *undo) destroyTargets(ctx context.Context, added []string) (report, error) {
	file := filepath.Join(u.ws.dir, "unwind.destroy.tfplan")
	options := []tfexec.PlanOption{tfexec.Destroy(true), tfexec.Out(file)}
	if u.record.Back != toNothing {
		for _, address := range added {
			options = append(options, tfexec.Target(address))
		}
	}
	said, err := u.ws.plan(ctx, options...)
	if err != nil {
		return said, err
	}
	for _, address := range said.lostAddresses() {
		if !slices.Contains(added, address) {
			// Something from before now depends on what was added, and would be destroyed too. Applying the previous
			// configuration removes that dependency, and destroys what was added.
			return said, nil
		}
	}
	return u.ws.applyPlan(ctx, file)
}

// applyPrior applies the previous configuration to the present state. remains are addresses that it would still change
// afterwards.
func (u *undo) applyPrior(ctx context.Context) (remains []string, drift *activities.Drift, err error) {
	if u.contents.Prior == nil {
		return nil, nil, nil
	}
	ws, err := u.workspace(ctx, u.entry, filepath.Base(u.ws.dir)+"-prior", *u.contents.Prior, u.ws.turn)
	if err != nil {
		return nil, nil, err
	}
	file := filepath.Join(ws.dir, planFile)
	for {
		now, err := ws.pullState(ctx)
		if err != nil {
			return nil, nil, err
		}
		half, err := ws.prepareCutOff(ctx, now, u.record.plansFor)
		if err != nil {
			return nil, nil, err
		}
		said, err := ws.plan(ctx, append(replaceOptions(half), tfexec.Out(file))...)
		if err != nil {
			return nil, nil, err
		}
		if said.unchanged() {
			break
		}
		if drift, err := u.unexpectedLosses(ctx, ws, said); drift != nil || err != nil {
			return nil, drift, err
		}
		if said, err = ws.applyPlan(ctx, file); err == nil {
			break
		}
		if !strings.Contains(said.failure(), "Saved plan is stale") && !isRefusal(said, half) {
			return nil, nil, err
		}
	}
	said, err := ws.plan(ctx)
	if err != nil {
		return nil, nil, err
	}
	now, err := ws.pullState(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := u.keepKnown(now, *u.contents.Prior); err != nil {
		return nil, nil, err
	}
	if now.same(u.before) {
		return nil, nil, nil // a configuration that never converges is no residue of the step
	}
	return addressesOf(said.actions()), nil, nil
}

// unexpectedLosses compares what the undo would destroy with what the step touched. Anything else is someone's newer work,
// and shown as drift.
func (u *undo) unexpectedLosses(ctx context.Context, ws *workspace, said report) (*activities.Drift, error) {
	now, err := ws.pullState(ctx)
	if err != nil {
		return nil, err
	}
	var lines []string
	added := u.addedAddresses(now)
	for _, address := range said.lostAddresses() {
		if !u.record.plansFor(address) && !slices.Contains(added, address) {
			lines = append(lines, "- "+address+" would be destroyed or replaced, though the step has not touched it")
		}
	}
	if len(lines) == 0 {
		return nil, nil
	}
	text := strings.Join(lines, "\n")
	drift := &activities.Drift{Digest: activities.DigestOf([]byte(text), []byte(now.digest())), Diff: text}
	if drift.Digest == u.decision.Force {
		return nil, nil
	}
	return drift, nil
}

// removeNewFiles removes a local backend's files that did not exist before.
func (u *undo) removeNewFiles(ctx context.Context, now *state) error {
	path := u.ws.state
	if path == "" {
		return nil
	}
	s := sweepJob{
		Path: path, Lineage: now.Lineage,
		State:  !u.record.Had && now.empty() && isFile(path),
		Backup: !u.record.Backup && isFile(path+".backup"),
	}
	stray := isFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock.info"))
	if !s.State && !s.Backup && !stray {
		return nil
	}
	at := time.Now().UTC()
	if _, err := u.ws.token.Create(docEmptied, &at); err != nil {
		return err
	}
	return u.ws.sweep(ctx, s)
}
