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

// docEmptied says that an undo has come so far that the state may be gone by its own hand.
const docEmptied = "emptied"

// recoverState pushes the last known state where none is there any more, and lets a refresh find out what of it is true.
func (u *undo) recoverState(ctx context.Context) error {
	now, err := u.ws.pull(ctx)
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
	if err := u.ws.push(ctx, last.raw); err != nil {
		return err
	}
	_, err = u.ws.act(ctx, "apply -refresh-only", func(order) error {
		return u.ws.tf.ApplyJSON(ctx, io.Discard, u.ws.applying(tfexec.RefreshOnly(true))...)
	})
	return err
}

// clear looks for drift before the first change, and is nil where there is none, or a person has decided on exactly that.
func (u *undo) clear(ctx context.Context) (*activities.Drift, error) {
	var at time.Time
	if found, err := u.ws.token.Read(docCleared, &at); err != nil || found {
		return nil, err
	}
	now, err := u.ws.pull(ctx)
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

// added are the addresses in the state that were not there before; a deposed object counts with its address.
func (u *undo) added(now *state) []string {
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

// subtract destroys what the step added, under the step's own configuration: provisioners and provider settings that
// belong to it are only there.
func (u *undo) subtract(ctx context.Context) error {
	for {
		now, err := u.ws.pull(ctx)
		if err != nil {
			return err
		}
		added := u.added(now)
		if len(added) == 0 && (u.record.Back != toNothing || now.empty()) {
			return nil
		}
		half, err := u.ws.mend(ctx, now, func(address string) bool { return slices.Contains(added, address) })
		if err != nil {
			return err
		}
		said, err := u.destroy(ctx, added)
		if err == nil || !refuses(said, half) {
			return err
		}
	}
}

// destroy destroys what was added, unless something else would go with it.
func (u *undo) destroy(ctx context.Context, added []string) (report, error) {
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
	for _, address := range said.loses() {
		if !slices.Contains(added, address) {
			// Something from before has come to depend on what was added: it would go too. The configuration from before
			// lets go of it first and destroys what was added then.
			return said, nil
		}
	}
	return u.ws.applyPlan(ctx, file)
}

// goBack applies the configuration from before on the state as it is now. remains are addresses that it would still
// change afterwards.
func (u *undo) goBack(ctx context.Context) (remains []string, drift *activities.Drift, err error) {
	if u.contents.Prior == nil {
		return nil, nil, nil
	}
	ws, err := u.workspace(ctx, u.entry, filepath.Base(u.ws.dir)+"-prior", *u.contents.Prior, u.ws.turn)
	if err != nil {
		return nil, nil, err
	}
	file := filepath.Join(ws.dir, planFile)
	for {
		now, err := ws.pull(ctx)
		if err != nil {
			return nil, nil, err
		}
		half, err := ws.mend(ctx, now, u.record.plans)
		if err != nil {
			return nil, nil, err
		}
		said, err := ws.plan(ctx, append(replacing(half), tfexec.Out(file))...)
		if err != nil {
			return nil, nil, err
		}
		if said.unchanged() {
			break
		}
		if drift, err := u.unexpected(ctx, ws, said); drift != nil || err != nil {
			return nil, drift, err
		}
		if said, err = ws.applyPlan(ctx, file); err == nil {
			break
		}
		if !strings.Contains(said.failure(), "Saved plan is stale") && !refuses(said, half) {
			return nil, nil, err
		}
	}
	said, err := ws.plan(ctx)
	if err != nil {
		return nil, nil, err
	}
	now, err := ws.pull(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := u.know(now, *u.contents.Prior); err != nil {
		return nil, nil, err
	}
	if now.same(u.before) {
		return nil, nil, nil // a configuration that never comes to rest is no residue of the step
	}
	return addresses(said.actions()), nil, nil
}

// unexpected holds what the way back would destroy against what the step has touched. Anything else is someone's newer
// work, and shown as drift.
func (u *undo) unexpected(ctx context.Context, ws *workspace, said report) (*activities.Drift, error) {
	now, err := ws.pull(ctx)
	if err != nil {
		return nil, err
	}
	var lines []string
	added := u.added(now)
	for _, address := range said.loses() {
		if !u.record.plans(address) && !slices.Contains(added, address) {
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

// tidy removes a local backend's files that were not there before.
func (u *undo) tidy(ctx context.Context, now *state) error {
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
