package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// Statuses are those of a task.
var Statuses = []string{
	string(compensations.Open), string(compensations.Committed), string(compensations.Unwound),
	string(compensations.Remains),
	string(compensations.Partly), string(compensations.Redone),
}

// Filter selects tasks.
type Filter struct {
	Status, Agent string
	Gate          bool          // waits at a gate
	Parked        bool          // an undo is parked
	NeedsPerson   bool          // either of the two
	Since         time.Duration // started no longer ago; zero: whenever
	Limit         int
	// Types are the workflow types; none: all of recovery.Types.
	Types []string
	// Dead keeps only those that ended without unwinding.
	Dead bool
	// Brief asks no worker: it leaves out how many steps wait and how many undos are to be done.
	Brief bool
}

func (f Filter) query() string {
	types := f.Types
	if len(types) == 0 {
		types = recovery.Types
	}
	parts := []string{"WorkflowType IN ('" + strings.Join(types, "', '") + "')"}
	if f.Status != "" {
		parts = append(parts, fmt.Sprintf("%s = %s", protocol.AttributeStatus.GetName(), literal(f.Status)))
	}
	if f.Agent != "" {
		parts = append(parts, fmt.Sprintf("%s = %s", protocol.AttributeAgent.GetName(), literal(f.Agent)))
	}
	gate, parked := protocol.AttributeGate.GetName()+" IS NOT NULL", protocol.AttributeParked.GetName()+" IS NOT NULL"
	if f.Gate {
		parts = append(parts, gate)
	}
	if f.Parked {
		parts = append(parts, parked)
	}
	if f.NeedsPerson {
		parts = append(parts, "("+gate+" OR "+parked+")")
	}
	// a task that was ended from outside keeps its attributes, but waits for nobody
	if f.Gate || f.Parked || f.NeedsPerson {
		parts = append(parts, recovery.IsOpen)
	}
	if f.Since > 0 {
		parts = append(parts, fmt.Sprintf("StartTime > '%s'", time.Now().Add(-f.Since).UTC().Format(time.RFC3339Nano)))
	}
	if f.Dead {
		parts = append(parts, protocol.AttributeStatus.GetName()+" = 'open'",
			"ExecutionStatus IN ('Terminated', 'TimedOut', 'Failed', 'Canceled')")
	}
	return strings.Join(parts, " AND ")
}

