package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// TaskPath names a task.
type TaskPath struct {
	Task string `path:"task" doc:"the id of a task, or of its recovery, rollback or redo" maxLength:"1000"`
}

// StepPath names a step of it.
type StepPath struct {
	TaskPath

	Step string `path:"step" doc:"the id of a step" maxLength:"200"`
}

type listing struct {
	Status      string `query:"status"      doc:"only tasks of this status"`
	Agent       string `query:"agent"       doc:"only tasks of this agent"`
	NeedsPerson bool   `query:"needsPerson" doc:"only tasks that wait for a person"`
	Limit       int    `query:"limit"       doc:"how many at most" default:"50" minimum:"1" maximum:"1000"`
}

// TaskList lists tasks, the newest first.
type TaskList struct {
	Tasks []tasks.Listed `json:"tasks" nullable:"false"`
	More  bool           `json:"more"                   doc:"there are more than the limit"`
	// Unknown is left out where all have told.
	Unknown []string `json:"unknown,omitempty" doc:"environments that do not tell whether they have taken back what tasks had changed"`
}

type gateDecision struct {
	StepPath

	Body struct {
		Digest string `json:"digest"        doc:"that of the gate that was shown: it decides about exactly this" minLength:"1"`
		Why    string `json:"why,omitempty" doc:"kept with the decision"                                         maxLength:"500"`
	}
}

type parkDecision struct {
	StepPath

	Body struct {
		Digest string          `json:"digest"         doc:"that of the park that was shown"                        minLength:"1"`
		Do     string          `json:"do"             doc:"what to do" enum:"retry,force,skip,accept,reset,unwind"`
		Why    string          `json:"why,omitempty"  doc:"kept with the decision"                                 maxLength:"500"`
		With   json.RawMessage `json:"with,omitempty" doc:"other parameters, for another try of a step that has failed"`
	}
}

type begun struct {
	TaskPath

	Body *struct {
		To   string `json:"to,omitempty"   doc:"of a rollback: undo only what was done after this savepoint"`
		Step string `json:"step,omitempty" doc:"of a rollback: undo only this step, and what depends on it"`
		Why  string `json:"why,omitempty"  doc:"kept in the report"                                         maxLength:"500"`
	}
}

// Begun is a workflow that was started.
type Begun struct {
	ID string `json:"id"            doc:"what acts: a rollback, a redo, a recovery"`
	Of string `json:"of,omitempty"  doc:"what it acts on"`
}

const taskPath = "/api/tasks/{task}"

func (s *Server) registerTasks(api huma.API) {
	huma.Register(api, huma.Operation{OperationID: "list-tasks", Method: http.MethodGet, Path: "/api/tasks",
		Summary: "List tasks, the newest first", Errors: failures()}, s.listTasks)
	huma.Register(api, huma.Operation{OperationID: "get-task", Method: http.MethodGet, Path: taskPath,
		Summary: "Show a task as it stands now", Errors: failures()}, s.getTask)
	huma.Register(api, huma.Operation{OperationID: "get-step", Method: http.MethodGet, Path: taskPath + "/steps/{step}",
		Summary: "Show a step with its outputs", Errors: failures()}, s.getStep)
	huma.Register(api, huma.Operation{OperationID: "get-trace", Method: http.MethodGet, Path: taskPath + "/trace",
		Summary: "List what has happened in a task", Errors: failures()}, s.getTrace)
	decide := func(id, summary string) huma.Operation {
		return huma.Operation{OperationID: id + "-step", Method: http.MethodPost, Path: taskPath + "/steps/{step}/" + id,
			Summary: summary, Errors: failures(http.StatusConflict, http.StatusGatewayTimeout),
			Description: "It bears the digest of what was shown: about anything else it decides nothing (409). 504: it was " +
				"sent, and takes effect once a worker serves the task."}
	}
	huma.Register(api, decide("approve", "Approve what waits at a gate"),
		func(ctx context.Context, in *gateDecision) (*answer[protocol.DecisionAnswer], error) {
			return s.decideGate(ctx, in, s.Client.Approve)
		})
	huma.Register(api, decide("reject", "Reject what waits at a gate"),
		func(ctx context.Context, in *gateDecision) (*answer[protocol.DecisionAnswer], error) {
			return s.decideGate(ctx, in, s.Client.Reject)
		})
	huma.Register(api, decide("resolve", "Decide about an undo, or a failed step, that is parked"), s.resolve)
	begin := func(id, summary string) huma.Operation {
		return huma.Operation{OperationID: id + "-task", Method: http.MethodPost, Path: taskPath + "/" + id, Summary: summary,
			DefaultStatus: http.StatusAccepted, Errors: failures(http.StatusConflict),
			Middlewares: huma.Middlewares{checkOperator(api)}}
	}
	huma.Register(api, begin("cancel", "Cancel a task; it unwinds"), s.cancel)
	huma.Register(api, begin("rollback", "Undo a committed task, or a part of it"), s.rollBackTask)
	huma.Register(api, begin("redo", "Reverse a rollback"), s.redo)
	huma.Register(api, begin("recover", "Unwind a task that ended without unwinding"), s.recover)
}

