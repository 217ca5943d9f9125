package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/container/engine"
	"github.com/seed-62bf7108/unwind/activities/container/overlay/stack"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// Limits on what is returned of the output.
const (
	maxStdoutOutput = 8 << 10
	maxFailureTail  = 3 << 10
)

// application is one call of Apply.
type application struct {
	*execAction
	entry  activities.Entry
	step   activities.Step
	params params
	token  *journal.Token
	rec    record
	notes  []string
}

func (x *execAction) Apply(ctx context.Context, e activities.Entry, s activities.Step, want activities.Digest) (activities.Result, error) {
	p, err := decode(s)
	if err != nil {
		return activities.Result{}, err
	}
	t, err := x.token(ctx, e)
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
	if done, found, err := readApplied(t); found || err != nil {
		return result(done, err)
	}
	a := &application{execAction: x, entry: e, step: s, params: p, token: t}
	if err := a.capture(ctx, want); err != nil {
		return activities.Result{}, err
	}
	if a.rec.Chosen.Why != "" {
		a.notes = append(a.notes, a.rec.Chosen.fact())
	}
	if !a.rec.ReadOnly && a.rec.Redo == nil {
		a.notes = append(a.notes, p.costs(a.rec.Volumes)...)
	}
	point.Reach("container.exec:recorded")
	if a.rec.ReadOnly {
		return result(a.read(ctx))
	}
	return result(a.change(ctx))
}

func result(done applied, err error) (activities.Result, error) {
	if err != nil {
		return activities.Result{}, err
	}
	return done.answer()
}

