package recovery

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Family is what was done about a task since it ended: its recoveries, rollbacks and redos, and
// theirs, in the order in which they were started.
type Family []Run

// Family finds what was done about a run, exactly but for rollbacks of parts: those are listed,
// which is at most seconds behind.
func (s Server) Family(ctx context.Context, run Run) (Family, error) {
	listed, err := s.Families(ctx, []string{run.Task})
	if err != nil {
		return nil, err
	}
	var family Family
	for _, each := range listed[run.Task] {
		if each.WorkflowID == run.WorkflowID {
			continue
		}
		if each, err = s.Describe(ctx, each.WorkflowID, ""); err != nil { // a list tells no first run
			return nil, err
		}
		family = append(family, each)
	}
	of := append(Family{run}, family...)
	for i := 0; i < len(of); i++ {
		for _, id := range []string{
			protocol.RecoverID(of[i].Chain), protocol.RollbackID(protocol.RollbackRequest{Chain: of[i].Chain}),
			protocol.RedoID(of[i].Chain),
		} {
			if slices.ContainsFunc(of, func(r Run) bool { return r.WorkflowID == id }) {
				continue
			}
			found, err := s.Describe(ctx, id, "")
			if WhyOf(err) == Unknown {
				continue
			}
			if err != nil {
				return nil, err
			}
			of, family = append(of, found), append(family, found)
		}
	}
	return family.since(run).sort(), nil
}

// Families lists what was done about each of some tasks.
func (s Server) Families(ctx context.Context, tasks []string) (map[string]Family, error) {
	families := map[string]Family{}
	for batch := range slices.Chunk(tasks, maxListedTasks) {
		var literals []string
		for _, task := range batch {
			literals = append(literals, strconv.Quote(task))
		}
		request := &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: s.Namespace,
			Query: fmt.Sprintf("WorkflowType IN ('%s', '%s', '%s') AND ExecutionStatus != 'ContinuedAsNew' AND %s IN (%s)",
				protocol.RecoverType, protocol.RollbackType, protocol.RedoType, protocol.AttributeTask.GetName(),
				strings.Join(literals, ", ")),
		}
		for {
			page, err := s.Client.ListWorkflow(ctx, request)
			if err != nil {
				return nil, fmt.Errorf("list what was done about tasks: %w", err)
			}
			for _, e := range page.GetExecutions() {
				run := Run{
					Chain: protocol.Chain{WorkflowID: e.GetExecution().GetWorkflowId(), RunID: e.GetExecution().GetRunId()},
					Type:  e.GetType().GetName(), Status: e.GetStatus(),
				}
				if err := s.readInfo(&run, e); err != nil {
					return nil, err
				}
				families[run.Task] = append(families[run.Task], run)
			}
			if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
				break
			}
		}
	}
	for task, family := range families {
		families[task] = family.sort()
	}
	return families, nil
}

// maxListedTasks is how many tasks one query of the visibility store names.
const maxListedTasks = 100

func (f Family) sort() Family {
	slices.SortStableFunc(f, func(a, b Run) int { return a.Started.Compare(b.Started) })
	return f
}

