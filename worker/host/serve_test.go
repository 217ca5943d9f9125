package host_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// How long, and how often, a test looks for what comes by itself.
const (
	waitFor = 90 * time.Second
	tick    = 20 * time.Millisecond
)

// stage is a worker on a queue of the test's own.
type stage struct {
	*testing.T
	recovery.Server
	worker *host.Worker
	state  string // its folder
}

func serve(t *testing.T, c host.Config, o host.Options) *stage {
	c.Host, c.Queue, c.State, c.StopTimeout = "build-1", t.Name(), t.TempDir(), 100*time.Millisecond
	options := servertest.Shared(t).ClientOptions()
	if o.Metrics != nil {
		options.MetricsHandler = o.Metrics.Handler
	}
	own, err := client.Dial(options)
	require.NoError(t, err)
	t.Cleanup(own.Close)
	o.Client, o.Namespace = own, options.Namespace
	w, err := host.Start(t.Context(), c, o)
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	return &stage{t, recovery.Server{Client: o.Client, Namespace: o.Namespace}, w, c.State}
}

// start starts a task the way that the starter does.
func (s *stage) start(document any) client.WorkflowRun {
	run, err := s.Client.ExecuteWorkflow(s.Context(), client.StartWorkflowOptions{
		TaskQueue: s.Name(), TypedSearchAttributes: protocol.ServingAttributes("", ""),
	}, protocol.AgentTaskType, document)
	require.NoError(s, err)
	return run
}

// call runs a workflow and reads its result.
func call[T any](s *stage, workflowType string, args ...any) (result T) {
	run, err := s.Client.ExecuteWorkflow(s.Context(), client.StartWorkflowOptions{TaskQueue: s.Name()}, workflowType,
		args...)
	require.NoError(s, err)
	require.NoError(s, run.Get(s.Context(), &result))
	return result
}

func (s *stage) retain() protocol.RetentionResult {
	return call[protocol.RetentionResult](s, protocol.RetainType,
		protocol.RetainRequest{Queue: task.HostQueue(s.Name(), "build-1")})
}

// report waits for the report that a workflow completes with.
func (s *stage) report(id string) (report compensations.Report) {
	ctx, cancel := context.WithTimeout(s.Context(), waitFor)
	defer cancel()
	require.NoError(s, s.Client.GetWorkflow(ctx, id, "").Get(ctx, &report))
	return report
}

// end waits for the end of a task, for as long as its history grows: a large one takes minutes on a
// busy machine.
func (s *stage) end(run client.WorkflowRun) (report compensations.Report, err error) {
	type progress struct {
		run    string
		events int64
	}
	for last := (progress{}); ; {
		ctx, cancel := context.WithTimeout(s.Context(), waitFor)
		err = run.Get(ctx, &report)
		isLate := ctx.Err() != nil
		cancel()
		if !isLate {
			return report, err
		}
		d, describing := s.Client.DescribeWorkflowExecution(s.Context(), run.GetID(), "")
		require.NoError(s, describing)
		info := d.GetWorkflowExecutionInfo()
		now := progress{info.GetExecution().GetRunId(), info.GetHistoryLength()}
		if now == last {
			return report, context.DeadlineExceeded
		}
		last = now
	}
}

// stateOf is the state of a task or of what came after it.
func (s *stage) stateOf(id string) (state protocol.State) {
	v, err := s.Client.QueryWorkflow(s.Context(), id, "", protocol.QueryState)
	if err != nil { // not now
		return state
	}
	require.NoError(s, v.Get(&state))
	return state
}

// parked waits until the undo of a step is parked.
func (s *stage) parked(id, step string) (parked compensations.StepReport) {
	s.Helper()
	require.Eventually(s, func() bool {
		if r := s.stateOf(id).Report; r != nil {
			for _, undo := range r.Steps {
				if undo.Step == step && undo.State == string(compensations.Parked) {
					parked = undo
				}
			}
		}
		return parked.Digest != ""
	}, waitFor, tick)
	return parked
}

func (s *stage) force(id string, parked compensations.StepReport) {
	s.resolve(id, parked, compensations.Force)
}

func (s *stage) resolve(id string, parked compensations.StepReport, do compensations.Do) {
	require.NoError(s, s.Client.SignalWorkflow(s.Context(), id, "", compensations.SignalResolve,
		compensations.Resolution{Step: parked.Step, Digest: parked.Digest, Do: do, Who: "ann"}))
}

func (s *stage) converter() converter.DataConverter { return converter.GetDefaultDataConverter() }

// metrics is what the worker tells Prometheus.
func (s *stage) metrics() string {
	r, err := http.Get("http://" + s.worker.Address + "/metrics")
	require.NoError(s, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(s, err)
	return string(body)
}
