package mcp

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const resourcePrefix = "unwind://sessions/"

// addResources adds what can be read of a session, by its handle. A handle has an @, hence the + of
// the templates.
func (s *Server) addResources() {
	s.addResource("ledger", "The steps of a session as they stand, with what each undo has brought back",
		func(ctx context.Context, handle string) (any, error) {
			return s.status(ctx, nil, statusInput{ofSession: ofSession{handle}})
		})
	s.addResource("diff", "What a session has changed and not undone, with diffs",
		func(ctx context.Context, handle string) (any, error) {
			return s.diff(ctx, nil, diffInput{ofSession: ofSession{handle}})
		})
	s.addResource("trace",
		"What has happened in a session, in order: requests, steps, gates and decisions, undos and what they observed",
		func(ctx context.Context, handle string) (any, error) {
			return s.trace(ctx, handle)
		})
}

func (s *Server) addResource(name, description string, read func(context.Context, string) (any, error)) {
	s.server.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: name, Description: description + ". Session is the handle that open returned.", MIMEType: "application/json",
		URITemplate: resourcePrefix + "{+session}/" + name,
	}, func(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		handle, err := url.PathUnescape(strings.TrimSuffix(strings.TrimPrefix(r.Params.URI, resourcePrefix), "/"+name))
		if err != nil {
			return nil, sdk.ResourceNotFoundError(r.Params.URI)
		}
		o, err := read(ctx, handle)
		if err != nil {
			return nil, explain(err)
		}
		text, err := json.MarshalIndent(o, "", "  ")
		if err != nil {
			return nil, err
		}
		return &sdk.ReadResourceResult{
			Contents: []*sdk.ResourceContents{{URI: r.Params.URI, MIMEType: "application/json", Text: string(text)}}}, nil
	})
}
