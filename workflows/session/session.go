// Package session is the client side of a session: a task that takes its steps while it runs. An
// agent opens one, sends steps, marks savepoints, rolls back to them, and finishes or aborts.
//
//	s, answer, err := session.Open(ctx, c, session.Options{ID: "build-7", Queue: "unwind"}, document)
//	answer, err = s.Step(ctx, "try-1", step)  // a failed step is undone alone, and answer says so
//	answer, err = s.Finish(ctx, "end")
//
// The caller gives each request an id. Sending the same id again repeats the request, even after a
// lost connection: it is carried out once. An empty id stands for a new one.
package session

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// Refusal is a request that was refused: nothing was touched. Type is protocol.BadRequest,
// SessionBusy, SessionOver, SessionPaused, NotASession, PersonDecides or NothingDecided.
type Refusal struct {
	Type, Text string
}

func (r Refusal) Error() string { return r.Text }

// Session is a session by its id.
type Session struct {
	client  client.Client
	id      string
	isFirst bool // see First
}

// Attach returns a session that was opened before.
func Attach(c client.Client, id string) Session { return Session{client: c, id: id} }

// First returns the session for a request whose id was not used before: its answer is not looked up
// again.
func (s Session) First() Session {
	s.isFirst = true
	return s
}

// ID is the id of its workflow.
func (s Session) ID() string { return s.id }

// Options are those of Open.
type Options struct {
	// ID is that of its workflow; it is used once. Whoever knows it can use the session. Defaults to
	// one that nobody can guess.
	ID string
	// Agent is searchable.
	Agent string
	// Name is shown in lists.
	Name string
	// Queue is the shared task queue of the workers.
	Queue string
	// Request is the id of this request.
	Request string
}

// Open starts a session from its document, and returns when it takes steps. An invalid document is
// a Refusal.
func Open(ctx context.Context, c client.Client, o Options, document json.RawMessage) (Session, protocol.Answer, error) {
	if o.ID == "" {
		o.ID = "session-" + rand.Text()
	}
	if err := protocol.CheckID(o.ID); err != nil {
		return Session{}, protocol.Answer{}, Refusal{protocol.BadRequest, err.Error()}
	}
	s := Attach(c, o.ID)
	request := newID(o.Request)
	start := c.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID: o.ID, TaskQueue: o.Queue,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		TypedSearchAttributes:    protocol.ServingAttributes(o.Agent, o.ID),
		Memo:                     protocol.NameMemo(o.Name),
	}, protocol.AgentTaskType, document)
	handle, err := c.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			WorkflowID: o.ID, UpdateID: request, UpdateName: protocol.UpdateOpen,
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	var answer protocol.Answer
	if err == nil {
		err = handle.Get(ctx, &answer)
	}
	if _, taken := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); taken {
		return s, answer, Refusal{protocol.BadRequest, fmt.Sprintf("id %q is taken: an id is used once", o.ID)}
	}
	if err != nil || isSettled(answer) {
		return s, answer, s.explain(err)
	}
	answer, err = s.await(ctx, request, isSettled)
	return s, answer, err
}

// Step adds steps, as in a task file, and answers when all of them are over or wait for a person.
func (s Session) Step(ctx context.Context, request string, steps ...json.RawMessage) (protocol.Answer, error) {
	return s.send(ctx, protocol.UpdateStep, request, protocol.StepRequest{Steps: steps})
}

// Savepoint names the place after everything that is done.
func (s Session) Savepoint(ctx context.Context, request, name string) (protocol.Answer, error) {
	return s.send(ctx, protocol.UpdateSavepoint, request, protocol.SavepointRequest{Name: name})
}

// Rollback undoes a part of the session, and answers when that is over or waits for a person.
func (s Session) Rollback(ctx context.Context, request string, r protocol.SessionRollback) (protocol.Answer, error) {
	return s.send(ctx, protocol.UpdateRollback, request, r)
}

// Note notes something for the people who look at the session.
func (s Session) Note(ctx context.Context, request, text string) (protocol.Answer, error) {
	return s.send(ctx, protocol.UpdateNote, request, protocol.NoteRequest{Text: text})
}

// Redo runs again what a rollback has taken back, and answers like Step.
func (s Session) Redo(ctx context.Context, request string, r protocol.SessionRedo) (protocol.Answer, error) {
	return s.send(ctx, protocol.UpdateRedo, request, r)
}

