package environments

import (
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// tasks asks each host which tasks have changed the parts that it has.
func (k *keeper) tasks(ctx workflow.Context) (environment.Tasks, error) {
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
		if err := k.callWithin(ctx, hostPatience, host, "ask host "+host+" which tasks have changed its parts",
			environment.WritesActivity, r, &told); err != nil {
			return all, protocol.RefuseRequestf(environment.Failed,
				"host %s has not told which tasks have changed parts there, and nothing was touched: %s", host,
				compensations.Reason(err))
		}
		all.Add(told)
	}
	return all, nil
}

// goPast finds the tasks whose changes a rollback to a checkpoint takes back. It refuses to take any
// from a task that has not ended, except from the one that asks itself.
func (k *keeper) goPast(ctx workflow.Context, to environment.Checkpoint,
	s *environment.Step) (past []environment.TaskWrote, notes []string, err error) {
	all, err := k.tasks(ctx)
	if err != nil {
		return nil, nil, err
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
