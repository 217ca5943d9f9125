package recovery

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// startOnce starts a workflow about the run from, on that run's task queue. Its id can be used
// once, ever.
func (s Server) startOnce(ctx context.Context, from Run, id, workflowType, summary, part string, request any) (Run,
	error) {
	run, err := s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: from.Queue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		TypedSearchAttributes:                    protocol.ServingAttributes(from.Agent, from.Task),
		Memo: map[string]any{memoTask: from.Task, memoOf: from.WorkflowID,
			memoPart: part},
		StaticSummary: strings.TrimSpace(summary + " " + part),
		StaticDetails: s.describeService(from, summary, part),
	}, workflowType, request)
	if _, taken := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); taken {
		other, err := s.Describe(ctx, id, "")
		if err != nil {
			return Run{}, err
		}
		return Run{}, refuseTaken(from, other)
	}
	if err != nil {
		return Run{}, fmt.Errorf("start %s: %w", id, err)
	}
	return s.Describe(ctx, run.GetID(), run.GetRunID())
}

// describeService says, as Markdown for the Temporal UI, what a workflow is about, with links there
// and to all that serves the same task.
func (s Server) describeService(from Run, summary, part string) string {
	namespace := "/namespaces/" + url.PathEscape(s.Namespace)
	text := fmt.Sprintf("**%s**: [%s](%s/workflows/%s/%s/user-metadata)", strings.TrimSpace(summary+" "+part),
		from.WorkflowID,
		namespace, url.PathEscape(from.WorkflowID), from.RunID)
	return text + "\n\n" + protocol.AllAbout(s.Namespace, from.Task)
}

// refuseTaken refuses what the workflow by is doing to of, or has done.
func refuseTaken(of, by Run) error {
	verb := map[string]string{
		protocol.RecoverType: "recovered", protocol.RollbackType: "rolled back", protocol.RedoType: "redone",
	}[by.Type]
	switch {
	case by.Alive():
		return refusef(Taken, by.WorkflowID, "%s is already being %s by %s", of.WorkflowID, verb, by.WorkflowID)
	case by.Dead():
		return refusef(Dead, by.WorkflowID, "%s was being %s by %s, which was itself %s: recover that", of.WorkflowID, verb,
			by.WorkflowID, by.Ending())
	case by.Refused():
		return refusef(Taken, by.WorkflowID,
			"%s was refused, touched nothing, and is not started twice: roll %s back in parts", by.WorkflowID, of.WorkflowID)
	}
	if by.Type == protocol.RedoType && !by.Done() {
		return refusef(Taken, by.WorkflowID,
			"%s could not redo %s, was undone itself, and is not started twice: run the task again", by.WorkflowID,
			of.WorkflowID)
	}
	return refusef(Taken, by.WorkflowID, "%s was already %s by %s", of.WorkflowID, verb, by.WorkflowID)
}