// Resolve has the agent decide about a step that is parked after a failure, and answers when that
// is over or waits for a person.
func (s Session) Resolve(ctx context.Context, request string, r protocol.StepResolution) (protocol.Answer, error) {
	return s.send(ctx, protocol.UpdateResolveStep, request, r)
}

// Finish commits what the session has done.
func (s Session) Finish(ctx context.Context, request string) (protocol.Answer, error) {
	return s.send(ctx, protocol.UpdateFinish, request)
}

// Abort undoes all that the session has done. Where the server does not take the request, the
// session is canceled, which does the same: then its report does not say who has aborted it.
func (s Session) Abort(ctx context.Context, request string, r protocol.AbortRequest) (protocol.Answer, error) {
	request = newID(request)
	limited, cancel := context.WithTimeout(ctx, abortLimit)
	answer, err := s.update(limited, protocol.UpdateAbort, request, r)
	cancel()
	if err == nil {
		return s.settle(ctx, answer, request, r)
	}
	if _, isRefusal := errors.AsType[Refusal](err); isRefusal || ctx.Err() != nil {
		return answer, err
	}
	if err := s.client.CancelWorkflow(ctx, s.id, ""); err != nil {
		return answer, s.explain(err)
	}
	return s.poll(ctx, func() (protocol.Answer, error) { return s.ended(ctx, request) }, isSettled)
}

// abortLimit is how long an abort is offered as an update: the server takes only so many at once.
const abortLimit = 10 * time.Second

// ended says how a session stands that was canceled.
func (s Session) ended(ctx context.Context, request string) (protocol.Answer, error) {
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	state, err := s.State(limited)
	if err != nil {
		return protocol.Answer{}, err
	}
	a := protocol.Answer{Request: request, Pending: state.Phase != protocol.Closed, Phase: state.Phase, Cause: state.Cause,
		Report: state.Report}
	if a.Pending && a.Report != nil {
		for _, r := range a.Report.Steps {
			if r.State == string(compensations.Parked) {
				a.Waiting, a.NeedsPerson = append(a.Waiting, r), true
			}
		}
		a.Report = nil
	}
	return a, nil
}

// Pauses between two questions how a request stands.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = 2 * time.Second
)

// Await waits until an earlier request is over, also while it waits for a person, and asks less and
// less often. A question is no update: the server allows a session few of those at once.
func (s Session) Await(ctx context.Context, request string) (protocol.Answer, error) {
	return s.await(ctx, request, func(a protocol.Answer) bool { return !a.Pending })
}

func (s Session) await(ctx context.Context, request string, suffices func(protocol.Answer) bool) (protocol.Answer,
	error) {
	return s.poll(ctx, func() (protocol.Answer, error) { return s.Answer(ctx, request) }, suffices)
}

// poll asks less and less often, until an answer suffices.
func (s Session) poll(ctx context.Context, ask func() (protocol.Answer, error),
	suffices func(protocol.Answer) bool) (protocol.Answer, error) {
	for pause := firstPause; ; pause = min(pause*3/2, maxPause) {
		answer, err := ask()
		if err == nil && suffices(answer) {
			return answer, nil
		}
		if _, isRefusal := errors.AsType[Refusal](err); isRefusal {
			return answer, err
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return answer, fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			return answer, ctx.Err()
		case <-time.After(pause): //nolint:forbidigo // a client's clock, not a workflow's
		}
	}
}

// tornHistory marks the error of a query that was answered from a history which the server had cut
// within a workflow task: the next query sees the whole of it.
const tornHistory = "[TMPRL1100]"

// answerLimit is how long a worker may take to tell how a request stands.
const answerLimit = 5 * time.Second

// refresh tells the answer to a request that may have been made before as it stands now: the server
// keeps the first answer of a run, and its steps may have been rolled back since. Where no worker
// says so, it stays as it is.
func (s Session) refresh(ctx context.Context, a protocol.Answer) protocol.Answer {
	if len(a.Steps) == 0 {
		return a
	}
	now, err := s.Answer(ctx, a.Request)
	if err != nil || now.Forgotten {
		return a
	}
	return now
}

// Answer says how a request stands now.
func (s Session) Answer(ctx context.Context, request string) (now protocol.Answer, err error) {
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	v, err := s.client.QueryWorkflow(limited, s.id, "", protocol.QueryAnswer, request)
	if err != nil {
		return now, s.explain(err)
	}
	if err = v.Get(&now); err == nil && now.Refused != nil {
		err = Refusal{now.Refused.Type, now.Refused.Text}
	}
	return now, err
}

