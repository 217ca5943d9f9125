package mcpserver

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/exactjson"
)

// answered is the document with the answer to a call.
const answered = "answered"

// Answer is what a server has answered to a call: a result as it was sent, or an error of the
// protocol.
type Answer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  *jsonrpc.Error  `json:"error,omitempty"`
	// Lost means that the call has happened, as the look tells, and its answer was lost.
	Lost bool `json:"lost,omitempty"`
	// Unfit is why the answer cannot be kept as the server has sent it; empty if it is. Then nothing
	// else of it is kept.
	Unfit string `json:"unfit,omitempty"`
}

// content is what matters of a result.
type content struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	StructuredContent any             `json:"structuredContent"`
	IsError           bool            `json:"isError"`
	Task              json.RawMessage `json:"task"`
	ResultType        string          `json:"resultType"`
}

// read returns the result, and why it is no success; empty if it is one.
func (a Answer) read() (s sight, trouble string) {
	if a.Error != nil {
		return sight{Text: a.Error.Message}, fmt.Sprintf("error %d: %s", a.Error.Code, a.Error.Message)
	}
	if a.Unfit != "" {
		return sight{}, a.Unfit
	}
	if a.Lost {
		return sight{}, ""
	}
	var c content
	if err := exactjson.Decode(a.Result, &c); err != nil {
		return s, "its result is not that of a tool: " + err.Error()
	}
	var texts []string
	for _, each := range c.Content {
		if each.Type == "text" {
			texts = append(texts, each.Text)
		}
	}
	s = sight{Text: strings.Join(texts, "\n"), Data: c.StructuredContent}
	if s.Data == nil {
		var data any
		if exactjson.Decode([]byte(s.Text), &data) == nil {
			s.Data = data
		}
	}
	switch {
	case a.isTask(c):
		return s, "it has answered with a task, whose end nobody awaits"
	case c.ResultType != "" && c.ResultType != "complete":
		return s, "its result is not complete: " + c.ResultType
	case c.IsError:
		return s, s.Text
	}
	return s, ""
}

// Succeeded reports whether it is a result that is complete and no error.
func (a Answer) Succeeded() bool {
	_, trouble := a.read()
	return trouble == ""
}

func (Answer) isTask(c content) bool { return len(c.Task) > 0 || c.ResultType == "task" }

// isFinal reports whether the call is known to be over: what cannot be kept may be a task.
func (a Answer) isFinal() bool {
	if a.Unfit != "" {
		return false
	}
	var c content
	return a.Error != nil || a.Lost || exactjson.Decode(a.Result, &c) == nil && !a.isTask(c)
}

// failure is the error of a step whose call has not succeeded; nil if it has.
func (a Answer) failure(server, tool string) error {
	_, trouble := a.read()
	switch {
	case trouble == "":
		return nil
	case !a.isFinal():
		return activities.Errorf(activities.UnknownOutcome, "%s of server %s: %s", tool, server, trouble)
	}
	first, rest, _ := strings.Cut(trouble, "\n")
	return &activities.Error{Type: activities.Unsuccessful,
		Message: fmt.Sprintf("%s of server %s: %s", tool, server, first), Output: rest}
}