// since are those that are about a run, or about one of them.
func (f Family) since(run Run) Family {
	about := map[string]bool{run.WorkflowID: true}
	for grown := true; grown; {
		grown = false
		for _, r := range f {
			if about[r.Of] && !about[r.WorkflowID] {
				about[r.WorkflowID], grown = true, true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(f),
		func(r Run) bool { return !about[r.WorkflowID] || r.WorkflowID == run.WorkflowID })
}

// Of says in words how a workflow stands now that its family has acted, "rolled back", and what
// made it so; both are empty where nothing was done about it.
func (f Family) Of(id string) (now string, by Run) {
	of := slices.DeleteFunc(f.since(Run{Chain: protocol.Chain{WorkflowID: id}}), Run.Refused)
	if len(of) == 0 {
		return "", Run{}
	}
	last := of[len(of)-1]
	for _, r := range slices.Backward(of) { // what is under way, or has died, needs attention first
		if !r.Alive() && !HasEnded(r.Status) {
			return "acted on by a workflow with the " + DescribeUnknown(r.Status), r
		}
		if r.Alive() || r.Dead() && len(of.childrenOf(r, protocol.RecoverType)) == 0 {
			verb := map[string]string{protocol.RecoverType: "recovered", protocol.RollbackType: "rolled back",
				protocol.RedoType: "redone"}[r.Type]
			if r.Alive() {
				return "being " + verb, r
			}
			return "was being " + verb + ", which was " + r.Ending(), r
		}
	}
	back := of.rolledBack(id)
	switch {
	case back.whole:
		return back.remainsOf("rolled back"), last
	case back.part:
		return back.remainsOf("rolled back in part"), last
	case last.Type == protocol.RecoverType:
		return standing{remains: last.Unwind == compensations.Remains}.remainsOf("recovered"), last
	case slices.ContainsFunc(of,
		func(r Run) bool { return r.Type == protocol.RedoType && r.Unwind == compensations.Partly }):
		return "redone in part", last
	case slices.ContainsFunc(of, func(r Run) bool { return r.Type == protocol.RedoType && r.Done() }):
		return "redone", last
	}
	return "", Run{}
}

// standing says whether all of what a workflow did is rolled back now, or a part of it, and whether
// that has left something behind.
type standing struct{ whole, part, remains bool }

// remainsOf adds to words for an undoing what it has left behind.
func (s standing) remainsOf(words string) string {
	if s.remains {
		return words + " with remains"
	}
	return words
}

func (f Family) rolledBack(id string) (now standing) {
	for _, back := range f.childrenOf(Run{Chain: protocol.Chain{WorkflowID: id}}, protocol.RollbackType) {
		one := standing{back.Part == "", back.Part != "", f.leftRemains(back)}
		for _, redo := range f.childrenOf(back, protocol.RedoType) {
			if redo.Done() {
				again := f.rolledBack(redo.WorkflowID)
				one = standing{
					one.whole && again.whole, again.part || one.part && again.whole || back.Part == "" && !again.whole && again.part,
					again.remains,
				}
			}
		}
		now = standing{now.whole || one.whole, now.part || one.part, now.remains || one.remains}
	}
	return now
}

// leftRemains reports whether a rollback, or what recovered it, has left something as it was not
// before.
func (f Family) leftRemains(back Run) bool {
	return back.Unwind == compensations.Remains ||
		slices.ContainsFunc(f.childrenOf(back, protocol.RecoverType), f.leftRemains)
}

func (f Family) childrenOf(run Run, workflowType string) Family {
	return slices.DeleteFunc(slices.Clone(f), func(r Run) bool { return r.Of != run.WorkflowID || r.Type != workflowType })
}

// Next is what can be done about a workflow now that its family has acted: "rollback", "redo",
// "recover" or "watch", and the id that it takes; both are empty where nothing can. run is the
// workflow itself.
func (f Family) Next(run Run) (verb, id string) {
	of := append(Family{run}, f.since(run)...)
	for _, r := range slices.Backward(of) {
		switch {
		case r.Alive():
			return "watch", r.WorkflowID
		case r.Dead() && len(of.childrenOf(r, protocol.RecoverType)) == 0:
			return "recover", r.WorkflowID
		}
	}
	for _, r := range slices.Backward(of) { // the last one that nothing has been done about yet
		switch {
		case r.Done() && slices.Contains(GoForward, r.Type) && len(of.childrenOf(r, protocol.RollbackType)) == 0:
			return "rollback", r.WorkflowID
		// it has ended, or its recovery has
		case r.Type == protocol.RollbackType && !r.Refused() && len(of.childrenOf(r, protocol.RedoType)) == 0:
			return "redo", r.WorkflowID
		}
	}
	return "", ""
}
