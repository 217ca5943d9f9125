package tasks

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// StartOptions configure a task that is started.
type StartOptions struct {
	// ID defaults to the task's name with a random end.
	ID string
	// Agent defaults to that of the file.
	Agent string
	// Queue is the shared task queue of the workers.
	Queue string
}

// CheckNewID refuses an id that would have to be quoted in a command, or does not fit into a link.
func CheckNewID(id string) error {
	if err := protocol.CheckID(id); err != nil {
		return usage.Errorf("--%v", err)
	}
	return nil
}

// Start starts a task with no timeout, retry or schedule of Temporal's: those would end it, or run
// it again, with no undo.
func (c *Client) Start(ctx context.Context, file File, o StartOptions) (Run, error) {
	name := file.Compiled.Name
	if o.ID == "" {
		o.ID = newID(name)
	}
	if err := CheckNewID(o.ID); err != nil {
		return Run{}, err
	}
	if o.Agent == "" {
		o.Agent = file.Compiled.Agent
	}
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: o.ID, TaskQueue: o.Queue,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		TypedSearchAttributes:                    protocol.ServingAttributes(o.Agent, o.ID),
		StaticSummary:                            summary(name, o.Agent),
		StaticDetails:                            startDetails(file),
		Memo:                                     protocol.NameMemo(name),
	}, protocol.AgentTaskType, file.Document)
	var taken *serviceerror.WorkflowExecutionAlreadyStarted
	var unknown *serviceerror.InvalidArgument
	switch {
	case errors.As(err, &taken):
		return Run{},
			usage.Errorf(
				"--id %q is taken: an id is used once; use another --id, or see what became of that task with `starter show %s`",
				o.ID, terminal.ShellQuote(o.ID))
	case errors.As(err, &unknown) && strings.Contains(err.Error(), "Unwind"):
		return Run{}, c.explainMissingAttributes(ctx, err)
	case err != nil:
		return Run{}, fmt.Errorf("start task %s: %w", o.ID, err)
	}
	return Run{
		ID: o.ID, RunID: run.GetRunID(), Type: protocol.AgentTaskType, Name: name, Agent: o.Agent, Queue: o.Queue,
		Status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, Started: time.Now(),
	}, nil
}

// maxSummary, in characters, keeps a summary below the server's limit of 400 bytes in any script.
const maxSummary = 100

// summary is a task in a line. Where it is too long, the name is cut.
func summary(name, agent string) string {
	suffix := agentSuffix(agent)
	return terminal.Clip(terminal.Clip(terminal.OneLine(name),
		max(maxSummary/2, maxSummary-utf8.RuneCountInString(suffix)))+suffix, maxSummary)
}

// agentSuffix is what stands behind a task's name in its summary.
func agentSuffix(agent string) string {
	if agent == "" {
		return ""
	}
	return " (agent " + terminal.OneLine(agent) + ")"
}

// startDetails is the task as the Temporal UI shows it from the start, as Markdown.
func startDetails(file File) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**\n\n", terminal.OneLine(file.Compiled.Name))
	const most = 50
	for i, s := range file.Compiled.Steps {
		if i == most {
			fmt.Fprintf(&b, "- ... %d more\n", len(file.Compiled.Steps)-most)
			break
		}
		fmt.Fprintf(&b, "- `%s` %s\n", s.ID, s.Uses)
	}
	return b.String()
}

var notInID = regexp.MustCompile(`[^a-z0-9]+`)

// newID makes an id of the task's name and a random end.
func newID(name string) string {
	base := strings.Trim(notInID.ReplaceAllString(strings.ToLower(name), "-"), "-")
	base = strings.Trim(base[:min(len(base), 40)], "-")
	end := strings.ToLower(rand.Text()[:8])
	if base == "" {
		return "task-" + end
	}
	return base + "-" + end
}

// AwaitAcceptance waits until workers have checked the task, and says what it waits for where they
// did not in time. A refusal is an error.
func (c *Client) AwaitAcceptance(ctx context.Context, t Run, file File) (waits string, err error) {
	limited, cancel := context.WithTimeout(ctx, c.silenceLimit())
	defer cancel()
	for limited.Err() == nil {
		s, err := c.QueryState(limited, t.ID, t.RunID)
		if err == nil && s.Phase != protocol.Compiling {
			if refusal, refused := refusalOf(s.Phase == protocol.Closed, len(s.Steps), s.Cause); refused {
				return "", usage.Errorf("task %s was refused: %s", t.ID, file.Cite(refusal))
			}
			return "", nil
		}
		if hosts, err := c.AwaitedHosts(limited, t.ID); err == nil && len(hosts) > 0 {
			return neededHosts(hosts) + c.otherHosts(limited, t.Queue), nil
		}
		pause(limited, 50*time.Millisecond)
	}
	return NoWorker(t), ctx.Err()
}

// File is a valid task file.
type File struct {
	Document json.RawMessage // as the workflow gets it
	Compiled *task.Compiled
	// Written is the file as a person wrote it.
	Written *task.Document
}

// Cite names the lines of the file in what a worker has refused.
func (f File) Cite(refusal string) string {
	if f.Written == nil {
		return refusal
	}
	return f.Written.Cite(refusal)
}
