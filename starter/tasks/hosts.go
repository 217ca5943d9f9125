package tasks

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"

	"github.com/seed-62bf7108/unwind/workflows/task"
)

// checkHosts refuses a file with steps on hosts that no worker serves: whoever asks the workers
// about it would wait for them.
func (c *Client) checkHosts(ctx context.Context, file File, queue string) error {
	document, err := task.Parse(file.Compiled.Name, file.Document)
	if err != nil {
		return fmt.Errorf("task %q: %w", file.Compiled.Name, err)
	}
	named := document.Placed() // the others run where the worker that checks the file says
	var problems task.Problems
	served := map[string]bool{}
	for _, s := range file.Compiled.Steps {
		host := s.Place.Host
		if host == "" || !named[s.ID] {
			continue
		}
		if _, known := served[host]; !known {
			served[host] = len(c.pollers(ctx, task.HostQueue(queue, host), enumspb.TASK_QUEUE_TYPE_ACTIVITY)) > 0
		}
		if served[host] {
			continue
		}
		p := task.Problem{Field: "steps." + s.ID + ".on", Value: strconv.Quote(host), Message: "no worker serves this host",
			Fix: "start one there, or name another host" + c.otherHosts(ctx, queue)}
		if file.Written != nil {
			p.File = file.Written.File
			p.Line, p.Column = file.Written.Position(p.Field)
		}
		problems = append(problems, p)
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

// otherHosts names the hosts that have a worker, as the end of a message.
func (c *Client) otherHosts(ctx context.Context, queue string) string {
	hosts := c.hosts(ctx, queue)
	if len(hosts) == 0 {
		return ""
	}
	more := ""
	if n := len(hosts) - maxNamedHosts; n > 0 {
		hosts, more = hosts[:maxNamedHosts], fmt.Sprintf(" and %d more", n)
	}
	return "; there are workers on " + strings.Join(hosts, ", ") + more
}

const maxNamedHosts = 20

// hosts are those whose workers serve a shared queue, in order: each is known there by the name of
// its host.
func (c *Client) hosts(ctx context.Context, queue string) (names []string) {
	for _, p := range c.pollers(ctx, queue, enumspb.TASK_QUEUE_TYPE_WORKFLOW) {
		names = append(names, p.GetIdentity())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// HasWorker says whether a worker polls the task queue.
func (c *Client) HasWorker(ctx context.Context, queue string) bool {
	return len(c.pollers(ctx, queue, enumspb.TASK_QUEUE_TYPE_WORKFLOW)) > 0
}

// pollers are the workers that have asked for tasks of a queue lately.
func (c *Client) pollers(ctx context.Context, queue string, of enumspb.TaskQueueType) []*taskqueue.PollerInfo {
	d, err := c.DescribeTaskQueue(ctx, queue, of)
	if err != nil {
		return nil
	}
	return d.GetPollers()
}
