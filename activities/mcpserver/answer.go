package mcpserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/declared"
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

// read returns what is known of the call by its answer. What cannot be kept may be a task.
func (a Answer) read() declared.Answer {
	switch {
	case a.Error != nil:
		return declared.Answer{Sight: declared.Sight{Text: a.Error.Message}, IsFinal: true,
			Trouble: fmt.Sprintf("error %d: %s", a.Error.Code, a.Error.Message)}
	case a.Unfit != "":
		return declared.Answer{Trouble: a.Unfit}
	case a.Lost:
		return declared.Answer{IsFinal: true, IsLost: true}
	}
	var c content
	if err := exactjson.Decode(a.Result, &c); err != nil {
		return declared.Answer{Trouble: "its result is not that of a tool: " + err.Error()}
	}
	var texts []string
	for _, each := range c.Content {
		if each.Type == "text" {
			texts = append(texts, each.Text)
		}
	}
	read := declared.Answer{IsFinal: true,
		Sight: declared.Sight{Text: strings.Join(texts, "\n"), Data: c.StructuredContent}}
	if read.Data == nil {
		var data any
		if exactjson.Decode([]byte(read.Text), &data) == nil {
			read.Data = data
		}
	}
	switch {
	case len(c.Task) > 0 || c.ResultType == "task":
		read.IsFinal, read.Trouble = false, "it has answered with a task, whose end nobody awaits"
	case c.ResultType != "" && c.ResultType != "complete":
		read.Trouble = "its result is not complete: " + c.ResultType
	case c.IsError:
		read.Trouble = cmp.Or(read.Text, "it has answered with an error, and no text")
	}
	return read
}

// Succeeded reports whether it is a result that is complete and no error.
func (a Answer) Succeeded() bool { return a.read().Succeeded() }

// failureOf is the error of a step whose call has not succeeded; nil if it has.
func failureOf(a declared.Answer, server, tool string) error {
	switch {
	case a.Succeeded():
		return nil
	case !a.IsFinal:
		return activities.Errorf(activities.UnknownOutcome, "%s of server %s: %s", tool, server, a.Trouble)
	}
	first, rest, _ := strings.Cut(a.Trouble, "\n")
	return &activities.Error{Type: activities.Unsuccessful,
		Message: fmt.Sprintf("%s of server %s: %s", tool, server, first), Output: rest}
}
