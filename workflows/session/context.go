package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// A context is what an agent must know to go on from a place, such as its conversation. It lies in
// a journal of a worker's host, with mode 0600, until the session is over. The history has only its
// name, digest and size.

// KeepContext gives the session a context of its agent, for the present place. It can have about a
// megabyte, compressed.
func (s Session) KeepContext(ctx context.Context, request, name string, content []byte) (protocol.Answer, error) {
	kept, err := s.deliver(ctx, content)
	if err != nil {
		return protocol.Answer{}, err
	}
	kept.Name = name
	return s.send(ctx, protocol.UpdateContext, request, kept)
}

// SavepointWith names the place behind everything that is done, and gives the session the context
// of its agent there: Rollback answers with it.
func (s Session) SavepointWith(ctx context.Context, request, name string, content []byte) (protocol.Answer, error) {
	kept, err := s.deliver(ctx, content)
	if err != nil {
		return protocol.Answer{}, err
	}
	kept.Name = name
	return s.send(ctx, protocol.UpdateSavepoint, request, protocol.SavepointRequest{Name: name, Context: &kept})
}

// LastContext tells an agent where it stands: its last context, and the steps that were done since.
// The context is zero if it has given none, or none that was not undone since.
func (s Session) LastContext(ctx context.Context) (c protocol.Context, content []byte, since []string, err error) {
	view, err := s.view(ctx)
	if err != nil {
		return c, nil, nil, err
	}
	if n := len(view.Contexts); n > 0 {
		c = view.Contexts[n-1]
		content, err = s.ReadContext(ctx, c)
	}
	return c, content, view.Since, err
}

// ContextOf returns the context of a savepoint.
func (s Session) ContextOf(ctx context.Context, savepoint string) (c protocol.Context, content []byte, err error) {
	view, err := s.view(ctx)
	if err != nil {
		return c, nil, err
	}
	i := slices.IndexFunc(view.Contexts, func(c protocol.Context) bool { return c.Savepoint == savepoint })
	if i < 0 {
		return c, nil, Refusal{protocol.BadRequest, fmt.Sprintf("savepoint %q has no context", savepoint)}
	}
	content, err = s.ReadContext(ctx, view.Contexts[i])
	return view.Contexts[i], content, err
}

// ContextOfBranch returns the last context that was given in a branch.
func (s Session) ContextOfBranch(ctx context.Context, branch string) (c protocol.Context, content []byte, err error) {
	view, err := s.view(ctx)
	if err != nil {
		return c, nil, err
	}
	i := slices.IndexFunc(view.TakenBack,
		func(p protocol.TakenBack) bool { return p.Branch != nil && p.Branch.Name == branch })
	if i < 0 || view.TakenBack[i].Context == nil {
		return c, nil,
			Refusal{protocol.BadRequest, fmt.Sprintf("branch %q has no context, or is none that was put aside", branch)}
	}
	content, err = s.ReadContext(ctx, *view.TakenBack[i].Context)
	return *view.TakenBack[i].Context, content, err
}

func (s Session) view(ctx context.Context) (protocol.SessionView, error) {
	state, err := s.State(ctx)
	if err != nil || state.Session == nil {
		return protocol.SessionView{}, err
	}
	return *state.Session, nil
}

// ReadContext returns what a context holds.
func (s Session) ReadContext(ctx context.Context, c protocol.Context) ([]byte, error) {
	r, _, err := s.contextRequest(ctx)
	if err != nil {
		return nil, err
	}
	r.Digest = c.Digest
	var given protocol.GivenContext
	if err := s.askContexts(ctx, c.Queue, protocol.QueryContext, &given, r); err != nil {
		return nil, fmt.Errorf("context %s on host %s: %w", c.Digest, c.Host, err)
	}
	if digestOfContext(given.Content) != c.Digest {
		return nil, fmt.Errorf("context %s on host %s is damaged: its content does not match its digest", c.Digest, c.Host)
	}
	return given.Content, nil
}

func digestOfContext(content []byte) activities.Digest {
	sum := sha256.Sum256(content)
	return activities.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// deliver brings a context to a host, by a way that leaves no trace in a history.
func (s Session) deliver(ctx context.Context, content []byte) (kept protocol.Context, err error) {
	if len(content) == 0 {
		return kept, Refusal{protocol.BadRequest, "context: it is empty"}
	}
	r, queue, err := s.contextRequest(ctx)
	if err != nil {
		return kept, err
	}
	given := protocol.GivenContext{ContextRequest: r, Content: content}
	if _, err := json.Marshal(given); err != nil {
		return kept,
			Refusal{protocol.BadRequest,
				fmt.Sprintf("context: %v: shorten it, or put it into a file and give where that is", errors.Unwrap(err))}
	}
	if err := s.askContexts(ctx, queue, protocol.QueryKeep, &kept, given); err != nil {
		return kept, fmt.Errorf("context: %w", err)
	}
	if kept.Digest != digestOfContext(content) {
		return kept, fmt.Errorf("context: host %s has kept something else", kept.Host)
	}
	return kept, nil
}

// contextRequest names the session, and the queue of its workers.
func (s Session) contextRequest(ctx context.Context) (r protocol.ContextRequest, queue string, err error) {
	d, err := s.client.DescribeWorkflowExecution(ctx, s.id, "")
	if err != nil {
		return r, "", s.explain(err)
	}
	return protocol.ContextRequest{WorkflowID: s.id, FirstRunID: d.GetWorkflowExecutionInfo().GetFirstRunId()},
		d.GetExecutionConfig().GetTaskQueue().GetName(), nil
}

// askContexts asks a worker on a queue, by a query to a workflow that is there for that alone: it
// is started where the server does not know it, or no longer.
func (s Session) askContexts(ctx context.Context, queue, query string, result any, argument any) error {
	id := "contexts-" + queue
	v, err := s.client.QueryWorkflow(ctx, id, "", query, argument)
	if _, unknown := errors.AsType[*serviceerror.NotFound](err); unknown {
		run, startErr := s.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			ID: id, TaskQueue: queue, WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		}, protocol.ContextsType)
		if startErr == nil {
			startErr = run.Get(ctx, nil)
		}
		if startErr != nil {
			return startErr
		}
		v, err = s.client.QueryWorkflow(ctx, id, "", query, argument)
	}
	if err != nil {
		return err
	}
	return v.Get(result)
}
