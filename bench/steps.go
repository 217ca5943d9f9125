package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

const (
	chainSteps = 100 // steps of the task that runs alone
	pairs      = 41  // alternating pairs, after one of each to warm up
	manyTasks  = 50  // tasks at once ...
	manySteps  = 20  // ... of so many steps
	manyPairs  = 15
	waiting    = 1000 // tasks at a gate
)

// The targets: wall time of a step, events of a step, throughput.
const (
	maxRatio      = 1.10
	maxEvents     = 7.0
	minThroughput = 0.9
)

type stepsFigures struct {
	Steps            int       `json:"steps"`
	UnwindMS         float64   `json:"unwind_ms"` // median wall time of the task
	BareMS           float64   `json:"bare_ms"`   // median wall time of the bare workflow
	Ratio            float64   `json:"ratio"`     // median of the ratios pair by pair
	Ratios           []float64 `json:"ratios"`    // sorted
	EventsPerStep    float64   `json:"events_per_step"`
	UnwindStepsPerS  float64   `json:"unwind_steps_per_s"`
	BareStepsPerS    float64   `json:"bare_steps_per_s"`
	ThroughputRatio  float64   `json:"throughput_ratio"`
	WaitingTasks     int       `json:"waiting_tasks"`
	WaitingMiB       float64   `json:"waiting_mib"` // heap that the waiting tasks add to the worker
	WaitingKiBAtGate float64   `json:"waiting_kib_a_task"`
}

// steps measures what a step of ours costs against a bare activity, on the same server and worker.
func steps(ctx context.Context) (any, []string, error) {
	s, err := newStage(ctx, noopWorld(nil))
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	f := stepsFigures{Steps: chainSteps, WaitingTasks: waiting}

	ours, theirs, ratios, err := inPairs(pairs,
		func(i int) (float64, error) {
			return s.timed(ctx, fmt.Sprintf("ours-%d", i), protocol.AgentTaskType, document(chainSteps, ""))
		},
		func(i int) (float64, error) { return s.timed(ctx, fmt.Sprintf("bare-%d", i), "bare", chainSteps) })
	if err != nil {
		return nil, nil, err
	}
	f.UnwindMS, f.BareMS, f.Ratio = median(ours), median(theirs), median(ratios)
	slices.Sort(ratios)
	f.Ratios = ratios
	if f.EventsPerStep, err = s.events(ctx, "ours-1"); err != nil {
		return nil, nil, err
	}

	oursMany, theirsMany, manyRatios, err := inPairs(manyPairs,
		func(i int) (float64, error) {
			return s.many(ctx, fmt.Sprintf("many-ours-%d", i), protocol.AgentTaskType, document(manySteps, ""))
		},
		func(i int) (float64, error) { return s.many(ctx, fmt.Sprintf("many-bare-%d", i), "bare", manySteps) })
	if err != nil {
		return nil, nil, err
	}
	f.UnwindStepsPerS, f.BareStepsPerS, f.ThroughputRatio = median(oursMany), median(theirsMany), median(manyRatios)

	if f.WaitingMiB, err = s.atGates(ctx); err != nil {
		return nil, nil, err
	}
	f.WaitingKiBAtGate = f.WaitingMiB * 1024 / waiting

	fmt.Printf(`
%-44s %12s %12s %8s
%-44s %9.1f ms %9.1f ms %8.3f   (pairs: %.3f to %.3f; target at most %.2f)
%-44s %12.2f %12s %8s   (target at most %.0f)
%-44s %10.0f/s %10.0f/s %8.3f   (target at least %.2f)
%-44s %8.1f MiB, %.1f KiB a task

`, "", "unwind", "bare", "ratio",
		fmt.Sprintf("one task, %d steps, median of %d pairs", chainSteps, pairs), f.UnwindMS, f.BareMS, f.Ratio, ratios[0],
		ratios[len(ratios)-1], maxRatio,
		"history events a step", f.EventsPerStep, "", "", maxEvents,
		fmt.Sprintf("%d tasks x %d steps, steps a second", manyTasks, manySteps), f.UnwindStepsPerS, f.BareStepsPerS,
		f.ThroughputRatio, minThroughput,
		fmt.Sprintf("worker heap for %d tasks at a gate", waiting), f.WaitingMiB, f.WaitingKiBAtGate)

	var missed []string
	if f.Ratio > maxRatio {
		missed = append(missed, fmt.Sprintf("wall time %.3fx, target %.2fx", f.Ratio, maxRatio))
	}
	if f.EventsPerStep > maxEvents {
		missed = append(missed, fmt.Sprintf("%.2f events a step, target %.0f", f.EventsPerStep, maxEvents))
	}
	if f.ThroughputRatio < minThroughput {
		missed = append(missed, fmt.Sprintf("throughput %.3fx, target %.2fx", f.ThroughputRatio, minThroughput))
	}
	return f, missed, nil
}

