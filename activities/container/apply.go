package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/checkpoint"
	"github.com/seed-62bf7108/unwind/activities/container/command"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/container/volumes"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// Limits on what is returned of the output.
const (
	maxStdoutOutput = 8 << 10
	maxStderrOutput = 2 << 10
	maxFailureTail  = 3 << 10
)

// application is one call of Apply.
type application struct {
	*execAction
	entry  activities.Entry
	step   activities.Step
	params params
	token  *journal.Token
	rec    stepRecord
	// backend has the step's checkpoint, which is at checkpoint.
	backend    checkpoint.Backend
	checkpoint string
	notes      []string
}

func (x *execAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	p, err := decode(s)
	if err != nil {
		return activities.Result{}, err
	}
	t, err := x.store.Open(ctx, e)
	if err != nil {
		return activities.Result{}, err
	}
	unlock, err := t.Lock(ctx)
	if err != nil {
		return activities.Result{}, err
	}
	defer unlock()
	if err := t.CheckOpen(); err != nil {
		return activities.Result{}, err
	}
	if done, found, err := target.ReadCompletion(t); found || err != nil {
		return target.Answer(done, err)
	}
	a := &application{execAction: x, entry: e, step: s, params: p, token: t}
	if err := a.capture(ctx, want); err != nil {
		return activities.Result{}, err
	}
	a.backend = x.backends.Of(a.rec.Backend)
	if a.rec.Backend.Remark() != "" {
		a.notes = append(a.notes, a.rec.Backend.Fact())
	}
	if !a.rec.ReadOnly && a.rec.Redo == nil {
		a.notes = append(a.notes, p.costs(a.rec.Volumes)...)
	}
	point.Reach("container.exec:recorded")
	if a.rec.ReadOnly {
		return target.Answer(a.readOnly(ctx))
	}
	return target.Answer(a.change(ctx))
}

// capture makes the record, or reads the one that an earlier attempt has made.
func (a *application) capture(ctx context.Context, want activities.Digest) (err error) {
	rec, found, err := readRecord(a.token)
	if a.rec = rec; found || err != nil {
		return err
	}
	again, err := a.locate(ctx)
	if err == nil {
		err = activities.Judge(ctx, weigh(a.rec.ReadOnly))
	}
	if err != nil {
		return err
	}
	if !a.rec.ReadOnly {
		if again, err = a.takeLease(ctx, again); err != nil {
			return err
		}
	}
	a.backend = a.backends.Of(a.rec.Backend)
	if !a.rec.ReadOnly {
		beside, err := a.backend.ReadUncovered(ctx, a.rec.Container.ID)
		if err != nil {
			return err
		}
		a.rec.Beside, a.rec.Nodes = beside.Digests, beside.Nodes
	}
	a.rec.Owned, a.rec.Want = journal.Own(ctx, a.entry), want
	recorded := false
	defer func() {
		if !recorded {
			err = errors.Join(err, volumes.Copies{Token: a.token}.Drop())
		}
	}()
	var before, seen manifest.Manifest
	if !a.rec.ReadOnly {
		if before, seen, err = a.readBefore(ctx, again, want != ""); err != nil {
			return err
		}
	}
	kept := activities.Digest("")
	if again != nil {
		if err := again.checkUnchanged(seen); err != nil {
			return err
		}
		if err := a.adopt(again); err != nil {
			return err
		}
		kept = again.Kept.After
	}
	if want != "" && want != changeDigest(ctx, a.params, a.rec.Container, seen, kept) {
		return activities.Errorf(activities.StaleApproval, "the command, or the filesystem of %s, is not what was approved",
			engine.NameOf(a.rec.Container))
	}
	if before != nil {
		if a.rec.Before, err = before.Save(a.token.Dir(), beforeFile); err != nil {
			return err
		}
	}
	point.Reach("container.exec:captured")
	if err := a.token.CheckOpen(); err != nil {
		return err
	}
	recorded = true // as soon as it may be
	_, err = a.token.Create(journal.Record, &a.rec)
	return err
}

// takeLease makes the container the step's own. It may be another one by then.
func (a *application) takeLease(ctx context.Context, again *feasibleRedo) (*feasibleRedo, error) {
	if err := a.token.Make(); err != nil { // who finds the lease looks for its step
		return nil, err
	}
	before, waited, err := a.leases.Take(ctx, engine.NameOf(a.rec.Container), a.rec.Container.ID, a.entry)
	if err == nil && waited {
		again, err = a.locate(ctx)
	}
	a.rec.After = before
	return again, err
}

