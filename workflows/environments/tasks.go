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

// goPast finds the tasks whose changes a rollback to a checkpoint takes back. It refuses to take any
// from a task that has not ended, except from the one that asks itself.
func (k *keeper) goPast(ctx workflow.Context, to environment.Checkpoint,
	s *environment.Step) (past []environment.TaskWrote, notes []string, err error) {
	all, err := k.askTasks(ctx, hostPatience, func(_ *environment.Tasks, host string, err error) error {
		return protocol.RefuseRequestf(environment.Failed,
			"host %s has not told which tasks have changed parts there, and nothing was touched: %s", host,
			compensations.Reason(err))
	})
	if err != nil {
		return nil, nil, err
	}
	for _, p := range to.Parts { // a failed look is no finding
		if slices.Contains(all.Blind, p.Name) && k.Has(p) {
			return nil, nil, protocol.RefuseRequestf(environment.Busy,
				"whether a task that has not ended has changed %s cannot be told now, and nothing was touched; try again: %s",
				p.Name, strings.Join(all.Unread, "; "))
		}
	}
	isOwn := func(t environment.TaskWrote) bool { return s != nil && t.Task == s.Task }
	for _, t := range all.Tasks {
		touches := slices.ContainsFunc(to.Parts, func(p environment.KeptPart) bool {
			return k.Has(p) && slices.Contains(t.Parts, p.Name)
		})
		if t.Open && touches && !isOwn(t) {
			return nil, nil, protocol.RefuseRequestf(environment.Busy,
				"task %s has not ended, and has changed %s: wait for it, or end it; nothing was touched", t.Task,
				strings.Join(t.Parts, ", "))
		}
	}
	past = slices.DeleteFunc(all.Past(to), isOwn)
	if to.Created.Before(all.Since) {
		notes = append(notes, "which tasks have changed its parts before "+all.Since.UTC().Format(time.RFC3339)+
			" is not known any more")
	}
	for _, what := range all.Unread {
		notes = append(notes, "which tasks have changed its parts is not known for all: "+what)
	}
	return past, notes, nil
}
