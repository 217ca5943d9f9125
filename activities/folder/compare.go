package folder

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/blueprint"
	"github.com/seed-62bf7108/unwind/activities/snapshot"
)

// compare is folder.compare. It changes nothing.
type compare struct{ verify }

type compareParams struct {
	where

	Checkpoint string `json:"checkpoint"     jsonschema:"the checkpoint to compare: an output of folder.checkpoint"`
	With       string `json:"with,omitempty" jsonschema:"the checkpoint to compare it with; by default what is there now"`
}

// maxDiff bounds the output diff, in bytes: all outputs of a step have to fit.
const maxDiff = activities.MaxOutputs / 2

func (*compare) Spec() activities.Spec {
	return activities.Spec{
		Name:    "folder.compare",
		Summary: "Says what differs between a checkpoint of a folder, a Docker volume or a container and another, or now.",
		Params:  activities.ParamsSchema[compareParams](),
		Outputs: map[string]string{
			"changed": "how many paths differ",
			"times":   "how many of these are folders of which only the time differs",
			"diff":    "the paths, a line each: + is new, - is gone, ~ is another; at most 8 KiB",
			"digest":  "a digest of all that it was compared with",
		},
		UndoParams: undoParams(), Keys: keys(),
		HostBound: true, Preflights: true, ReadOnly: true, Risk: activities.Low, Strategy: activities.NoUndo,
		Undo: "it changes nothing.",
	}
}

// Preflight implements activities.Preflighter.
func (a *compare) Preflight(ctx context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[compareParams](o.With)
	if err != nil {
		return err
	}
	problems := []error{a.preflight(ctx, o, p.where, a.locateOrAbsent)}
	for name, is := range map[string]string{"checkpoint": p.Checkpoint, "with": p.With} {
		if is != "" && !o.Awaits(name) && !isCheckpoint(is) {
			problems = append(problems, refuseName(is))
		}
	}
	return errors.Join(problems...)
}

func (a *compare) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := activities.DecodeParams[compareParams](s.With)
	return activities.Change{
		Summary: "compare " + p.key() + " as " + p.Checkpoint + " has it with " + p.other(), Strategy: activities.NoUndo,
		Undo: "it changes nothing", Risk: activities.Low, Unchanged: true, Keys: []string{p.key()},
		Digest: activities.DigestOf(s.With),
	}, err
}

func (p compareParams) other() string {
	if p.With == "" {
		return "what is there now"
	}
	return p.With
}

func (a *compare) Apply(ctx context.Context, _ activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	p, err := activities.DecodeParams[compareParams](s.With)
	if err != nil {
		return r, err
	}
	if want != "" && want != activities.DigestOf(s.With) {
		return r, activities.Errorf(activities.StaleApproval, "it is another comparison than the one that was approved")
	}
	at, err := a.locateOrAbsent(ctx, p.where)
	if err != nil {
		return r, err
	}
	defer at.close()
	was, err := a.wanted(ctx, p.Checkpoint, at)
	if err != nil {
		return r, err
	}
	is, err := a.other(ctx, p, at, was.look)
	if err != nil {
		return r, explain(err)
	}
	found, err := a.compare(at, was.Kept, is)
	if err != nil {
		return r, err
	}
	return activities.Result{
		Summary: at.name + ": " + activities.CountOf(found.count, "path") + " different between " + p.Checkpoint + " and " +
			p.other(),
		Outputs: map[string]any{"changed": found.count, "times": found.times,
			"diff": activities.HeadDiff(found.diff, maxDiff), "digest": found.digest},
	}, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{at})
}

// other is what a checkpoint is compared with.
func (a *compare) other(ctx context.Context, p compareParams, at location, l look) (snapshot.Kept, error) {
	if p.With != "" {
		with, err := a.wanted(ctx, p.With, at)
		return with.Kept, err
	}
	progress, stop := snapshot.Show(ctx, at.name)
	defer stop()
	content, err := a.scan(ctx, at, snapshot.Look{Leave: l.leaves, Progress: progress})
	now := snapshot.Kept{Content: content, About: string(at.said)}
	if at.absent {
		now.About = noContainer
	}
	return now, err
}

// difference is what a comparison has found.
type difference struct {
	// count is how many paths differ, and settings of a container that is another one; times, how many
	// of the paths are folders that differ in their times only.
	count  int
	times  int
	diff   string
	digest activities.Digest
}

func (a *compare) compare(at location, was, is snapshot.Kept) (d difference, err error) {
	both, err := compareContainers(was.About, is.About)
	if err != nil {
		return d, err
	}
	var changed []string
	times := 0
	if both.sameFiles {
		changed, times = was.Content.Differs(is.Content), was.Content.FolderTimes(is.Content)
	}
	d = difference{count: len(both.lines) + len(changed), times: times, digest: is.Content.Digest(),
		diff: strings.Join(both.lines, "") + at.lines(changed, was.Content, is.Content)}
	if len(both.lines) > 0 {
		d.digest = activities.DigestOf([]byte(d.digest), []byte(both.digest))
	}
	return d, nil
}

// containers is how two containers compare.
type containers struct {
	// lines say what differs in how they are made.
	lines  []string
	digest activities.Digest
	// sameFiles: what they hold lies over the same files, and can be compared.
	sameFiles bool
}

// compareContainers compares how two containers are made, of what is kept about them. Where it is
// the same container, that counts as the same: a restore leaves it.
func compareContainers(was, is string) (c containers, err error) {
	if was == is { // of folders nothing is kept, nor of what is not there
		return containers{sameFiles: true}, nil
	}
	if was == noContainer || is == noContainer {
		line := "+ the container\n"
		if is == noContainer {
			line = "- the container\n"
		}
		return containers{lines: []string{line}, digest: activities.DigestOf([]byte(line))}, nil
	}
	a, err := readContainer(json.RawMessage(was))
	if err != nil {
		return c, err
	}
	b, err := readContainer(json.RawMessage(is))
	if err != nil || a.ID == b.ID {
		return containers{sameFiles: true}, err
	}
	names, err := blueprint.Differs(json.RawMessage(was), json.RawMessage(is))
	if err != nil {
		return c, err
	}
	for _, name := range names {
		c.lines = append(c.lines, describeSettings([]string{name}))
	}
	c.sameFiles = a.Image == b.Image
	c.digest, err = blueprint.Digest(json.RawMessage(is))
	return c, err
}