func (s *Server) listTasks(ctx context.Context, in *listing) (*answer[TaskList], error) {
	list, err := s.Client.List(ctx, tasks.Filter{Status: in.Status, Agent: in.Agent, NeedsPerson: in.NeedsPerson,
		Limit: in.Limit})
	return told(TaskList{append([]tasks.Listed{}, list.Tasks...), list.More, list.Unknown}, err)
}

func (s *Server) getTask(ctx context.Context, in *TaskPath) (*answer[tasks.Standing], error) {
	t, err := s.describe(ctx, in.Task)
	if err != nil {
		return nil, err
	}
	standing, err := s.Client.WholeStanding(ctx, t)
	return told(standing, err)
}

func (s *Server) getStep(ctx context.Context, in *StepPath) (*answer[tasks.Step], error) {
	t, err := s.describe(ctx, in.Task)
	if err != nil {
		return nil, err
	}
	step, err := s.Client.Step(ctx, t, in.Step)
	return told(step, err)
}

func (s *Server) getTrace(ctx context.Context, in *TaskPath) (*answer[[]tasks.Event], error) {
	t, err := s.describe(ctx, in.Task)
	if err != nil {
		return nil, err
	}
	events, err := s.Client.Trace(ctx, t)
	return told(events, err)
}

// describe finds a task.
func (s *Server) describe(ctx context.Context, id string) (tasks.Run, error) {
	t, err := s.Client.Describe(ctx, id)
	if err == nil {
		return t, nil
	}
	status := problem(err)
	if status.GetStatus() == http.StatusUnprocessableEntity {
		status = huma.Error404NotFound(err.Error())
	}
	return t, status
}

// open finds a task that takes decisions.
func (s *Server) open(ctx context.Context, id string) (tasks.Run, error) {
	t, err := s.describe(ctx, id)
	if err != nil {
		return t, err
	}
	if err := s.Client.CheckTakesDecisions(ctx, t); err != nil {
		return t, huma.Error409Conflict(err.Error())
	}
	return t, nil
}

func (s *Server) decideGate(ctx context.Context, in *gateDecision,
	send func(context.Context, tasks.Run, protocol.Decision) (protocol.DecisionAnswer, error),
) (*answer[protocol.DecisionAnswer], error) {
	t, err := s.open(ctx, in.Task)
	if err != nil {
		return nil, err
	}
	got, err := send(ctx, t, protocol.Decision{Step: in.Step, Digest: activities.Digest(in.Body.Digest),
		Who: personOf(ctx).Name, Why: in.Body.Why})
	return decided(got, err)
}

func (s *Server) resolve(ctx context.Context, in *parkDecision) (*answer[protocol.DecisionAnswer], error) {
	t, err := s.open(ctx, in.Task)
	if err != nil {
		return nil, err
	}
	got, err := s.Client.Resolve(ctx, t, protocol.Resolution{With: in.Body.With, Resolution: compensations.Resolution{
		Step: in.Step, Digest: activities.Digest(in.Body.Digest), Do: compensations.Do(in.Body.Do), Who: personOf(ctx).Name,
		Why: in.Body.Why}})
	return decided(got, err)
}

// decided is what a decision has come to; one that decides nothing is a conflict with what is there.
func decided(got protocol.DecisionAnswer, err error) (*answer[protocol.DecisionAnswer], error) {
	if _, isSent := errors.AsType[tasks.Unseen](err); isSent {
		return nil, huma.Error504GatewayTimeout(err.Error())
	}
	if err != nil {
		return nil, huma.Error409Conflict(err.Error())
	}
	return &answer[protocol.DecisionAnswer]{got}, nil
}

func (s *Server) cancel(ctx context.Context, in *TaskPath) (*answer[Begun], error) {
	t, err := s.describe(ctx, in.Task)
	if err != nil {
		return nil, err
	}
	return began(Begun{ID: t.ID}, s.Client.Cancel(ctx, t))
}

func (s *Server) rollBackTask(ctx context.Context, in *begun) (*answer[Begun], error) {
	var part recovery.Part
	why := ""
	if in.Body != nil {
		part, why = recovery.Part{To: in.Body.To, Step: in.Body.Step}, in.Body.Why
	}
	by, of, err := s.Client.RollBack(ctx, in.Task, part, personOf(ctx).Name, why)
	return began(Begun{by.WorkflowID, of.WorkflowID}, err)
}

func (s *Server) redo(ctx context.Context, in *TaskPath) (*answer[Begun], error) {
	by, of, err := s.Client.Redo(ctx, in.Task, personOf(ctx).Name)
	return began(Begun{by.WorkflowID, of.WorkflowID}, err)
}

func (s *Server) recover(ctx context.Context, in *TaskPath) (*answer[Begun], error) {
	by, of, err := s.Client.Recover(ctx, in.Task, false, personOf(ctx).Name)
	return began(Begun{by.WorkflowID, of.WorkflowID}, err)
}

// began is what was started; what stands in its way is a conflict.
func began(b Begun, err error) (*answer[Begun], error) {
	if err == nil {
		return &answer[Begun]{b}, nil
	}
	status := problem(err)
	switch {
	case recovery.WhyOf(err) == recovery.Unknown:
		status = huma.Error404NotFound(err.Error())
	case status.GetStatus() == http.StatusUnprocessableEntity:
		status = huma.Error409Conflict(err.Error())
	}
	return nil, status
}
