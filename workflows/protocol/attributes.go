package protocol

import (
	"fmt"
	"net/url"
	"strconv"

	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/payload"
)

// ServingAttributes are what a workflow is started with that serves a task: it is open from its
// first event on.
func ServingAttributes(agent, task string) temporal.SearchAttributes {
	updates := []temporal.SearchAttributeUpdate{AttributeStatus.ValueSet(string(compensations.Open))}
	if task != "" {
		updates = append(updates, AttributeTask.ValueSet(task))
	}
	if agent != "" {
		updates = append(updates, AttributeAgent.ValueSet(agent))
	}
	return temporal.NewSearchAttributes(updates...)
}

// MemoName is the memo that holds a task's name, for lists: a search attribute would have to be
// registered.
const MemoName = "unwindName"

// NameMemo is the memo that a client starts a task with.
func NameMemo(name string) map[string]any {
	return map[string]any{MemoName: payload.Clip(name, payload.MaxName)}
}

// StuckMark stands in the search attribute where otherwise the first parked step does, of a task
// that is stuck. No step has this id.
const StuckMark = "(stuck)"

// AllAbout is a link, as Markdown, to all that serves a task.
func AllAbout(namespace, task string) string {
	return fmt.Sprintf("[All about task %s](%s)", task, TaskLink(namespace, task))
}

// TaskLink is where the Temporal UI lists all that serves a task, without the address of the UI.
func TaskLink(namespace, task string) string {
	query := url.Values{"query": {AttributeTask.GetName() + " = " + strconv.Quote(task)}}
	return "/namespaces/" + url.PathEscape(namespace) + "/workflows?" + query.Encode()
}
