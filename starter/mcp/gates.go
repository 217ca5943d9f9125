package mcp

import (
	"context"
	"crypto/hmac"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// approval names the one question that a call asks.
const approval = "approval"

// asked is what a question is about. It goes to the client and comes back with the answer.
type asked struct {
	Request string            `json:"request"`
	Step    string            `json:"step"`
	Digest  activities.Digest `json:"digest"`
}

// seal makes a text of it that only holds for one session.
func (a asked) seal(key Key, session string) string {
	raw, _ := json.Marshal(a) // plain data
	return string(raw) + key.sign("gate", session, string(raw))
}

// unseal reads it back.
func unseal(key Key, session, state string) (a asked, err error) {
	end := strings.LastIndex(state, "}") + 1
	if !hmac.Equal([]byte(state[end:]), []byte(key.sign("gate", session, state[:end]))) ||
		json.Unmarshal([]byte(state[:end]), &a) != nil {
		return a, Problem{BadParameter,
			"requestState: this does not answer a question of this server; make the call again without it"}
	}
	return a, nil
}

// mayAsk reports whether the client can ask its user, and has not been asked in this call.
func (s *Server) mayAsk(call *sdk.CallToolRequest) bool {
	can := call.ClientCapabilities()
	return s.Elicit && can != nil && can.Elicitation != nil && call.Params.RequestState == ""
}

// question asks the client's user about the gate that an answer shows; nil if it shows none. Where only
// signed decisions count, the user's answer would decide nothing.
func (s *Server) question(session string, a protocol.Answer) *sdk.CallToolResult {
	for _, step := range a.Steps {
		if step.Gate == nil || step.Gate.Signed {
			continue
		}
		return &sdk.CallToolResult{
			InputRequests: sdk.InputRequestMap{approval: questionAbout(step)},
			RequestState:  asked{a.Request, step.ID, step.Gate.Digest}.seal(s.Key, session),
		}
	}
	return nil
}

// questionAbout is the question about the gate of a step.
func questionAbout(step protocol.StepAnswer) *sdk.ElicitParams {
	return &sdk.ElicitParams{
		Mode: "form", Message: questionText(step),
		RequestedSchema: &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{
			"why": {Type: "string", Description: "Reason, kept in the report"},
		}},
	}
}

// maxShownDiff bounds, in bytes, the diff in a question.
const maxShownDiff = 8 << 10

func questionText(step protocol.StepAnswer) string {
	c := step.Gate.Change
	var b strings.Builder
	fmt.Fprintf(&b, "Approve step %s (%s)? Accept approves it, decline rejects it.\n%s\n", step.ID, step.Uses, c.Summary)
	if step.Gate.Why != "" {
		fmt.Fprintf(&b, "It asks because: %s\n", step.Gate.Why)
	}
	if step.Gate.Waits != "" {
		fmt.Fprintf(&b, "Approvals: %s\n", step.Gate.Waits)
	}
	fmt.Fprintf(&b, "Undo: %s\n", c.Undo)
	if c.Horizon > 0 {
		fmt.Fprintf(&b, "It can be undone for %s after the end of the task\n", terminal.Duration(c.Horizon))
	}
	for _, loss := range c.Losses {
		fmt.Fprintf(&b, "An undo does not bring back: %s\n", loss)
	}
	if c.Diff != "" {
		diff := strings.ToValidUTF8(c.Diff[:min(len(c.Diff), maxShownDiff)], "")
		fmt.Fprintf(&b, "\n%s", diff)
		if len(diff) < len(c.Diff) {
			fmt.Fprintf(&b, "\n(%s)", activities.CountOf(len(c.Diff)-len(diff), "more byte"))
		}
	}
	return activities.Visible(b.String())
}

// decide passes on what the client's user has decided. One who has decided nothing leaves it to
// others.
func (s *Server) decide(ctx context.Context, c *tasks.Client, id string, call *sdk.CallToolRequest, about asked) error {
	answer, isAnswer := call.Params.InputResponses[approval].(*sdk.ElicitResult)
	if !isAnswer || answer.Action != "accept" && answer.Action != "decline" {
		return nil
	}
	run, err := c.Describe(ctx, id)
	if err != nil {
		return err
	}
	d := protocol.Decision{Step: about.Step, Digest: about.Digest, Who: "the user of an MCP client"}
	if of := call.ClientInfo(); of != nil {
		d.Who = "the user of " + of.Name
	}
	d.Why, _ = answer.Content["why"].(string)
	if answer.Action == "accept" {
		_, err = c.Approve(ctx, run, d)
	} else {
		_, err = c.Reject(ctx, run, d)
	}
	return err
}
