package mcp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolName is the name of an action's tool. Many clients allow no dots in it.
func toolName(action string) string { return strings.ReplaceAll(action, ".", "_") }

// toolNames are the names of the tools that there are now.
type toolNames struct {
	mu  sync.RWMutex
	all map[string]bool
}

func (t *toolNames) has(name string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.all[name]
}

func (t *toolNames) set(name string, isThere bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]bool{}
	}
	if t.all[name] = isThere; !isThere {
		delete(t.all, name)
	}
}

func (t *toolNames) sorted() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Sorted(maps.Keys(t.all))
}

// nameTools answers the call of a tool that is not there with those that are.
func (s *Server) nameTools(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
		call, isCall := r.GetParams().(*sdk.CallToolParamsRaw)
		if !isCall || s.tools.has(call.Name) {
			return next(ctx, method, r)
		}
		text := fmt.Sprintf("unknown tool %q; there are: %s", call.Name, strings.Join(s.tools.sorted(), ", "))
		if meant := toolName(call.Name); s.tools.has(meant) {
			text = fmt.Sprintf("unknown tool %q: the tool of this action is called %q", call.Name, meant)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: text}
	}
}
