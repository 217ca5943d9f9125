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
	"github.com/seed-62bf7108/unwind/activities/container/manifest"
	"github.com/seed-62bf7108/unwind/activities/container/target"
	"github.com/seed-62bf7108/unwind/activities/container/volumes"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// Limits on what is returned of the output.
const (
	maxStdoutOutput = 8 << 10
	maxStderrOutput = 2 << 10
	maxFailureTail  = 3 << 10
)

// application is one call of Apply: what it was given.
type application struct {
	*execAction
	entry  activities.Entry
	step   activities.Step
	params params
	token  *journal.Token
}

// Apply makes the record, or reads that of an earlier attempt; then it takes the checkpoint and the
// ticket, has the command run to its end, looks at what it has left, and writes down how the step
// ended.
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
	rec, err := a.record(ctx, want)
	if err != nil {
		return activities.Result{}, err
	}
	point.Reach("container.exec:recorded")
	r := &execution{application: a, rec: rec, backend: x.backends.Of(rec.Backend)}
	if rec.ReadOnly {
		return target.Answer(r.read(ctx))
	}
	return target.Answer(r.change(ctx))
}

// record makes the record, or reads the one that an earlier attempt has made.
func (a *application) record(ctx context.Context, want activities.Digest) (stepRecord, error) {
	rec, found, err := readRecord(a.token)
	if found || err != nil {
		return rec, err
	}
	rec, again, err := a.locate(ctx, a.entry, a.params)
	if err == nil {
		err = activities.Judge(ctx, weigh(rec.ReadOnly))
	}
	if err == nil && !rec.ReadOnly {
		rec, again, err = a.takeLease(ctx, rec, again)
	}
	if err != nil {
		return rec, err
	}
	rec.Owned, rec.Want = journal.Own(ctx, a.entry), want
	if rec.ReadOnly {
		err = a.checkApproved(ctx, rec, nil, "")
	} else {
		rec, err = a.capture(ctx, rec, again)
	}
	if err == nil {
		point.Reach("container.exec:captured")
		err = a.token.CheckOpen()
	}
	if err != nil {
		return rec, errors.Join(err, volumes.Copies{Token: a.token}.Drop())
	}
	_, err = a.token.Create(journal.Record, &rec)
	return rec, err
}

