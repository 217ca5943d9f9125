package mcptest

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// What the server has besides tools.

const noteScheme = "note://"

// addBesides adds resources, prompts and completions.
func (s server) addBesides(to *sdk.Server) {
	to.AddResource(&sdk.Resource{Name: "all", Description: "The ids of all notes.", URI: "notes://all",
		MIMEType: "text/plain"}, s.readAll)
	to.AddResourceTemplate(&sdk.ResourceTemplate{Name: "note", Description: "One note.", URITemplate: noteScheme + "{id}"},
		s.readOne)
	to.AddPrompt(&sdk.Prompt{Name: "shorten", Description: "Asks for a shorter note.",
		Arguments: []*sdk.PromptArgument{{Name: "id", Required: true}}}, s.shorten)
}

// options are those of a server that tells what changes.
func (s server) options() *sdk.ServerOptions {
	return &sdk.ServerOptions{
		Instructions:       "Notes are short.",
		SubscribeHandler:   func(context.Context, *sdk.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(_ context.Context, r *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
			all := &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{}}}
			for _, id := range s.ids() {
				if strings.HasPrefix(id, r.Params.Argument.Value) {
					all.Completion.Values = append(all.Completion.Values, id)
				}
			}
			return all, nil
		},
	}
}

func (s server) ids() (all []string) {
	files, _ := os.ReadDir(filepath.Join(s.dir, "notes")) // made by Start
	for _, each := range files {
		all = append(all, each.Name())
	}
	return all
}

func (s server) readAll(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	return &sdk.ReadResourceResult{
		Contents: []*sdk.ResourceContents{{URI: r.Params.URI, Text: strings.Join(s.ids(), "\n")}}}, nil
}

func (s server) readOne(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	n, err := s.read(strings.TrimPrefix(r.Params.URI, noteScheme))
	if err != nil {
		return nil, sdk.ResourceNotFoundError(r.Params.URI)
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, Text: n.Body}}}, nil
}

func (s server) shorten(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
	n, err := s.read(r.Params.Arguments["id"])
	if err != nil {
		return nil, err
	}
	return &sdk.GetPromptResult{
		Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: "Shorten: " + n.Body}}}}, nil
}

// tellOf tells the client of a call how far it has come, what was done, and that the note is
// another now.
func tellOf(of *sdk.Server, next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (sdk.Result, error) {
		call, isCall := r.(*sdk.CallToolRequest)
		if !isCall {
			return next(ctx, method, r)
		}
		if token := call.Params.GetProgressToken(); token != nil {
			_ = call.Session.NotifyProgress(ctx,
				&sdk.ProgressNotificationParams{ProgressToken: token, Progress: 1, Total: 2,
					Message: "half of " + call.Params.Name})
		}
		result, err := next(ctx, method, r)
		if call.Params.Name == "put_note" {
			_ = call.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Logger: "notes", Data: "put"})
			_ = of.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: noteScheme + "there"})
		}
		return result, err
	}
}

type learned struct {
	Name string `json:"name"`
}

// learn adds a tool, a resource and a prompt of a name.
func (s server) learn(of *sdk.Server) sdk.ToolHandlerFor[learned, learned] {
	return func(_ context.Context, _ *sdk.CallToolRequest, in learned) (*sdk.CallToolResult, learned, error) {
		sdk.AddTool(of, &sdk.Tool{Name: in.Name, Description: "Counts the notes."}, s.count)
		of.AddResource(&sdk.Resource{Name: in.Name, URI: "notes://" + in.Name}, s.readAll)
		of.AddPrompt(&sdk.Prompt{Name: in.Name}, s.shorten)
		return nil, in, nil
	}
}
