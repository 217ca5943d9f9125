package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-62bf7108/unwind/examples/shop"
	"github.com/seed-62bf7108/unwind/starter/render"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// playEnvironment sets up a shop, plays the story of its upgrade, and clears the shop away.
func (p *program) playEnvironment(ctx context.Context, stay bool) (err error) {
	if err := shop.Missing(); err != nil {
		return fmt.Errorf("the example environment cannot be played here: %w", err)
	}
	s, err := shop.Set(ctx, p.streams.Err)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	l, err := p.startDemo(ctx, s.Config())
	if err != nil {
		return err
	}
	defer l.Stop()
	d, err := s.Environment()
	if err != nil {
		return err
	}
	if err := l.ApplyEnvironment(ctx, d, l.Worker.Config.Queue); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.forgetEnvironment(context.WithoutCancel(ctx), l.Client, d.Name)) }()
	p.printf("environment %s\nits parts are in %s\n", d.Name, s.Folder)
	link := l.RunLink(environment.WorkflowID(d.Name), "")
	if link != "" {
		p.printf("see  %s\n", link)
	}
	err = s.Play(ctx, shopOperator{p, l.Client, d.Name}, p.streams.Out)
	if ctx.Err() != nil {
		return ctx.Err() // what Play says of it is in the words of a client
	}
	if err != nil {
		return err
	}
	if link != "" {
		p.printf("\nthe environment in the Temporal UI: %s\n", link)
	}
	return p.stayUp(ctx, l, stay)
}

// forgetEnvironment removes an environment whose parts are about to be removed, once what was
// interrupted has unwound.
func (p *program) forgetEnvironment(ctx context.Context, c *tasks.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupLimit)
	defer cancel()
	if v, err := c.Environment(ctx, name); err == nil && v.Doing != nil && v.Doing.Task != "" {
		p.abandonTask(ctx, c, tasks.Run{ID: v.Doing.Task})
	}
	if err := c.AskEnvironment(ctx, name, environment.UpdateRemove, new(environment.Pruned)); err == nil {
		return nil
	}
	return c.TerminateWorkflow(ctx, environment.WorkflowID(name), "", "the demo has ended, and removes the parts")
}

// shopOperator does what the commands of `starter env` do, and prints what they print.
type shopOperator struct {
	*program
	client *tasks.Client
	name   string
}

func (o shopOperator) Checkpoint(ctx context.Context, notes string) (taken environment.Checkpoint, err error) {
	r := environment.CheckpointRequest{ID: tasks.NewCheckpointID(), Trigger: environment.Deploy, Notes: notes,
		Who: currentUser()}
	o.printf("$ starter env checkpoint %s --notes %q\n", o.name, notes)
	err = o.client.AskEnvironment(ctx, o.name, environment.UpdateCheckpoint, &taken, r)
	if err == nil {
		render.Checkpoints(o.streams.Out, []environment.Checkpoint{taken})
	}
	return taken, err
}

func (o shopOperator) RollBack(ctx context.Context, to string) (done environment.RolledBack, err error) {
	r := environment.RollbackRequest{To: to, Safety: tasks.NewCheckpointID(), Who: currentUser()}
	o.printf("$ starter env rollback %s %s\n", o.name, to)
	done, err = o.client.RollBackEnvironment(ctx, o.name, r, func(s environment.Passed) { render.Stage(o.streams.Out, s) })
	if err == nil {
		render.WayForward(o.streams.Out, done)
	}
	return done, err
}

func (o shopOperator) Compare(ctx context.Context, from, to string) error {
	var found environment.Comparison
	o.printf("$ starter env diff %s %s %s\n", o.name, from, to)
	r := environment.CompareRequest{ID: tasks.NewCheckpointID(), From: from, To: to, Who: currentUser()}
	err := o.client.AskEnvironment(ctx, o.name, environment.UpdateCompare, &found, r)
	if err == nil {
		render.Comparison(o.streams.Out, found)
	}
	return err
}