// locate finds the container, and for a redo what to put back there. It begins the record.
func (x *execAction) locate(ctx context.Context, e activities.Entry, p params) (stepRecord, *feasibleRedo, error) {
	again, err := x.findRedo(ctx, e)
	if err != nil {
		return stepRecord{}, nil, err
	}
	if again != nil {
		return stepRecord{Container: again.target, Ignore: again.ignore, Backend: again.backend}, again, nil
	}
	in, err := target.Find(ctx, x.engine, x.lineage, p.Container)
	if err != nil {
		return stepRecord{}, nil, err
	}
	rec := stepRecord{Container: in, Ignore: p.ignored()}
	rec.Backend, rec.ReadOnly, err = x.choose(ctx, p, in)
	if err == nil && !rec.ReadOnly && p.Volumes != "" {
		rec.Volumes, err = volumes.Find(ctx, x.engine, in)
	}
	return rec, nil, err
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

// takeLease makes the container the step's own. After a wait it may be another one: then it is
// located anew.
func (a *application) takeLease(ctx context.Context, rec stepRecord, again *feasibleRedo) (stepRecord, *feasibleRedo,
	error) {
	if err := a.token.Make(); err != nil { // who finds the lease looks for its step
		return rec, nil, err
	}
	before, waited, err := a.leases.Take(ctx, engine.NameOf(rec.Container), rec.Container.ID, a.entry)
	if err == nil && waited {
		rec, again, err = a.locate(ctx, a.entry, a.params)
	}
	rec.After = before
	return rec, again, err
}

// capture keeps what the container is like before the step, which must be what was approved.
func (a *application) capture(ctx context.Context, rec stepRecord, again *feasibleRedo) (stepRecord, error) {
	backend := a.backends.Of(rec.Backend)
	beside, err := backend.ReadUncovered(ctx, rec.Container.ID)
	if err != nil {
		return rec, err
	}
	rec.Beside, rec.Nodes = beside.Digests, beside.Nodes
	var seen manifest.Manifest // what an approval covers, or a redo finds
	differential := backend.Traits().Differential
	switch {
	case again != nil:
		seen, err = again.read(ctx)
	case rec.Want != "" || !differential:
		seen, err = manifest.Take(ctx, a.engine, rec.Container.ID, rec.Ignore)
	}
	if err != nil {
		return rec, err
	}
	before := seen // what later manifests are compared with; of volumes it is what is in the copies
	if differential {
		before = manifest.Manifest{}
	}
	if err := a.copies(a.token, rec).Keep(ctx, before, seen); err != nil {
		return rec, err
	}
	var kept activities.Digest
	if again != nil {
		if err := again.checkUnchanged(seen); err != nil {
			return rec, err
		}
		if err := a.adopt(again); err != nil {
			return rec, err
		}
		rec.Redo, kept = &again.redo, again.Kept.After
	}
	if err := a.checkApproved(ctx, rec, seen, kept); err != nil {
		return rec, err
	}
	rec.Before, err = before.Save(a.token.Dir(), beforeFile)
	return rec, err
}

// checkApproved refuses what is not what was approved.
func (a *application) checkApproved(ctx context.Context, rec stepRecord, seen manifest.Manifest,
	kept activities.Digest) error {
	if rec.Want == "" || rec.Want == changeDigest(ctx, a.params, rec.Container, seen, kept) {
		return nil
	}
	return activities.Errorf(activities.StaleApproval, "the command, or the filesystem of %s, is not what was approved",
		engine.NameOf(rec.Container))
}

// execution is an application whose record is made: nothing of it changes any more.
type execution struct {
	*application
	rec     stepRecord
	backend checkpoint.Backend
}

// read runs a command that changes nothing. It needs no fence, and losing its result costs another
// run.
func (r *execution) read(ctx context.Context) (target.Completion, error) {
	out, stdout, stderr := &bytes.Buffer{}, &command.FirstBytes{}, &command.FirstBytes{}
	log, last := command.NewLog(out), &command.LastBytes{}
	stop := activities.ShowProgress(ctx, func() []string { return activities.LastLines(last.String()) })
	exit, err := command.Run(ctx, r.engine, r.rec.Container.ID, r.params.toRun(), io.MultiWriter(log, stdout, last),
		io.MultiWriter(log, stderr, last))
	stop()
	if errors.Is(err, command.ErrNotRun) {
		return r.finish(target.Completion{Container: r.rec.Container.ID,
			Failure: activities.Errorf(activities.ActionDenied, "%v", err)})
	}
	if err != nil {
		return target.Completion{}, engine.Explain("running the command in "+engine.NameOf(r.rec.Container), err)
	}
	if err := log.Finish(); err != nil {
		return target.Completion{}, err
	}
	point.Reach("container.exec:read")
	failure, err := r.judge(ctx, r.rec.Container.ID, exit, out.String())
	if err != nil {
		return target.Completion{}, err
	}
	return r.finish(target.Completion{
		Container: r.rec.Container.ID, Running: true, Failure: failure,
		Result: activities.Result{
			Summary: fmt.Sprintf("read in %s: %s", engine.NameOf(r.rec.Container), r.params.title(ctx)),
			Outputs: outputs(ctx, command.Ending{Exit: exit, Stdout: stdout.Bytes, Stderr: stderr.Bytes}, nil),
			After:   activities.DigestOf(stdout.Bytes),
		},
	})
}

// change runs a command that may change something, or puts back what a rollback has taken away.
func (r *execution) change(ctx context.Context) (target.Completion, error) {
	kept, err := r.takeCheckpoint(ctx)
	if err == nil {
		err = r.takeTicket(ctx, kept)
	}
	if err != nil {
		return target.Completion{}, err
	}
	point.Reach("container.exec:ticket-taken")
	if r.rec.Redo != nil {
		return r.putBack(ctx, kept)
	}
	ran, err := r.runCommand(ctx)
	if err != nil {
		return target.Completion{}, err
	}
	point.Reach("container.exec:command-ended")
	if ran.Refused != "" {
		return r.settle(ctx, kept, ran, activities.Errorf(activities.ActionDenied, "%s", ran.Refused))
	}
	said, err := command.ReadTail(r.logOf(ran.number))
	if err != nil {
		return target.Completion{}, err
	}
	failure, err := r.judge(ctx, ran.in, ran.Exit, said)
	if err != nil {
		return target.Completion{}, err
	}
	return r.settle(ctx, kept, ran, failure)
}

// takeCheckpoint keeps the filesystem, once, and returns where.
func (r *execution) takeCheckpoint(ctx context.Context) (kept string, err error) {
	taken, found, err := readTicket(r.token)
	if found || err != nil {
		return taken.Checkpoint, err
	}
	if kept, err = r.backend.Take(ctx, r.entry.Token, r.rec.Container.ID); err != nil {
		return "", err
	}
	point.Reach("container.exec:checkpoint-taken")
	return kept, nil
}

// takeTicket is the last thing that an undo can forestall: whoever writes the document first, holds
// it.
func (r *execution) takeTicket(ctx context.Context, kept string) error {
	err := r.token.CheckOpen()
	if err == nil {
		holder := ticket{forwardHolds, kept}
		if _, err = r.token.Create(ticketDoc, &holder); err == nil && holder.Holder != forwardHolds {
			err = activities.Errorf(activities.Fenced, "the step has been undone: this forward came too late")
		}
	}
	if activities.TypeOf(err) == activities.Fenced { // the undo may have looked before the checkpoint was there
		return errors.Join(err, r.backend.Drop(ctx, r.entry.Token, r.rec.Container.ID))
	}
	return err
}

// judge returns the failure of a command that says it has failed, or whose checks do not hold in
// the container: nobody's retry mends it.
func (r *execution) judge(ctx context.Context, in string, exit int, said string) (*activities.Error, error) {
	if exit == 0 {
		return r.check(ctx, in)
	}
	m := activities.MaskerFrom(ctx)
	return &activities.Error{
		Type: activities.Unsuccessful,
		Message: fmt.Sprintf("%s: exit status %d in container %s", r.params.title(ctx), exit,
			engine.NameOf(r.rec.Container)),
		Output: activities.Tail(m.String(said), maxFailureTail),
	}, nil
}

// check runs the step's checks in the container, which may come too late as well as its command.
func (r *execution) check(ctx context.Context, in string) (*activities.Error, error) {
	look := target.Scene{Engine: r.engine, Container: in, Prepare: r.prepare}
	return look.Check(ctx, r.step.Checks, activities.Live, activities.Live)
}

// prepare makes a command one of the step.
func (r *execution) prepare(ctx context.Context, c command.Command) (command.Command, error) {
	return r.backend.Enter(ctx, r.entry.Token, r.rec.Container, c.Marked(r.entry.Token))
}

// settle looks at the container after a command and writes down how the step ended.
func (r *execution) settle(ctx context.Context, kept string, ran run, failure *activities.Error) (target.Completion,
	error) {
	left, err := r.readAfter(ctx, ran.in)
	if err != nil {
		return target.Completion{}, err
	}
	name, log := engine.NameOf(r.rec.Container), r.logOf(ran.number)
	if failure == nil {
		failure = left.unkeepable(name)
	}
	said := outputs(ctx, ran.Ending, slices.Concat(left.changed, left.beside))
	said["log"] = log
	r.nameCheckpoint(said, kept)
	return r.finish(target.Completion{
		Container: ran.in, After: left.digest, Beside: left.beside, Running: left.running, Failure: failure,
		Result: activities.Result{
			Summary: fmt.Sprintf("ran in %s: %s (changed paths: %d)", name, r.params.title(ctx), len(left.changed)),
			Outputs: said, After: left.digest, Notes: r.notes(ran, left, log),
		},
	})
}

// notes are those of a result.
func (r *execution) notes(ran run, left aftermath, log string) (all []string) {
	if r.rec.Backend.Remark() != "" {
		all = append(all, r.rec.Backend.Fact())
	}
	all = append(all, r.params.costs(r.rec.Volumes)...)
	if ran.number > 1 {
		all = append(all, fmt.Sprintf("the command ran %s: the result of a run was lost, and the container was rolled "+
			"back to the step's checkpoint before the next", activities.CountOf(ran.number, "time")))
	}
	if stays := r.rec.withoutNodes(left.beside); len(stays) > 0 {
		all = append(all, "the command has changed what no rollback takes back: "+strings.Join(manifest.Few(stays), "; "))
	}
	if ran.More {
		all = append(all, fmt.Sprintf("outputs stdout and stderr are only the beginning; %s has all", log))
	}
	return all
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
func (r *execution) readAfter(ctx context.Context, in string) (aftermath, error) {
	var before manifest.Manifest
	var unloaded error
	var loading sync.WaitGroup
	loading.Go(func() { before, unloaded = manifest.Load(r.token.Dir(), beforeFile, r.rec.Before) })
	after, beside, err := r.backend.ReadAll(ctx, r.entry.Token, in, r.rec.Ignore)
	if err == nil {
		err = volumes.AddTo(ctx, after, r.rec.Volumes)
	}
	loading.Wait()
	switch {
	case unloaded != nil:
		return aftermath{}, unloaded
	case err != nil:
		return aftermath{}, errors.Join(r.token.CheckOpen(), err)
	}
	var now container.InspectResponse
	var unseen error
	var changed []string
	var looks sync.WaitGroup
	looks.Go(func() { now, unseen = r.engine.ContainerInspect(ctx, in) })
	looks.Go(func() { changed = before.Diff(after) })
	digest, err := after.Save(r.token.Dir(), target.AfterFile)
	looks.Wait()
	if err = errors.Join(err, engine.Explain("looking at the container after the step", unseen)); err != nil {
		return aftermath{}, errors.Join(r.token.CheckOpen(), err)
	}
	return aftermath{digest: digest, changed: changed, running: now.State.Running,
		beside: r.rec.diffUncovered(beside), deep: after.TooDeep(), long: after.TooLong()}, nil
}

// unkeepable is the failure of a step that has left in a container what cannot be kept.
func (l aftermath) unkeepable(name string) *activities.Error {
	if l.deep != "" {
		return activities.Errorf(activities.Unsuccessful,
			"the command has left folders in container %s that are nested deeper than %d (%s...): what is in them "+
				"cannot be kept", name, manifest.MostNested, l.deep)
	}
	if l.long != "" {
		return activities.Errorf(activities.Unsuccessful,
			"the command has left %s... in container %s: the name is longer than the container's own filesystem takes, so "+
				"it cannot be kept; give it a shorter name", l.long, name)
	}
	if at := manifest.FindMark(l.changed); at != "" {
		return activities.Errorf(activities.Unsuccessful,
			"the command has left %s in container %s: to container engines and storage drivers, a name that begins with %s "+
				"says that a file is deleted, so it cannot be kept; give it another name", at, name, manifest.MarkPrefix)
	}
	return nil
}

// outputs are those of a command.
func outputs(ctx context.Context, end command.Ending, changed []string) map[string]any {
	m := activities.MaskerFrom(ctx)
	first := func(said []byte, most int) string {
		text := m.String(string(said)) // masked before it is cut: half a secret is not found
		return strings.ToValidUTF8(text[:min(len(text), most)], "")
	}
	all := map[string]any{
		"stdout": first(end.Stdout, maxStdoutOutput), "stderr": first(end.Stderr, maxStderrOutput), "exit_code": end.Exit,
		"changed": len(changed) > 0,
	}
	if len(changed) > 0 {
		all["paths"] = manifest.Few(changed)
	}
	return all
}

// nameCheckpoint adds how the container as it was before the step is kept, and the image that it is
// in, if it is one.
func (r *execution) nameCheckpoint(outputs map[string]any, kept string) {
	delete(outputs, "checkpoint")
	is := r.backend.Traits()
	outputs["kept_by"] = is.Name
	if is.Images {
		outputs["checkpoint"] = kept
	}
}

// logOf is where all output of a run is.
func (a *application) logOf(number int) string {
	return filepath.Join(a.token.Dir(), command.LogName(number))
}

// finish writes down how the step ended, unless it has been undone.
func (a *application) finish(done target.Completion) (target.Completion, error) {
	if err := a.token.CheckOpen(); err != nil {
		return done, err
	}
	_, err := a.token.Create(journal.Applied, &done)
	point.Reach("container.exec:applied")
	return done, err
}
