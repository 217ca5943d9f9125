package terraform

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/terraform/configuration"
	"github.com/seed-62bf7108/unwind/activities/terraform/plan"
	"github.com/seed-62bf7108/unwind/activities/terraform/record"
	"github.com/seed-62bf7108/unwind/activities/terraform/stream"
	"github.com/seed-62bf7108/unwind/activities/terraform/workspace"
)

// offerName is the file in the workspace that identifies its plan.
const offerName = "unwind.offer"

// Plan plans without touching anything, and keeps the plan for Apply.
func (a *applyAction) Plan(ctx context.Context, e activities.Entry, s activities.Step) (_ activities.Change,
	err error) {
	t, err := a.token(e)
	if err != nil {
		return activities.Change{}, err
	}
	defer clearLate(t, &err)
	unlock, err := t.Lock(ctx)
	if err != nil {
		return activities.Change{}, err
	}
	defer unlock()
	if err := t.CheckOpen(); err != nil {
		return activities.Change{}, err
	}
	pr, err := a.prepare(ctx, e, s)
	if err != nil {
		return activities.Change{}, err
	}
	digest, err := pr.digest()
	if err != nil {
		return activities.Change{}, err
	}
	text, err := pr.ws.CLI.ShowPlanFileRaw(ctx, pr.file)
	if err != nil {
		return activities.Change{}, pr.ws.FailedError(ctx, "show", stream.Report{}, err)
	}
	if pr.to == nil {
		if err := a.keepOffer(ctx, t, pr, digest); err != nil {
			return activities.Change{}, err
		}
	}
	point.Reach("terraform.apply:planned")
	c := pr.describeChange(digest, strings.TrimSpace(text))
	if written := plan.RelativePaths(pr.shown, pr.ws.Dir); len(written) > 0 {
		c.Facts = append(c.Facts,
			fmt.Sprintf("%s hold paths relative to the configuration: they lead into the worker's own copy of it, which is "+
				"removed; give absolute paths", strings.Join(written, ", ")))
	}
	reads, err := configuration.FindReads(pr.bundle.Dir)
	if len(reads.Unknown) > 0 {
		c.Facts = append(c.Facts,
			"reads files whose paths are computed, so which steps change them is not known: "+strings.Join(reads.Unknown, ", "))
	}
	return c, err
}

// keepOffer makes this the plan that Apply takes for digest.
func (a *applyAction) keepOffer(ctx context.Context, t *journal.Token, pr *planning, digest activities.Digest) error {
	r, err := a.record(ctx, pr, digest)
	if err != nil {
		return err
	}
	offer := record.Offer{Record: r, Bundle: pr.bundle.Digest(), State: pr.ws.StateFile, Contents: pr.state.Digest()}
	if _, err := t.Create(record.DocOffer(digest), &offer); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(pr.ws.Dir, offerName), []byte(digest), 0o600)
}

// describeChange describes the plan.
func (pr *planning) describeChange(digest activities.Digest, text string) activities.Change {
	c := activities.Change{
		Summary:  fmt.Sprintf("terraform apply %s: %s", pr.bundle.Dir, pr.tally()),
		Diff:     text,
		Strategy: activities.Compensation,
		Undo:     record.DescribeUndo(pr.back, pr.actions),
		Risk:     activities.High,
		Keys:     []string{"terraform:" + pr.bundle.Dir},
		Digest:   digest,

		Unchanged: pr.isUnchanged(),
	}
	if pr.regression != "" {
		c.Summary += "; " + record.SummarizeRegression(pr.regression)
		c.Ask, c.Facts = true, []string{pr.regression + ": what is not in it would be made again"}
	}
	if len(pr.programs) > 0 && !pr.isUnchanged() {
		c.Ask, c.Facts = true, append(c.Facts, pr.programs...)
		c.Undo += " What provisioners and data sources change outside of Terraform is not taken back."
	}
	c.Facts = append(c.Facts, workspace.UnconfinedNotice()...)
	pr.describeActions(&c)
	if pr.to != nil {
		pr.describeGoal(&c)
	}
	return c
}