// capture makes the record, or reads the one that an earlier attempt has made.
func (a *application) capture(ctx context.Context, want activities.Digest) (err error) {
	rec, found, err := readRecord(a.token)
	if a.rec = rec; found || err != nil {
		return err
	}
	again, err := a.aim(ctx)
	if err != nil {
		return err
	}
	if !a.rec.ReadOnly {
		if err := a.token.Make(); err != nil { // who finds the lease looks for its step
			return err
		}
		waited, err := a.leases.Take(ctx, nameOf(a.rec.Container), a.entry)
		if err == nil && waited { // it may be another container by now
			again, err = a.aim(ctx)
		}
		if err != nil {
			return err
		}
	}
	if a.rec.Chosen.Layers {
		if a.rec.Beside, err = a.choice.layers.beside(ctx, a.rec.Container.ID); err != nil {
			return err
		}
	}
	a.rec.Owned, a.rec.Want = journal.Own(ctx, a.entry), want
	recorded := false
	defer func() {
		if !recorded {
			err = errors.Join(err, dropVolumes(a.token, record{}))
		}
	}()
	var before, seen manifest
	if !a.rec.ReadOnly {
		if before, seen, err = a.lookBefore(ctx, again, want != ""); err != nil {
			return err
		}
		a.rec.Before = before.digest()
	}
	kept := activities.Digest("")
	if again != nil {
		if err := again.unchanged(seen); err != nil {
			return err
		}
		if err := a.take(again); err != nil {
			return err
		}
		kept = again.Kept.After
	}
	if want != "" && want != changeDigest(ctx, a.params, a.rec.Container, seen, kept) {
		return activities.Errorf(activities.StaleApproval, "the command, or the filesystem of %s, is not what was approved", nameOf(a.rec.Container))
	}
	if before != nil {
		if err := before.save(a.token.Dir(), beforeFile); err != nil {
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

// aim finds the container, and for a redo what to put back there.
func (a *application) aim(ctx context.Context) (*comeback, error) {
	again, err := a.comebackOf(ctx, a.entry)
	if err != nil {
		return nil, err
	}
	if again != nil {
		a.rec = record{Container: again.target, Ignore: again.ignore, Chosen: again.chosen}
		return again, nil
	}
	target, err := a.find(ctx, a.params.Container)
	if err != nil {
		return nil, err
	}
	a.rec = record{Container: target, Ignore: a.params.ignored()}
	if a.rec.Chosen, a.rec.ReadOnly, err = a.chooseFor(ctx, a.params, target); err == nil && !a.rec.ReadOnly {
		a.rec.Volumes, err = a.volumesOf(ctx, a.params, target)
	}
	return nil, err
}

// chooseFor decides how a step's checkpoint is taken, or that it needs none. A layer costs so little that nothing has to be
// proven: it is taken for what only reads too.
func (x *execAction) chooseFor(ctx context.Context, p params, target container.InspectResponse) (by chosen, reads bool, err error) {
	if by, err = x.choice.of(ctx, target); err != nil || by.Layers {
		return by, false, err
	}
	if reads, err = x.readsOnly(ctx, p, target); reads {
		by = chosen{}
	}
	return by, reads, err
}

// lookBefore is what later looks are compared with, and what an approval covers where there is one, or a redo finds. A
// checkpoint in layers is compared with itself: nothing is read before it is taken. Of volumes it is what is in the copies.
func (a *application) lookBefore(ctx context.Context, again *comeback, approved bool) (before, found manifest, err error) {
	switch {
	case again != nil:
		found, err = again.look(ctx)
	case approved || !a.rec.Chosen.Layers:
		found, err = takeManifest(ctx, a.engine, a.rec.Container.ID, a.rec.Ignore)
	}
	before = found
	if a.rec.Chosen.Layers {
		before = manifest{}
	}
	if err != nil {
		return nil, nil, err
	}
	return before, found, a.keepVolumes(before, found)
}

// read runs a command that changes nothing. It needs no fence, and losing its result costs another run.
func (a *application) read(ctx context.Context) (applied, error) {
	out, stdout := &bytes.Buffer{}, &firstBytes{}
	log := newLog(out)
	exit, err := a.runHere(ctx, a.rec.Container.ID, a.params.command(), io.MultiWriter(log, stdout), log)
	if errors.Is(err, errNotRun) {
		return a.finish(applied{Container: a.rec.Container.ID, Failure: activities.Errorf(activities.ActionDenied, "%v", err)})
	}
	if err != nil {
		return applied{}, engine.Explain("running the command in "+nameOf(a.rec.Container), err)
	}
	if err := log.finish(); err != nil {
		return applied{}, err
	}
	point.Reach("container.exec:read")
	done := applied{Container: a.rec.Container.ID, Running: true}
	if done.Failure = a.failure(ctx, exit, out.String()); done.Failure == nil {
		if done.Failure, err = a.check(ctx, done.Container); err != nil {
			return applied{}, err
		}
	}
	done.Result = activities.Result{
		Summary: fmt.Sprintf("read in %s: %s", nameOf(a.rec.Container), a.title(ctx)),
		Outputs: a.outputs(ctx, stdout.kept, exit, false),
		After:   activities.DigestOf(stdout.kept),
	}
	return a.finish(done)
}

// change runs a command that may change something: checkpoint, ticket, exec, result, manifest.
func (a *application) change(ctx context.Context) (applied, error) {
	if err := a.checkpoint(ctx); err != nil {
		return applied{}, err
	}
	if err := a.takeTicket(ctx); err != nil {
		return applied{}, err
	}
	point.Reach("container.exec:ticket-taken")
	if a.rec.Redo != nil {
		return a.putBack(ctx)
	}
	n, in, end, err := a.attempts(ctx)
	if err != nil {
		return applied{}, err
	}
	point.Reach("container.exec:command-ended")
	if end.Refused != "" {
		return a.settle(ctx, in, n, end, activities.Errorf(activities.ActionDenied, "%s", end.Refused))
	}
	said, err := endOf(filepath.Join(a.token.Dir(), logName(n)))
	if err != nil {
		return applied{}, err
	}
	failure := a.failure(ctx, end.Exit, said)
	if failure == nil {
		if failure, err = a.check(ctx, in); err != nil {
			return applied{}, err
		}
	}
	return a.settle(ctx, in, n, end, failure)
}

// checkpoint keeps the filesystem, once.
func (a *application) checkpoint(ctx context.Context) error {
	var at checkpointAt
	if found, err := a.token.Read(checkpointDoc, &at); found || err != nil {
		return err
	}
	var err error
	if at.Checkpoint, err = a.keeper(a.rec).take(ctx, a.entry.Token, a.rec.Container.ID); err != nil {
		return err
	}
	point.Reach("container.exec:checkpoint-taken")
	_, err = a.token.Create(checkpointDoc, &at)
	return err
}

// takeTicket is the last thing that an undo can forestall: whoever writes the document first, holds it.
func (a *application) takeTicket(ctx context.Context) error {
	err := a.token.CheckOpen()
	if err == nil {
		holder := ticket{forwardHolds}
		if _, err = a.token.Create(ticketDoc, &holder); err == nil && holder.Holder != forwardHolds {
			err = activities.Errorf(activities.Fenced, "the step has been undone: this forward came too late")
		}
	}
	if activities.TypeOf(err) == activities.Fenced { // the undo may have looked before the checkpoint was there
		return errors.Join(err, a.keeper(a.rec).drop(ctx, a.entry.Token, a.rec.Container.ID))
	}
	return err
}

// left is what a step has left.
type left struct {
	digest  activities.Digest
	changes int
	running bool
	// deep begins the path of a folder that is nested too deep.
	deep string
}

// lookAfter keeps the manifest of what the step has left in a container.
func (a *application) lookAfter(ctx context.Context, in string) (left, error) {
	before, err := loadManifest(a.token.Dir(), beforeFile, a.rec.Before)
	if err != nil {
		return left{}, err
	}
	after, err := a.keeper(a.rec).look(ctx, a.entry.Token, in, a.rec.Ignore)
	if err == nil {
		err = after.addVolumes(a.rec.Volumes)
	}
	if err == nil {
		err = after.save(a.token.Dir(), afterFile)
	}
	if err != nil {
		return left{}, errors.Join(a.token.CheckOpen(), err)
	}
	now, err := a.engine.ContainerInspect(ctx, in)
	if err != nil {
		return left{}, errors.Join(a.token.CheckOpen(), engine.Explain("looking at the container after the step", err))
	}
	return left{digest: after.digest(), changes: len(before.diff(after)), running: now.State.Running, deep: after.deep()}, nil
}

// settle looks at the container after a command and writes down how the step ended.
func (a *application) settle(ctx context.Context, in string, n int, end ended, failure *activities.Error) (applied, error) {
	left, err := a.lookAfter(ctx, in)
	if err != nil {
		return applied{}, err
	}
	beside, err := a.besides(ctx, a.rec, in)
	if err != nil {
		return applied{}, err
	}
	if left.deep != "" && failure == nil {
		failure = activities.Errorf(activities.ActionDenied,
			"the command has left folders in container %s that are nested deeper than %d (%s...): what is in them cannot be kept", nameOf(a.rec.Container), stack.MostNested, left.deep)
	}
	if len(beside) > 0 {
		a.notes = append(a.notes, "the command has changed what no rollback takes back: "+strings.Join(few(beside), "; "))
	}
	outputs := a.outputs(ctx, end.Stdout, end.Exit, left.changes+len(beside) > 0)
	outputs["log"] = filepath.Join(a.token.Dir(), logName(n))
	if err := a.nameCheckpoint(outputs); err != nil {
		return applied{}, err
	}
	if end.More {
		a.notes = append(a.notes, fmt.Sprintf("output stdout is only the beginning; %s has all", outputs["log"]))
	}
	return a.finish(applied{
		Container: in, After: left.digest, Beside: beside, Running: left.running, Failure: failure,
		Result: activities.Result{
			Summary: fmt.Sprintf("ran in %s: %s (%d paths changed)", nameOf(a.rec.Container), a.title(ctx), left.changes),
			Outputs: outputs, After: left.digest, Notes: a.notes,
		},
	})
}

func (a *application) finish(done applied) (applied, error) {
	if err := a.token.CheckOpen(); err != nil {
		return done, err
	}
	_, err := a.token.Create(journal.Applied, &done)
	point.Reach("container.exec:applied")
	return done, err
}

func (a *application) outputs(ctx context.Context, stdout []byte, exit int, changed bool) map[string]any {
	said := activities.MaskerFrom(ctx).String(string(stdout)) // masked before it is cut: half a secret is not found
	if len(said) > maxStdoutOutput {
		said = strings.ToValidUTF8(said[:maxStdoutOutput], "")
	}
	return map[string]any{"stdout": said, "exit_code": exit, "changed": changed}
}

// nameCheckpoint adds how the container as it was before the step is kept, and the image that it is in: layers are none.
func (a *application) nameCheckpoint(outputs map[string]any) error {
	delete(outputs, "checkpoint")
	if outputs["kept_by"] = "layers"; a.rec.Chosen.Layers {
		return nil
	}
	outputs["kept_by"] = "docker commit"
	var at checkpointAt
	_, err := a.token.Read(checkpointDoc, &at)
	outputs["checkpoint"] = at.Checkpoint
	return err
}

// title is the command in one short line.
func (a *application) title(ctx context.Context) string {
	return titleOf(activities.MaskerFrom(ctx).String(a.params.String()))
}

// titleOf cuts a text that holds no secret any more.
func titleOf(command string) string {
	line, more, _ := strings.Cut(strings.TrimSpace(command), "\n")
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
		Type:    activities.ActionDenied,
		Message: fmt.Sprintf("%s: exit status %d in container %s", a.title(ctx), exit, nameOf(a.rec.Container)),
		Output:  activities.Tail(m.String(said), maxFailureTail),
	}
}

// check runs the step's checks in the container. One that does not hold is the step's failure; any other error is not.
func (a *application) check(ctx context.Context, in string) (*activities.Error, error) {
	err := activities.RunChecks(ctx, a.step.Checks, activities.Live, activities.Live, stepScene{scene{a.execAction, in}, a})
	var failed *activities.Error
	if errors.As(err, &failed) && failed.Type.Final() {
		return failed, nil
	}
	return nil, err
}
