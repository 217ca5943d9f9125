package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"github.com/seed-62bf7108/unwind/starter/bearer"
	"github.com/seed-62bf7108/unwind/starter/page"
	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

const (
	endedTasks = 10_000
	gates      = 1_000
	agentsAsk  = 25  // whose gates they are, so that a list has all sizes of groups
	looks      = 21  // at each page; the median counts
	approvals  = 100 // that a person makes, one after the other
	maxPaint   = 200 // milliseconds until something is seen, at most
	maxClear   = 5 * time.Minute
)

type pageFigures struct {
	Ended       int                `json:"ended_tasks"`
	Gates       int                `json:"gates"`
	PaintMS     map[string]float64 `json:"first_paint_ms"`
	MemoryMiB   float64            `json:"page_heap_mib"` // by which the page's heap is larger than before it knew the gates
	FirstListMS float64            `json:"first_list_ms"` // until a page that was just started knows all gates
	ClearS      float64            `json:"clear_s"`       // for all approvals
	Cleared     int                `json:"cleared"`
}

// pages measures the page with many tasks, in a browser.
func pages(ctx context.Context) (any, []string, error) {
	s, err := newStage(ctx, noopWorld(nil))
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	if err := s.fill(ctx); err != nil {
		return nil, nil, err
	}
	f := pageFigures{Ended: endedTasks, Gates: gates, PaintMS: map[string]float64{}}
	address, stop, err := s.servePage(ctx, &f)
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	b, closeBrowser, err := openBrowser(ctx, s.dir)
	if err != nil {
		return nil, nil, err
	}
	defer closeBrowser()
	for _, path := range []string{"/", "/?q=agent-7", "/tasks", "/tasks/gate-0", "/tasks/gate-0/steps/step-0"} {
		if f.PaintMS[path], err = firstPaint(b, address+path); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := clearGates(b, address, &f); err != nil {
		return nil, nil, err
	}

	var missed []string
	fmt.Printf("\n%d ended tasks, %d gates; median of %d looks\n", endedTasks, gates, looks)
	for path, ms := range f.PaintMS {
		fmt.Printf("%-32s %8.0f ms until the first paint (target under %d)\n", path, ms, maxPaint)
		if ms >= maxPaint {
			missed = append(missed, fmt.Sprintf("%s is seen after %.0f ms, target %d", path, ms, maxPaint))
		}
	}
	fmt.Printf("%-32s %8.0f ms\n%-32s %8.1f MiB\n%-32s %8.1f s (target under %.0f)\n\n", "all gates known after",
		f.FirstListMS, "memory for them", f.MemoryMiB, fmt.Sprintf("%d gates opened and approved in", approvals), f.ClearS,
		maxClear.Seconds())
	if f.ClearS >= maxClear.Seconds() {
		missed = append(missed, fmt.Sprintf("%d approvals took %.0f s, target %.0f", approvals, f.ClearS, maxClear.Seconds()))
	}
	return f, missed, nil
}

// fill has many tasks end, and others wait.
func (s *stage) fill(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(50)
	for i := range endedTasks {
		group.Go(func() error {
			_, err := s.timed(groupCtx, fmt.Sprintf("ended-%d", i), protocol.AgentTaskType, document(1, ""))
			return err
		})
	}
	for i := range gates {
		group.Go(func() error {
			d := document(1, "ask")
			d["agent"] = fmt.Sprintf("agent-%d", i%agentsAsk)
			_, err := s.startWorkflow(groupCtx, fmt.Sprintf("gate-%d", i), protocol.AgentTaskType, d)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return s.awaitGates(ctx, "step-0", gates)
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

// servePage serves the page, and measures until it knows all gates.
func (s *stage) servePage(ctx context.Context, f *pageFigures) (address string, stop func(), err error) {
	before := heap()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	served := &page.Server{Client: &tasks.Client{Client: s.client, Server: tasks.Server{Namespace: "default"}},
		Anybody: &bearer.Person{Name: "bench", Role: bearer.Operator}}
	server := &http.Server{Handler: served.Handler(ctx), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // it ends when it is closed
	stop = func() {
		cancel()
		_ = server.Close()
	}
	address = "http://" + l.Addr().String()
	began := time.Now()
	for known := false; !known; {
		text, err := get(ctx, address+"/")
		if err != nil {
			stop()
			return "", nil, err
		}
		known = strings.Contains(text, fmt.Sprintf("Waiting (%d)", gates))
	}
	f.FirstListMS = float64(time.Since(began).Milliseconds())
	f.MemoryMiB = float64(heap()-before) / (1 << 20)
	return address, stop, nil
}

func get(ctx context.Context, address string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// openBrowser opens a tab.
func openBrowser(ctx context.Context, dir string) (tab context.Context, closeIt func(), err error) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, errors.New("chromium is not on PATH: install the package chromium")
	}
	browser, closeBrowser := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.UserDataDir(filepath.Join(dir, "browser")))...)
	tab, closeTab := chromedp.NewContext(browser)
	return tab, func() { closeTab(); closeBrowser() }, nil
}

// firstPaint is the time in milliseconds from asking for a page until something of it is seen, the
// median of several looks.
func firstPaint(tab context.Context, address string) (float64, error) {
	const seen = `new Promise((done) => new PerformanceObserver((list) => {
		for (const e of list.getEntriesByName("first-contentful-paint")) done(e.startTime);
	}).observe({type: "paint", buffered: true}))`
	var all []float64
	for range looks + 1 {
		if err := chromedp.Do(tab, chromedp.Navigate(address)); err != nil {
			return 0, err
		}
		ms, err := chromedp.Run(tab, chromedp.Evaluate[float64](seen, chromedp.EvalAwaitPromise))
		if err != nil {
			return 0, err
		}
		all = append(all, ms)
	}
	return median(all[1:]), nil
}

// clearGates opens gates one after the other, as a person would who reads each, and approves them.
func clearGates(tab context.Context, address string, f *pageFigures) error {
	began := time.Now()
	for n := range approvals {
		if err := chromedp.Do(tab, chromedp.Navigate(fmt.Sprintf("%s/?q=gate-%d", address, n)),
			chromedp.Click(fmt.Sprintf(`a[href="/tasks/gate-%d/steps/step-0"]`, n)),
			chromedp.WaitVisible("#why")); err != nil {
			return err
		}
		text, err := chromedp.Run(tab, chromedp.Text("main"))
		if err != nil {
			return err
		}
		if !strings.Contains(text, "nothing") { // the change that it shows
			return fmt.Errorf("gate %d does not say what is changed: %s", n, text)
		}
		if err := chromedp.Do(tab, chromedp.Click(`button[value="approve"]`), chromedp.WaitVisible(".told")); err != nil {
			return err
		}
		if text, err = chromedp.Run(tab, chromedp.Text(".told")); err != nil {
			return err
		}
		if strings.Contains(text, "approved") {
			f.Cleared++
		}
	}
	f.ClearS = time.Since(began).Seconds()
	if f.Cleared < approvals {
		return fmt.Errorf("of %d approvals, %d counted", approvals, f.Cleared)
	}
	return nil
}