// inPairs measures n pairs, after one to warm up, and returns both sides and the ratio of each.
func inPairs(n int, ours, theirs func(i int) (float64, error)) (a, b, ratios []float64, err error) {
	for i := range n + 1 {
		one, other, err := inTurn(i, func() (float64, error) { return ours(i) }, func() (float64, error) { return theirs(i) })
		if err != nil {
			return nil, nil, nil, err
		}
		if i > 0 {
			a, b, ratios = append(a, one), append(b, other), append(ratios, one/other)
		}
	}
	return a, b, ratios, nil
}

// inTurn measures both sides of a pair; every other pair begins with the other side, so that a
// drift of the machine's speed cancels out.
func inTurn(i int, ours, theirs func() (float64, error)) (a, b float64, err error) {
	if i%2 == 0 {
		if a, err = ours(); err == nil {
			b, err = theirs()
		}
		return a, b, err
	}
	if b, err = theirs(); err == nil {
		a, err = ours()
	}
	return a, b, err
}

// document is a task of n no-op steps, each of which needs the one before; gate is the last one's.
func document(n int, gate string) map[string]any {
	list := noops("step", n)
	if gate != "" {
		list[n-1]["gate"] = gate
	}
	return map[string]any{"name": "bench", "agent": "bench", "steps": list}
}

func noops(prefix string, n int) []map[string]any {
	list := make([]map[string]any, n)
	for i := range list {
		list[i] = map[string]any{"id": fmt.Sprintf("%s-%d", prefix, i), "uses": "noop.step", "with": map[string]any{}}
	}
	return list
}

func (s *stage) startWorkflow(ctx context.Context, id, workflowType string, argument any) (client.WorkflowRun, error) {
	options := client.StartWorkflowOptions{ID: id, TaskQueue: queue}
	if workflowType == protocol.AgentTaskType {
		options.TypedSearchAttributes = protocol.ServingAttributes("bench", "")
	}
	return s.client.ExecuteWorkflow(ctx, options, workflowType, argument)
}

// timed runs one workflow and returns its wall time in milliseconds.
func (s *stage) timed(ctx context.Context, id, workflowType string, argument any) (float64, error) {
	began := time.Now()
	run, err := s.startWorkflow(ctx, id, workflowType, argument)
	if err != nil {
		return 0, err
	}
	var report compensations.Report
	if workflowType == protocol.AgentTaskType {
		err = run.Get(ctx, &report)
	} else {
		err = run.Get(ctx, nil)
	}
	return float64(time.Since(began).Microseconds()) / 1000, err
}

// many runs manyTasks at once and returns the steps a second.
func (s *stage) many(ctx context.Context, id, workflowType string, argument any) (float64, error) {
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := range manyTasks {
		group.Go(func() error {
			_, err := s.timed(ctx, fmt.Sprintf("%s-%d", id, i), workflowType, argument)
			return err
		})
	}
	err := group.Wait()
	return manyTasks * manySteps / time.Since(began).Seconds(), err
}

// events is how many events a step has in a task's history.
func (s *stage) events(ctx context.Context, id string) (float64, error) {
	desc, err := s.client.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return 0, err
	}
	return float64(desc.WorkflowExecutionInfo.HistoryLength) / chainSteps, nil
}

// atGates starts tasks that all wait at a gate, and returns by how much the heap of the worker has
// grown, in MiB. Server and worker are two processes; this one holds the worker and the client.
func (s *stage) atGates(ctx context.Context) (float64, error) {
	before := heap()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(20)
	var mu sync.Mutex
	var ids []string
	for i := range waiting {
		group.Go(func() error {
			id := fmt.Sprintf("waiting-%d", i)
			_, err := s.startWorkflow(groupCtx, id, protocol.AgentTaskType, document(3, "ask"))
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, id)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	if err := s.awaitGates(ctx, "step-2", waiting); err != nil {
		return 0, err
	}
	after := heap()
	for _, id := range ids {
		if err := s.client.TerminateWorkflow(ctx, id, "", "the bench is over"); err != nil {
			return 0, err
		}
	}
	return float64(after-before) / (1 << 20), nil
}

// awaitGates waits until so many tasks wait at the gate of a step.
func (s *stage) awaitGates(ctx context.Context, step string, many int64) error {
	for {
		count, err := s.client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: "default",
			Query: fmt.Sprintf("%s = '%s' AND ExecutionStatus = 'Running'", protocol.AttributeGate.GetName(), step)})
		if err != nil || count.Count >= many {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse) //nolint:gosec // a heap of 8 EiB is not measured here
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