// literal quotes a string for a visibility query.
func literal(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// maxPage is the largest page size that every Temporal server accepts.
const maxPage = 1000

// Listed is a task in a list, or what was done about one.
type Listed struct {
	ID    string `json:"id"`
	RunID string `json:"runId"`
	// Name is that of the file; empty for what was not started by a starter.
	Name   string `json:"name,omitempty"`
	Type   string `json:"type"`
	Status string `json:"status"`
	// Paused says that the run is paused, and goes on when it is unpaused.
	Paused bool `json:"paused,omitempty"`
	// Ended says how the run ended if the server ended it: "terminated", "timed out"; or names a
	// status that this version does not know.
	Ended string `json:"ended,omitempty"`
	// Now says what became of it after its end, and By which workflow made it so: see Standing.
	Now string `json:"now,omitempty"`
	By  string `json:"by,omitempty"`
	// TakenBack are rollbacks of environments that have taken back what the task had changed.
	TakenBack []environment.TakenBack `json:"takenBack,omitempty"`
	// Of is the workflow that this one recovers, rolls back or redoes; empty for a task. Part says
	// which part of it.
	Of   string `json:"of,omitempty"`
	Part string `json:"part,omitempty"`
	// Gate is the first step that waits for approval, Parked the first whose undo waits for a person,
	// or that has failed and does.
	Gate   string `json:"gate,omitempty"`
	Parked string `json:"parked,omitempty"`
	// Gates and Parks count all of them; 0 where nobody answers for the task.
	Gates int `json:"gates,omitempty"`
	Parks int `json:"parks,omitempty"`
	// Stuck says that it cannot go on, and waits for a person.
	Stuck bool `json:"stuck,omitempty"`
	// Failing is the first of what it has tried without success for minutes, and tries on.
	Failing string `json:"failing,omitempty"`
	// Pending is the number of undos that are still to be done, AwaitedHosts the hosts whose workers
	// have yet to take what they were given.
	Pending      int       `json:"pendingUndos,omitempty"`
	AwaitedHosts []string  `json:"awaitedHosts,omitempty"`
	Agent        string    `json:"agent,omitempty"`
	Task         string    `json:"task,omitempty"` // that it serves
	Started      time.Time `json:"started"`
	Closed       time.Time `json:"closed,omitzero"`

	queue string
}

// ListIDs returns the ids of at most f.Limit tasks. It asks no worker, so one that is silent holds
// nobody up.
func (c *Client) ListIDs(ctx context.Context, f Filter) (ids []string, err error) {
	found, _, err := c.search(ctx, f)
	for _, t := range found {
		ids = append(ids, t.ID)
	}
	return ids, err
}

// ListWaiting returns at most so many tasks that wait for a person, as the server has them, and
// whether there are more: it asks no worker.
func (c *Client) ListWaiting(ctx context.Context, limit int) (found []Listed, more bool, err error) {
	return c.search(ctx, Filter{NeedsPerson: true, Limit: limit})
}

// List is a list of tasks.
type List struct {
	Tasks []Listed
	// More says that there are more.
	More bool
	// Unknown says which environments do not tell whether they have taken back what tasks had changed.
	Unknown []string
}

// List returns at most f.Limit tasks.
func (c *Client) List(ctx context.Context, f Filter) (list List, err error) {
	if list.Tasks, list.More, err = c.search(ctx, f); err != nil {
		return List{}, err
	}
	if list.Unknown, err = c.addStandings(ctx, list.Tasks); err != nil {
		return List{}, err
	}
	list.Tasks, err = c.addPresent(ctx, list.Tasks, f.Brief)
	return list, err
}

// search returns at most f.Limit tasks as the server has them, and whether there are more.
func (c *Client) search(ctx context.Context, f Filter) (found []Listed, more bool, err error) {
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: c.Namespace, Query: f.query(), PageSize: int32(min(f.Limit, maxPage))} //nolint:gosec // at most maxPage
	for len(found) <= f.Limit {
		page, err := c.ListWorkflow(ctx, request)
		if err != nil {
			return nil, false, c.explainMissingAttributes(ctx, fmt.Errorf("list tasks: %w", err))
		}
		for _, e := range page.Executions {
			found = append(found, c.readListed(e))
		}
		if request.NextPageToken = page.NextPageToken; len(page.NextPageToken) == 0 {
			break
		}
	}
	more = len(found) > f.Limit || len(request.NextPageToken) > 0
	return found[:min(len(found), f.Limit)], more, nil
}

// maxAsked is how many tasks of a list are asked about at once.
const maxAsked = 16

// addPresent adds to tasks that go on what no search attribute says: which hosts they wait for, how
// many steps wait for a person, and how many undos are still to be done; in brief, only the hosts. It
// leaves out those that the server has deleted since it listed them.
func (c *Client) addPresent(ctx context.Context, found []Listed, brief bool) ([]Listed, error) {
	deleted := make([]bool, len(found))
	asked, ctx := errgroup.WithContext(ctx)
	asked.SetLimit(maxAsked)
	for i := range found {
		t := &found[i]
		if !t.Closed.IsZero() {
			continue
		}
		asked.Go(func() error {
			hosts, err := c.AwaitedHosts(ctx, t.ID)
			if err == nil && !brief && (t.Pending > 0 || t.Gate != "" || t.Parked != "" || t.Stuck) {
				err = c.addWaiting(ctx, t)
			}
			if _, deleted[i] = errors.AsType[*serviceerror.NotFound](err); deleted[i] {
				return nil
			}
			if err != nil {
				return fmt.Errorf("task %s: %w", t.ID, err)
			}
			t.AwaitedHosts = hosts
			return nil
		})
	}
	if err := asked.Wait(); err != nil {
		return nil, err
	}
	var left []Listed
	for i, t := range found {
		if !deleted[i] {
			left = append(left, t)
		}
	}
	return left, nil
}

