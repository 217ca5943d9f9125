package rest

import (
	"cmp"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/sse"

	"github.com/seed-62bf7108/unwind/starter/apps"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// AppPath names an environment.
type AppPath struct {
	App string `path:"app_id" doc:"the name of an environment" maxLength:"40"`
}

// CheckpointPath names a checkpoint of it.
type CheckpointPath struct {
	AppPath

	Checkpoint string `path:"cp_id" doc:"the id of a checkpoint" maxLength:"40"`
}

// Repeatable is a request that is carried out once however often it comes.
type Repeatable struct {
	Key string `header:"Idempotency-Key" doc:"an id of your own: with it, a request is carried out once" maxLength:"200"`
}

type created struct {
	AppPath
	Repeatable

	Body *struct { // a request need not have one
		Notes   string `json:"notes,omitempty"   doc:"what people should know about it" maxLength:"500"`
		Pinned  bool   `json:"pinned,omitempty"  doc:"keep it until it is unpinned, whatever the retention says"`
		Trigger string `json:"trigger,omitempty" doc:"why it is taken"                  enum:"deploy,manual,agent" default:"manual"`
	}
}

type rolledBack struct {
	CheckpointPath
	Repeatable
}

// answer has a body.
type answer[T any] struct{ Body T }

const apiPath = "/api/apps/{app_id}/checkpoints"

// whoAmI stands for whoever uses the API.
func whoAmI(ctx context.Context) string { return personOf(ctx).Name + ", over HTTP" }

func (s *Server) register(api huma.API) {
	add(api, s, huma.Operation{
		OperationID: "create-checkpoint", Method: http.MethodPost, Path: apiPath, Summary: "Take a checkpoint",
		Description: "Keeps all parts of the environment at one moment, while the unit that uses them is stopped: all or " +
			"nothing.",
		DefaultStatus: http.StatusCreated, Errors: failures(http.StatusConflict),
	}, s.create)
	add(api, s, huma.Operation{
		OperationID: "list-checkpoints", Method: http.MethodGet, Path: apiPath,
		Summary: "List the checkpoints, the newest first", Errors: failures(),
	}, s.list)
	add(api, s, huma.Operation{
		OperationID: "get-checkpoint", Method: http.MethodGet, Path: apiPath + "/{cp_id}", Summary: "Show a checkpoint",
		Errors: failures(),
	}, s.get)
	add(api, s, huma.Operation{
		OperationID: "delete-checkpoint", Method: http.MethodDelete, Path: apiPath + "/{cp_id}",
		Summary: "Delete a checkpoint that is not pinned", DefaultStatus: http.StatusNoContent,
		Errors: failures(http.StatusConflict),
	}, s.remove)
	add(api, s, huma.Operation{
		OperationID: "pin-checkpoint", Method: http.MethodPost, Path: apiPath + "/{cp_id}/pin",
		Summary: "Keep a checkpoint until it is unpinned", Errors: failures(http.StatusConflict),
	}, func(ctx context.Context, in *CheckpointPath) (*answer[apps.Checkpoint], error) {
		return s.pin(ctx, in, true)
	})
	add(api, s, huma.Operation{
		OperationID: "unpin-checkpoint", Method: http.MethodPost, Path: apiPath + "/{cp_id}/unpin",
		Summary: "Let the retention decide about a checkpoint again", Errors: failures(http.StatusConflict),
	}, func(ctx context.Context, in *CheckpointPath) (*answer[apps.Checkpoint], error) {
		return s.pin(ctx, in, false)
	})
	add(api, s, huma.Operation{
		OperationID: "rollback-app", Method: http.MethodPost, Path: apiPath + "/{cp_id}/rollback",
		Summary: "Put the environment back to a checkpoint",
		Description: "Takes a safety checkpoint first: roll back to that one to go forward again. If a stage fails, " +
			"everything is as before, and the answer has status 500 and says why.",
		Errors: failures(http.StatusConflict),
	}, s.rollBack)
	sse.Register(api, huma.Operation{
		OperationID: "rollback-app-in-stages", Method: http.MethodPost, Path: apiPath + "/{cp_id}/rollback/stages",
		Summary: "Put the environment back to a checkpoint, and tell of each stage",
		Description: "Does what rollback does. It sends a stage event for each stage once that is over, and ends with an " +
			"event done, which has the answer, or problem. A client that goes away ends nothing.",
		Errors: failures(), Middlewares: huma.Middlewares{checkOperator(api), s.checkApp(api)},
	}, map[string]any{"stage": environment.Passed{}, "done": apps.RolledBack{}, "problem": huma.ErrorModel{}},
		s.rollBackInStages)
	add(api, s, huma.Operation{
		OperationID: "prune-checkpoints", Method: http.MethodPost, Path: apiPath + "/prune",
		Summary: "Delete the checkpoints that the retention no longer keeps", Errors: failures(http.StatusConflict),
	}, s.prune)
}

// failures are the statuses of problems, beside those of each operation.
func failures(more ...int) []int {
	return append([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity,
		http.StatusInternalServerError}, more...)
}

// appNamer is a request about an environment.
type appNamer interface{ app() string }

func (o *AppPath) app() string { return o.App }

// add adds an operation on environments that the request may use.
func add[In, Out any](api huma.API, s *Server, o huma.Operation, do func(context.Context, *In) (*Out, error)) {
	o.Middlewares = append(o.Middlewares, checkOperator(api))
	huma.Register(api, o, func(ctx context.Context, in *In) (*Out, error) {
		if _, err := s.find(ctx, any(in).(appNamer).app()); err != nil {
			return nil, err
		}
		return do(ctx, in)
	})
}

func (s *Server) create(ctx context.Context, in *created) (*answer[apps.Checkpoint], error) {
	r := environment.CheckpointRequest{ID: apps.CheckpointID(in.App, "", in.Key), Trigger: environment.Manual,
		Who: whoAmI(ctx)}
	if asked := in.Body; asked != nil {
		r.Notes, r.Pinned, r.Trigger = asked.Notes, asked.Pinned, cmp.Or(environment.Trigger(asked.Trigger), r.Trigger)
	}
	var taken environment.Checkpoint
	err := s.Client.AskEnvironment(ctx, in.App, environment.UpdateCheckpoint, &taken, r)
	return told(apps.CheckpointOf(taken), err)
}

func (s *Server) list(ctx context.Context, in *AppPath) (*answer[apps.Checkpoints], error) {
	v, err := s.find(ctx, in.App)
	if err != nil {
		return nil, err
	}
	return &answer[apps.Checkpoints]{apps.CheckpointsOf(v)}, nil
}

func (s *Server) get(ctx context.Context, in *CheckpointPath) (*answer[apps.Checkpoint], error) {
	v, err := s.find(ctx, in.App)
	if err != nil {
		return nil, err
	}
	for _, one := range v.Checkpoints {
		if one.ID == in.Checkpoint {
			return &answer[apps.Checkpoint]{apps.CheckpointOf(one)}, nil
		}
	}
	return nil, huma.Error404NotFound("environment " + in.App + " has no checkpoint " + in.Checkpoint)
}

func (s *Server) remove(ctx context.Context, in *CheckpointPath) (*struct{}, error) {
	err := s.Client.AskEnvironment(ctx, in.App, environment.UpdateDelete, nil, in.Checkpoint)
	if err != nil {
		return nil, problem(err)
	}
	return &struct{}{}, nil
}

func (s *Server) pin(ctx context.Context, in *CheckpointPath, pinned bool) (*answer[apps.Checkpoint], error) {
	var now environment.Checkpoint
	err := s.Client.AskEnvironment(ctx, in.App, environment.UpdatePin, &now,
		environment.PinRequest{ID: in.Checkpoint, Pinned: pinned})
	return told(apps.CheckpointOf(now), err)
}

func (s *Server) rollback(ctx context.Context, in *rolledBack) environment.RollbackRequest {
	return environment.RollbackRequest{To: in.Checkpoint, Safety: apps.CheckpointID(in.App, in.Checkpoint, in.Key),
		Who: whoAmI(ctx)}
}

func (s *Server) rollBack(ctx context.Context, in *rolledBack) (*answer[apps.RolledBack], error) {
	var done environment.RolledBack
	err := s.Client.AskEnvironment(ctx, in.App, environment.UpdateRollback, &done, s.rollback(ctx, in))
	return told(apps.RolledBackOf(done), err)
}

// rollBackInStages does not look at errors of send: of a client that is gone, nobody asks any more.
func (s *Server) rollBackInStages(ctx context.Context, in *rolledBack, send sse.Sender) {
	done, err := s.Client.RollBackEnvironment(ctx, in.App, s.rollback(ctx, in), func(p environment.Passed) {
		_ = send.Data(p)
	})
	if err != nil {
		_ = send.Data(problem(err))
		return
	}
	_ = send.Data(apps.RolledBackOf(done))
}

func (s *Server) prune(ctx context.Context, in *AppPath) (*answer[environment.Pruned], error) {
	var pruned environment.Pruned
	err := s.Client.AskEnvironment(ctx, in.App, environment.UpdatePrune, &pruned)
	return told(pruned, err)
}

// told is an answer, or the problem in its place.
func told[T any](body T, err error) (*answer[T], error) {
	if err != nil {
		return nil, problem(err)
	}
	return &answer[T]{body}, nil
}