// locate finds the container, and for a redo what to put back there.
func (a *application) locate(ctx context.Context) (*feasibleRedo, error) {
	again, err := a.findRedo(ctx, a.entry)
	if err != nil {
		return nil, err
	}
	if again != nil {
		a.rec = stepRecord{Container: again.target, Ignore: again.ignore, Backend: again.backend}
		return again, nil
	}
	in, err := target.Find(ctx, a.engine, a.lineage, a.params.Container)
	if err != nil {
		return nil, err
	}
	a.rec = stepRecord{Container: in, Ignore: a.params.ignored()}
	if a.rec.Backend, a.rec.ReadOnly, err = a.choose(ctx, a.params, in); err == nil && !a.rec.ReadOnly {
		a.rec.Volumes, err = a.findVolumes(ctx, a.params, in)
	}
	return nil, err
}

// choose decides how a step's checkpoint is taken, or that it needs none. Where it is cheap nothing
// has to be proven: it is taken for what only reads too.
func (x *execAction) choose(ctx context.Context, p params, in container.InspectResponse) (by checkpoint.Choice,
	reads bool, err error) {
	by, backend, err := x.backends.Choose(ctx, in)
	if err != nil || backend.Traits().Cheap {
		return by, false, err
	}
	if reads, err = x.readsOnly(ctx, p, in); reads {
		by = checkpoint.Choice{}
	}
	return by, reads, err
}

// readBefore reads what later manifests are compared with, and what an approval covers where there
// is one, or a redo finds. Of volumes it is what is in the copies.
func (a *application) readBefore(ctx context.Context, again *feasibleRedo, approved bool) (before,
	found manifest.Manifest, err error) {
	differential := a.backend.Traits().Differential
	switch {
	case again != nil:
		found, err = again.read(ctx)
	case approved || !differential:
		found, err = manifest.Take(ctx, a.engine, a.rec.Container.ID, a.rec.Ignore)
	}
	before = found
	if differential {
		before = manifest.Manifest{}
	}
	if err != nil {
		return nil, nil, err
	}
	return before, found, a.copies(a.token, a.rec).Keep(ctx, before, found)
}

// readOnly runs a command that changes nothing. It needs no fence, and losing its result costs
// another run.
func (a *application) readOnly(ctx context.Context) (target.Completion, error) {
	out, stdout, stderr := &bytes.Buffer{}, &command.FirstBytes{}, &command.FirstBytes{}
	log, last := command.NewLog(out), &command.LastBytes{}
	stop := activities.ShowProgress(ctx, func() []string { return activities.LastLines(last.String()) })
	exit, err := command.Run(ctx, a.engine, a.rec.Container.ID, a.params.toRun(), io.MultiWriter(log, stdout, last),
		io.MultiWriter(log, stderr, last))
	stop()
	if errors.Is(err, command.ErrNotRun) {
		return a.finish(target.Completion{Container: a.rec.Container.ID,
			Failure: activities.Errorf(activities.ActionDenied, "%v", err)})
	}
	if err != nil {
		return target.Completion{}, engine.Explain("running the command in "+engine.NameOf(a.rec.Container), err)
	}
	if err := log.Finish(); err != nil {
		return target.Completion{}, err
	}
	point.Reach("container.exec:read")
	done := target.Completion{Container: a.rec.Container.ID, Running: true}
	if done.Failure = a.failure(ctx, exit, out.String()); done.Failure == nil {
		if done.Failure, err = a.check(ctx, done.Container); err != nil {
			return target.Completion{}, err
		}
	}
	done.Result = activities.Result{
		Summary: fmt.Sprintf("read in %s: %s", engine.NameOf(a.rec.Container), a.title(ctx)),
		Outputs: a.outputs(ctx, command.Ending{Exit: exit, Stdout: stdout.Bytes, Stderr: stderr.Bytes}, nil),
		After:   activities.DigestOf(stdout.Bytes),
	}
	return a.finish(done)
}

