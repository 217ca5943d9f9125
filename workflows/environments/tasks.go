package environments

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// tasksPatience is how long somebody who only looks waits for a host.
const tasksPatience = 10 * time.Second

// tasks asks each host which tasks have changed the parts that it has, for somebody who looks. What
// a host does not tell soon is not known.
func (k *keeper) tasks(ctx workflow.Context) (environment.Tasks, error) {
	return k.askTasks(ctx, tasksPatience, func(all *environment.Tasks, host string, err error) error {
		all.Silent = append(all.Silent, host)
		all.Unread = append(all.Unread, fmt.Sprintf("host %s does not answer: %s", host, compensations.Reason(err)))
		return nil
	})
}

// askTasks asks each host; unheard says what becomes of one that does not answer in time.
func (k *keeper) askTasks(ctx workflow.Context, patience time.Duration,
	unheard func(all *environment.Tasks, host string, err error) error) (environment.Tasks, error) {
	all := environment.Tasks{Tasks: []environment.TaskWrote{}}
	if err := workflow.Await(ctx, func() bool { return k.isRead }); err != nil {
		return all, err
	}
	for _, host := range append([]string{k.home}, k.Hosts(k.home)...) {
		r := environment.WritesRequest{Environment: k.Name, Parts: k.NamesOn(host, k.home)}
		if len(r.Parts) == 0 {
			continue
		}
		var told environment.Writes
		err := k.callWithin(ctx, patience, host, "ask host "+host+" which tasks have changed its parts",
			environment.WritesActivity, r, &told)
		if err == nil {
			all.Add(told)
		} else if err := unheard(&all, host, err); err != nil {
			return all, err
		}
	}
	return all, nil
}

// going is a rollback that is under way.
type going struct {
	task string
	to   environment.Checkpoint
	// asker is the task that has asked for it; empty: none has. Own is what it has changed itself.
	asker string
	own   *environment.TaskWrote
	// past are the tasks that it goes past, and more is how many more; notes say which are not known.
	past  []environment.TaskWrote
	more  int
	notes []string
}

// pastAgain looks a second time, for the task of a rollback that is about to stop the unit: another
// one may have begun meanwhile, and verifying may wait for a person.
func (k *keeper) pastAgain(ctx workflow.Context, task string) (int, error) {
	g := k.going
	if g == nil || g.task != task {
		return 0, protocol.RefuseRequestf(environment.Bad, "task %s is no rollback of environment %s that is under way", task,
			k.Name)
	}
	err := k.goPast(ctx, g, environment.Open)
	return len(g.past) + g.more, err
}

// goPast finds the tasks whose changes a rollback to a checkpoint takes back. It refuses to take any
// from a task that has not ended, except from the one that has asked for the rollback: open is the type
// of that error.
func (k *keeper) goPast(ctx workflow.Context, g *going, open string) error {
	all, err := k.askTasks(ctx, hostPatience, func(_ *environment.Tasks, host string, err error) error {
		return protocol.RefuseRequestf(environment.Failed,
			"host %s has not told which tasks have changed parts there, and nothing was touched: %s", host,
			compensations.Reason(err))
	})
	if err != nil {
		return err
	}
	for _, p := range g.to.Parts { // a failed look is no finding
		if slices.Contains(all.Blind, p.Name) && k.Has(p) {
			return protocol.RefuseRequestf(environment.Busy,
				"whether a task that has not ended has changed %s cannot be told now, and nothing was touched; try again: %s",
				p.Name, strings.Join(all.Unread, "; "))
		}
	}
	isOwn := func(t environment.TaskWrote) bool { return t.Task == g.asker }
	for _, t := range all.Tasks {
		touches := slices.ContainsFunc(g.to.Parts, func(p environment.KeptPart) bool {
			return k.Has(p) && slices.Contains(t.Names(), p.Name)
		})
		if t.Open && touches && !isOwn(t) {
			return protocol.RefuseRequestf(open,
				"task %s has not ended, and has changed %s: wait for it, or end it; nothing was touched", t.Task,
				strings.Join(t.Names(), ", "))
		}
	}
	to := g.to
	to.Parts = slices.DeleteFunc(slices.Clone(to.Parts), func(p environment.KeptPart) bool { return !k.Has(p) })
	past := all.Past(to)
	g.own = nil
	if i := slices.IndexFunc(past, isOwn); i >= 0 {
		own := past[i]
		g.own, past = &own, slices.Delete(past, i, i+1)
	}
	g.past, g.more = environment.FitPast(past)
	g.notes = all.Unknown(to)
	return nil
}