// State returns the current state of the session.
func (s Session) State(ctx context.Context) (protocol.State, error) {
	var state protocol.State
	v, err := s.client.QueryWorkflow(ctx, s.id, "", protocol.QueryState)
	if err != nil {
		return state, s.explain(err)
	}
	return state, v.Get(&state)
}

// send makes a request, and waits until it is over or needs a person.
func (s Session) send(ctx context.Context, name, request string, arguments ...any) (protocol.Answer, error) {
	isNew := request == "" || s.isFirst
	request = newID(request)
	answer, err := s.update(ctx, name, request, arguments...)
	if err != nil {
		return answer, err
	}
	if !isNew {
		answer = s.refresh(ctx, answer)
	}
	return s.settle(ctx, answer, request, arguments...)
}

// settle waits until a request is settled that was answered.
func (s Session) settle(ctx context.Context, answer protocol.Answer, request string, arguments ...any) (protocol.Answer,
	error) {
	if want := digestOf(arguments); answer.Digest != "" && answer.Digest != want {
		return answer,
			Refusal{protocol.BadRequest,
				fmt.Sprintf("request %q was made before and asked for something else: each needs an id of its own", request)}
	}
	if isSettled(answer) {
		return answer, nil
	}
	return s.await(ctx, request, isSettled)
}

// isSettled reports whether a request is over, or goes no further before somebody decides.
func isSettled(a protocol.Answer) bool { return !a.Pending || a.NeedsPerson }

// digestOf is what a session answers with: see protocol.Answer.
func digestOf(arguments []any) activities.Digest {
	if len(arguments) == 0 {
		return protocol.DigestOfRequest(nil)
	}
	return protocol.DigestOfRequest(arguments[0])
}

func (s Session) update(ctx context.Context, name, id string, arguments ...any) (answer protocol.Answer, err error) {
	for _, argument := range arguments {
		if err := protocol.CheckRequest(argument); err != nil {
			return answer, s.explain(err)
		}
	}
	busy, done := context.WithTimeout(ctx, busyLimit)
	defer done()
	for pause := firstPause; ; pause = min(pause*3/2, maxPause) {
		handle, err := s.client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
			WorkflowID: s.id, UpdateID: id, UpdateName: name, Args: arguments, WaitForStage: client.WorkflowUpdateStageCompleted,
		})
		if err == nil {
			err = handle.Get(ctx, &answer)
		}
		err = s.explain(err)
		_, isBusy := errors.AsType[*serviceerror.WorkflowNotReady](err)
		refusal, _ := errors.AsType[Refusal](err)
		if refusal.Type != protocol.TooManyAtOnce && (!isBusy || busy.Err() != nil) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(pause): //nolint:forbidigo // a client's clock, not a workflow's
		}
	}
}

// busyLimit is how long a request is sent again to a session whose worker came too late a few times:
// the server takes none until it has come.
const busyLimit = time.Minute

// explain turns an error into one that an agent can act upon.
func (s Session) explain(err error) error {
	var app *temporal.ApplicationError
	var gone *serviceerror.NotFound
	var refused *serviceerror.FailedPrecondition
	var rejected *temporal.QueryRejectedError
	var unknown *serviceerror.QueryFailed
	switch {
	case errors.As(err, &unknown) && !strings.Contains(unknown.Message, tornHistory):
		return Refusal{protocol.BadRequest, unknown.Message}
	case errors.As(err, &refused) && strings.Contains(strings.ToLower(refused.Message), "paused"),
		errors.As(err, &rejected) && rejected.QueryRejected().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED:
		return Refusal{protocol.SessionPaused,
			fmt.Sprintf(
				"session %q is paused and takes no request: a person lets it go on with `temporal workflow unpause "+
					"--workflow-id %[1]s`", s.id)}
	case errors.As(err, &app):
		return Refusal{app.Type(), app.Message()}
	case errors.As(err, &gone):
		return Refusal{protocol.SessionOver,
			fmt.Sprintf("there is no session %q that takes requests: it has ended, or never was", s.id)}
	}
	return err
}

func newID(request string) string {
	if request == "" {
		return rand.Text()
	}
	return request
}