// change runs a command that may change something: checkpoint, ticket, exec, result, manifest.
func (a *application) change(ctx context.Context) (target.Completion, error) {
	if err := a.takeCheckpoint(ctx); err != nil {
		return target.Completion{}, err
	}
	if err := a.takeTicket(ctx); err != nil {
		return target.Completion{}, err
	}
	point.Reach("container.exec:ticket-taken")
	if a.rec.Redo != nil {
		return a.putBack(ctx)
	}
	n, in, end, err := a.attempts(ctx)
	if err != nil {
		return target.Completion{}, err
	}
	point.Reach("container.exec:command-ended")
	if end.Refused != "" {
		return a.settle(ctx, in, n, end, activities.Errorf(activities.ActionDenied, "%s", end.Refused))
	}
	said, err := command.ReadTail(filepath.Join(a.token.Dir(), command.LogName(n)))
	if err != nil {
		return target.Completion{}, err
	}
	failure := a.failure(ctx, end.Exit, said)
	if failure == nil {
		if failure, err = a.check(ctx, in); err != nil {
			return target.Completion{}, err
		}
	}
	return a.settle(ctx, in, n, end, failure)
}

// takeCheckpoint keeps the filesystem, once.
func (a *application) takeCheckpoint(ctx context.Context) error {
	taken, found, err := readTicket(a.token)
	if err != nil {
		return err
	}
	if a.checkpoint = taken.Checkpoint; found {
		return nil
	}
	if a.checkpoint, err = a.backend.Take(ctx, a.entry.Token, a.rec.Container.ID); err != nil {
		return err
	}
	point.Reach("container.exec:checkpoint-taken")
	return nil
}

// takeTicket is the last thing that an undo can forestall: whoever writes the document first, holds
// it.
func (a *application) takeTicket(ctx context.Context) error {
	err := a.token.CheckOpen()
	if err == nil {
		holder := ticket{forwardHolds, a.checkpoint}
		if _, err = a.token.Create(ticketDoc, &holder); err == nil && holder.Holder != forwardHolds {
			err = activities.Errorf(activities.Fenced, "the step has been undone: this forward came too late")
		}
	}
	if activities.TypeOf(err) == activities.Fenced { // the undo may have looked before the checkpoint was there
		return errors.Join(err, a.backend.Drop(ctx, a.entry.Token, a.rec.Container.ID))
	}
	return err
}

// aftermath is what a step has left.
type aftermath struct {
	digest activities.Digest
	// changed has a line for each path that differs.
	changed []string
	running bool
	// beside is what the step has changed that no checkpoint covers.
	beside []string
	// deep begins the path of a folder that is nested too deep.
	deep string
	long string
}

// readAfter keeps the manifest of what the step has left in a container.
func (a *application) readAfter(ctx context.Context, in string) (aftermath, error) {
	var before manifest.Manifest
	var unloaded error
	var loading sync.WaitGroup
	loading.Go(func() { before, unloaded = manifest.Load(a.token.Dir(), beforeFile, a.rec.Before) })
	after, beside, err := a.backend.ReadAll(ctx, a.entry.Token, in, a.rec.Ignore)
	if err == nil {
		err = volumes.AddTo(ctx, after, a.rec.Volumes)
	}
	loading.Wait()
	switch {
	case unloaded != nil:
		return aftermath{}, unloaded
	case err != nil:
		return aftermath{}, errors.Join(a.token.CheckOpen(), err)
	}
	var now container.InspectResponse
	var unseen error
	var changed []string
	var looks sync.WaitGroup
	looks.Go(func() { now, unseen = a.engine.ContainerInspect(ctx, in) })
	looks.Go(func() { changed = before.Diff(after) })
	digest, err := after.Save(a.token.Dir(), target.AfterFile)
	looks.Wait()
	if err = errors.Join(err, engine.Explain("looking at the container after the step", unseen)); err != nil {
		return aftermath{}, errors.Join(a.token.CheckOpen(), err)
	}
	return aftermath{digest: digest, changed: changed, running: now.State.Running,
		beside: a.rec.diffUncovered(beside), deep: after.TooDeep(), long: after.TooLong()}, nil
}

