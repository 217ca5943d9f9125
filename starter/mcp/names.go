package mcp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolName is the name of an action's tool. Many clients allow no dots in it.
func toolName(action string) string { return strings.ReplaceAll(action, ".", "_") }

// nameTools answers the call of a tool that is not there with those that are.
func (s *Server) nameTools(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
		call, isCall := r.GetParams().(*sdk.CallToolParamsRaw)
		if !isCall || s.tools[call.Name] {
			return next(ctx, method, r)
		}
		text := fmt.Sprintf("unknown tool %q; there are: %s", call.Name, strings.Join(slices.Sorted(maps.Keys(s.tools)), ", "))
		if meant := toolName(call.Name); s.tools[meant] {
			text = fmt.Sprintf("unknown tool %q: the tool of this action is called %q", call.Name, meant)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: text}
	}
}