// describeActions adds what an undo would not bring back, and what a person might not expect.
func (pr *planning) describeActions(c *activities.Change) {
	var lost []string
	for _, a := range pr.actions {
		switch {
		case a.Loses():
			lost = append(lost, a.Address)
		case a.Kind == plan.Forget:
			c.Facts = append(c.Facts, a.Address+" is forgotten: it goes on existing, and Terraform manages it no longer")
		case a.Imported:
			c.Facts = append(c.Facts, a.Address+" is imported: it exists already")
		case a.From != "":
			c.Facts = append(c.Facts, fmt.Sprintf("%s is moved to %s", a.From, a.Address))
		}
		if len(a.Changed) > 0 {
			c.Ask = true
			c.Losses = append(c.Losses,
				fmt.Sprintf("%s: what the step changes in the imported object (%s) stays when it is forgotten again",
					a.Address, strings.Join(a.Changed, ", ")))
		}
	}
	for _, address := range pr.drifted() {
		c.Ask = true
		c.Losses = append(c.Losses, address+lostDrift)
	}
	for _, address := range lost {
		c.Losses = append(c.Losses, address+": the data inside a replaced or destroyed object does not come back")
	}
	if len(lost) > 0 {
		c.Strategy, c.Ask = activities.Irreversible, true
		c.Facts = append(c.Facts,
			fmt.Sprintf("destroys or replaces %s: %s", activities.CountOf(len(lost), "object"), strings.Join(lost, ", ")))
		c.Undo += " Replaced or destroyed objects come back as new ones, without their data."
	}
}

const lostDrift = ": it was changed outside of Terraform before the step; an undo goes back to what the state " +
	"said, not to that"

// tally counts the actions.
func (pr *planning) tally() string {
	if pr.isUnchanged() {
		return "no changes"
	}
	n := map[plan.Kind]int{}
	for _, a := range pr.actions {
		n[a.Kind]++
	}
	return fmt.Sprintf("%d to add, %d to change, %d to replace, %d to destroy", n[plan.Create], n[plan.Update],
		n[plan.Replace], n[plan.Delete]) +
		countTransitions(pr.actions, " to import", " to move", " to forget")
}

// countTransitions counts the imported, moved and forgotten objects, if there are any.
func countTransitions(actions []plan.Action, imported, moved, forgotten string) string {
	var n [3]int
	for _, a := range actions {
		for i, is := range []bool{a.Imported, a.From != "", a.Kind == plan.Forget} {
			if is {
				n[i]++
			}
		}
	}
	var text strings.Builder
	for i, done := range []string{imported, moved, forgotten} {
		if n[i] > 0 {
			fmt.Fprintf(&text, ", %d%s", n[i], done)
		}
	}
	return text.String()
}

// findOffer returns the plan that was shown with digest want, if nothing has changed since; nil if
// it is gone.
func (a *applyAction) findOffer(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (*planning, *record.Record, error) {
	t, err := a.token(e)
	if err != nil {
		return nil, nil, err
	}
	var o record.Offer
	if found, err := t.Read(record.DocOffer(want), &o); err != nil || !found {
		return nil, nil, err
	}
	if at, err := os.ReadFile(filepath.Join(workspace.Folder(t, "forward"), offerName)); err != nil ||
		string(at) != string(want) {
		return nil, nil, nil //nolint:nilerr // another plan has replaced it, or the folder is gone: plan again
	}
	p, err := activities.DecodeParams[Params](s.With)
	if err != nil {
		return nil, nil, err
	}
	b, notes, err := a.configuration(ctx, e, o.Record.Dir, p)
	if err != nil {
		return nil, nil, err
	}
	ws, err := a.host.Reopen(ctx, t, "forward", 0)
	if err != nil {
		return nil, nil, err
	}
	ws.StateFile = o.State
	now, err := ws.PullState(ctx)
	if err != nil {
		return nil, nil, err
	}
	if o.Record.Want != want || b.Digest() != o.Bundle || now.Lineage != o.Record.Lineage ||
		now.Serial != o.Record.Serial || now.Digest() != o.Contents {
		return nil, nil, staleApproval(o.Record.Dir)
	}
	pr := &planning{ws: ws, bundle: b, state: now, file: filepath.Join(ws.Dir, planFile), back: o.Record.Back,
		actions: o.Record.Planned, notes: notes}
	return pr, &o.Record, nil
}

func staleApproval(dir string) error {
	return activities.Errorf(activities.StaleApproval,
		"the configuration or the state of %s has changed since the plan was shown", dir)
}