// settle looks at the container after a command and writes down how the step ended.
func (a *application) settle(ctx context.Context, in string, n int, end command.Ending,
	failure *activities.Error) (target.Completion, error) {
	left, err := a.readAfter(ctx, in)
	if err != nil {
		return target.Completion{}, err
	}
	beside := left.beside
	if left.deep != "" && failure == nil {
		failure = activities.Errorf(activities.Unsuccessful,
			"the command has left folders in container %s that are nested deeper than %d (%s...): what is in them "+
				"cannot be kept", engine.NameOf(a.rec.Container), manifest.MostNested, left.deep)
	}
	if left.long != "" && failure == nil {
		failure = activities.Errorf(activities.Unsuccessful,
			"the command has left %s... in container %s: the name is longer than the container's own filesystem takes, so "+
				"it cannot be kept; give it a shorter name",
			left.long, engine.NameOf(a.rec.Container))
	}
	if at := manifest.FindMark(left.changed); at != "" && failure == nil {
		failure = activities.Errorf(activities.Unsuccessful,
			"the command has left %s in container %s: to container engines and storage drivers, a name that begins with %s "+
				"says that a file is deleted, so it cannot be kept; give it another name",
			at, engine.NameOf(a.rec.Container), manifest.MarkPrefix)
	}
	if stays := a.rec.withoutNodes(beside); len(stays) > 0 {
		a.notes = append(a.notes,
			"the command has changed what no rollback takes back: "+strings.Join(manifest.Few(stays), "; "))
	}
	outputs := a.outputs(ctx, end, slices.Concat(left.changed, beside))
	outputs["log"] = filepath.Join(a.token.Dir(), command.LogName(n))
	a.nameCheckpoint(outputs)
	if end.More {
		a.notes = append(a.notes, fmt.Sprintf("outputs stdout and stderr are only the beginning; %s has all", outputs["log"]))
	}
	return a.finish(target.Completion{
		Container: in, After: left.digest, Beside: beside, Running: left.running, Failure: failure,
		Result: activities.Result{
			Summary: fmt.Sprintf("ran in %s: %s (changed paths: %d)", engine.NameOf(a.rec.Container), a.title(ctx),
				len(left.changed)),
			Outputs: outputs, After: left.digest, Notes: a.notes,
		},
	})
}

func (a *application) finish(done target.Completion) (target.Completion, error) {
	if err := a.token.CheckOpen(); err != nil {
		return done, err
	}
	_, err := a.token.Create(journal.Applied, &done)
	point.Reach("container.exec:applied")
	return done, err
}

func (a *application) outputs(ctx context.Context, end command.Ending, changed []string) map[string]any {
	m := activities.MaskerFrom(ctx)
	first := func(said []byte, most int) string {
		text := m.String(string(said)) // masked before it is cut: half a secret is not found
		return strings.ToValidUTF8(text[:min(len(text), most)], "")
	}
	outputs := map[string]any{
		"stdout": first(end.Stdout, maxStdoutOutput), "stderr": first(end.Stderr, maxStderrOutput), "exit_code": end.Exit,
		"changed": len(changed) > 0,
	}
	if len(changed) > 0 {
		outputs["paths"] = manifest.Few(changed)
	}
	return outputs
}

// nameCheckpoint adds how the container as it was before the step is kept, and the image that it is
// in, if it is one.
func (a *application) nameCheckpoint(outputs map[string]any) {
	delete(outputs, "checkpoint")
	is := a.backend.Traits()
	outputs["kept_by"] = is.Name
	if is.Images {
		outputs["checkpoint"] = a.checkpoint
	}
}

// title is the command in one short line.
func (a *application) title(ctx context.Context) string {
	return titleOf(activities.MaskerFrom(ctx).String(a.params.String()))
}

// titleOf cuts a text that holds no secret any more.
func titleOf(text string) string {
	line, more, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if len(line) > 100 {
		line, more = strings.ToValidUTF8(line[:100], ""), "more"
	}
	if more != "" {
		line += " ..."
	}
	return line
}

// failure is that of a command that says it has failed: nobody's retry mends it.
func (a *application) failure(ctx context.Context, exit int, said string) *activities.Error {
	if exit == 0 {
		return nil
	}
	m := activities.MaskerFrom(ctx)
	return &activities.Error{
		Type:    activities.Unsuccessful,
		Message: fmt.Sprintf("%s: exit status %d in container %s", a.title(ctx), exit, engine.NameOf(a.rec.Container)),
		Output:  activities.Tail(m.String(said), maxFailureTail),
	}
}

// check runs the step's checks in the container, which may come too late as well as its command.
func (a *application) check(ctx context.Context, in string) (*activities.Error, error) {
	look := target.Scene{Engine: a.engine, Container: in, Prepare: a.prepare}
	return look.Check(ctx, a.step.Checks, activities.Live, activities.Live)
}

// prepare makes a command one of the step.
func (a *application) prepare(ctx context.Context, c command.Command) (command.Command, error) {
	return a.backend.Enter(ctx, a.entry.Token, a.rec.Container, c.Marked(a.entry.Token))
}
