package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

type revoked struct {
	ID string `path:"id" doc:"the id of a standing approval" maxLength:"40"`

	Why string `query:"why" doc:"kept with it" maxLength:"200"`
}

func (s *Server) registerAllowances(api huma.API) {
	huma.Register(api, huma.Operation{OperationID: "list-allowances", Method: http.MethodGet, Path: "/api/allowances",
		Summary: "List the standing approvals, the oldest first", Errors: failures()},
		func(ctx context.Context, _ *struct{}) (*answer[[]activities.GivenAllowance], error) {
			given, err := s.Client.Allowances(ctx, s.Queue)
			return told(append([]activities.GivenAllowance{}, given...), err)
		})
	huma.Register(api, huma.Operation{OperationID: "revoke-allowance", Method: http.MethodDelete,
		Path: "/api/allowances/{id}", Summary: "Revoke a standing approval at once",
		Description: "No step begins by it any more; one that has begun is finished.", Errors: failures()},
		func(ctx context.Context, in *revoked) (*answer[activities.GivenAllowance], error) {
			g, err := s.Client.Disallow(ctx, s.Queue, protocol.Disallowing{ID: in.ID, Who: personOf(ctx).Name, Why: in.Why})
			return told(g, err)
		})
}