// addWaiting counts the undos of an open task that are still to be done, and its steps that wait
// for a person.
func (c *Client) addWaiting(ctx context.Context, t *Listed) error {
	run := Run{ID: t.ID, RunID: t.RunID, Queue: t.queue, Status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}
	if !c.HasWorker(ctx, t.queue) { // nobody answers a query
		s, err := c.readHistory(ctx, run)
		t.Pending = s.PendingUndos
		if _, is := errors.AsType[unreadableError](err); is { // the number is no payload
			err = nil
		}
		return err
	}
	s, _, source, err := c.CurrentState(ctx, run)
	if _, is := errors.AsType[unreadableError](err); is { // the search attributes are no payloads
		return nil
	}
	t.Pending = s.PendingUndos
	if source == "" {
		t.Gates, t.Parks = len(s.Gates)+s.MoreGates, len(s.Parks)+s.MoreParks
		if s.Report != nil {
			for _, u := range s.Report.Steps {
				if compensations.UndoState(u.State) == compensations.Parked {
					t.Parks++
				}
			}
		}
	}
	return err
}

// addStandings says of tasks that have ended what became of them since.
func (c *Client) addStandings(ctx context.Context, found []Listed) (unknown []string, err error) {
	var ended []string
	oldest := time.Now()
	for _, t := range found {
		if !t.Closed.IsZero() && t.Started.Before(oldest) {
			oldest = t.Started
		}
		if !t.Closed.IsZero() && t.Task != "" && !slices.Contains(ended, t.Task) {
			ended = append(ended, t.Task)
		}
	}
	if len(ended) == 0 {
		return nil, nil
	}
	families, err := c.Recoveries().Families(ctx, ended)
	if err != nil {
		return nil, c.explainMissingAttributes(ctx, err)
	}
	back, err := c.takenBack(ctx, oldest)
	if err != nil {
		return nil, err
	}
	for i, t := range found {
		if !t.Closed.IsZero() {
			now, by := families[t.Task].Of(t.ID)
			found[i].Now, found[i].By, found[i].TakenBack = now, by.WorkflowID, back.of(t.ID, by.WorkflowID)
		}
	}
	return back.unknown, nil
}

func (c *Client) readListed(e *workflowpb.WorkflowExecutionInfo) Listed {
	t := Listed{
		ID: e.GetExecution().GetWorkflowId(), RunID: e.GetExecution().GetRunId(), Type: e.GetType().GetName(),
		Started: e.GetStartTime().AsTime(), queue: e.GetTaskQueue(),
	}
	if e.GetCloseTime() != nil {
		t.Closed = e.GetCloseTime().AsTime()
	}
	goesOn := recovery.GoesOn(e.Status)
	switch {
	case e.Status == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		t.Ended = "terminated"
	case e.Status == enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		t.Ended = "timed out"
	case !goesOn && !recovery.HasEnded(e.Status):
		t.Ended = recovery.DescribeUnknown(e.Status)
	}
	t.Paused = e.Status == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED
	attributes := e.GetSearchAttributes().GetIndexedFields()
	read := func(key temporal.SearchAttributeKey, into any) {
		if payload := attributes[key.GetName()]; payload != nil {
			_ = converter.GetDefaultDataConverter().FromPayload(payload, into)
		}
	}
	t.Of, t.Part = c.Recoveries().About(e)
	if name := e.GetMemo().GetFields()[protocol.MemoName]; name != nil {
		_ = c.DataConverter().FromPayload(name, &t.Name)
	}
	read(protocol.AttributeStatus, &t.Status)
	read(protocol.AttributeAgent, &t.Agent)
	read(protocol.AttributeTask, &t.Task)
	if goesOn {
		read(protocol.AttributeGate, &t.Gate)
		if read(protocol.AttributeParked, &t.Parked); t.Parked == protocol.StuckMark {
			t.Stuck, t.Parked = true, ""
		}
		read(protocol.AttributePending, &t.Pending)
		read(protocol.AttributeFailing, &t.Failing)
	}
	return t
}
