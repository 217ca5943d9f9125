package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

const (
	askingAgents = 25  // whose gates they are, so that a list has all sizes of batches
	looks        = 21  // at each page
	approvals    = 100 // made one by one, and as many in batches
	maxPaint     = 200 // milliseconds until something is seen, at most
	maxClear     = 5 * time.Minute
	atOnce       = 50 // tasks that are started at once
)

type pageFigures struct {
	Ended   int `json:"ended_tasks"`
	Gates   int `json:"gates"`
	Listed  int `json:"listed"` // what the page says waits
	ReadyMS int `json:"ready_ms"`

	Paints []paint `json:"paints"`

	WorkerMiB float64 `json:"worker_mib"` // resident, with all gates waiting
	PageMiB   float64 `json:"page_mib"`
	// EmptyWorkerMiB and EmptyPageMiB are without any task.
	EmptyWorkerMiB float64 `json:"empty_worker_mib"`
	EmptyPageMiB   float64 `json:"empty_page_mib"`

	OneByOneS float64        `json:"one_by_one_s"`
	Kinds     map[string]int `json:"one_by_one_kinds"` // how many of them there were of each action
	BatchesS  float64        `json:"batches_s"`
}

// paint is how long a page takes to be seen, in milliseconds from the moment it is asked for.
type paint struct {
	Page   string  `json:"page"`
	Median float64 `json:"median_ms"`
	Worst  float64 `json:"worst_ms"`
	// Answer is the median time until the server's answer begins.
	Answer float64 `json:"answer_ms"`
}

// pages measures starter serve with many tasks, as a browser shows it.
func pages(ctx context.Context) (any, []string, error) {
	flags := flag.NewFlagSet("page", flag.ContinueOnError)
	ended := flags.Int("tasks", 10_000, "how many tasks have ended")
	gates := flags.Int("gates", 1_000, "how many tasks wait at a gate, at least 300")
	if err := flags.Parse(os.Args[2:]); err != nil {
		return nil, nil, err
	}
	if *gates < 3*approvals {
		return nil, nil, fmt.Errorf("-gates %d: give at least %d, of which two thirds are approved", *gates, 3*approvals)
	}
	f := pageFigures{Ended: *ended, Gates: *gates}
	s, err := newPageStage(ctx, f.Gates)
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	if f.EmptyWorkerMiB, err = resident("self"); err != nil {
		return nil, nil, err
	}
	served, err := servePage(ctx, s.server.Address)
	if err != nil {
		return nil, nil, err
	}
	defer func() { served.stop() }()
	if f.EmptyPageMiB, err = served.resident(); err != nil {
		return nil, nil, err
	}
	if err := s.fill(ctx, f); err != nil {
		return nil, nil, err
	}
	if err := served.measureList(ctx, &f); err != nil {
		return nil, nil, err
	}
	b, closeBrowser, err := openBrowser(ctx, filepath.Join(s.dir, "browser"), served.address)
	if err != nil {
		return nil, nil, err
	}
	defer closeBrowser()
	for _, path := range []string{"/", "/?q=agent-7", "/?page=5", "/tasks", "/tasks?agent=agent-7", "/tasks/gate-1",
		"/tasks/gate-1/steps/step", "/tasks/gate-1/trace"} {
		p, err := b.measurePaint(path)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		f.Paints = append(f.Paints, p)
	}
	if err := b.approveOneByOne(&f); err != nil {
		return nil, nil, err
	}
	if err := b.approveBatches(&f); err != nil {
		return nil, nil, err
	}
	return f, f.report(), nil
}

// report prints the figures, and returns the targets that were missed.
func (f pageFigures) report() (missed []string) {
	fmt.Printf("\n%d ended tasks, %d gates, of which the page lists %d after %d ms; %d looks at each page\n", f.Ended,
		f.Gates, f.Listed, f.ReadyMS, looks)
	fmt.Printf("%-36s %10s %10s %10s\n", "first paint, ms", "median", "worst", "answer")
	for _, p := range f.Paints {
		fmt.Printf("%-36s %10.0f %10.0f %10.0f   (target under %d)\n", p.Page, p.Median, p.Worst, p.Answer, maxPaint)
		if p.Median >= maxPaint {
			missed = append(missed, fmt.Sprintf("%s is seen after %.0f ms, target %d", p.Page, p.Median, maxPaint))
		}
	}
	fmt.Printf("%-36s %10.0f %10.0f\n", "worker, MiB: without tasks, with them", f.EmptyWorkerMiB, f.WorkerMiB)
	fmt.Printf("%-36s %10.0f %10.0f\n", "page, MiB: likewise", f.EmptyPageMiB, f.PageMiB)
	fmt.Printf("%-36s %8.1f s   (target under %.0f): %v\n%-36s %8.1f s\n\n",
		fmt.Sprintf("%d approvals one by one", approvals), f.OneByOneS, maxClear.Seconds(), f.Kinds,
		"as many in batches", f.BatchesS)
	if f.OneByOneS >= maxClear.Seconds() {
		missed = append(missed, fmt.Sprintf("%d approvals took %.0f s, target %.0f", approvals, f.OneByOneS,
			maxClear.Seconds()))
	}
	return missed
}

// newPageStage is a stage whose worker may also change files below its folder "site".
func newPageStage(ctx context.Context, gates int) (*stage, error) {
	return newStage(ctx, noopWorld(nil), func(c *host.Config, _ *host.Options) {
		site := filepath.Join(filepath.Dir(c.State), "site")
		c.Worlds = append(c.Worlds, &file.Settings{Roots: []string{site}})
		_ = os.Mkdir(site, 0o750) // a gate that shows no change fails the bench
		for i := range gates {
			_ = os.WriteFile(fmt.Sprintf("%s/old-%d", site, i), []byte(strings.Repeat("an old line\n", 40)), 0o600)
		}
	})
}

// fill has many tasks end, and others wait.
func (s *stage) fill(ctx context.Context, f pageFigures) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	began := time.Now()
	for i := range f.Ended {
		group.Go(func() error {
			d := document(1, "")
			d["agent"] = fmt.Sprintf("agent-%d", i%askingAgents)
			_, err := s.timed(groupCtx, fmt.Sprintf("ended-%d", i), protocol.AgentTaskType, d)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d tasks have ended after %s\n", f.Ended, time.Since(began).Round(time.Second))
	group, groupCtx = errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range f.Gates {
		group.Go(func() error {
			_, err := s.startWorkflow(groupCtx, fmt.Sprintf("gate-%d", i), protocol.AgentTaskType, s.asking(i))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	err := s.awaitGates(ctx, "step", int64(f.Gates))
	fmt.Fprintf(os.Stderr, "%d wait at a gate after %s\n", f.Gates, time.Since(began).Round(time.Second))
	return err
}

// asking is a task that waits for a person: one of four kinds of changes.
func (s *stage) asking(i int) map[string]any {
	site := filepath.Join(s.dir, "site")
	old, added := fmt.Sprintf("%s/old-%d", site, i), fmt.Sprintf("%s/new-%d", site, i)
	step := []map[string]any{
		{"uses": "noop.step", "with": map[string]any{}},
		{"uses": "file.write", "with": map[string]any{"path": added, "content": "a new line\n"}},
		{"uses": "file.write", "with": map[string]any{"path": old, "content": fmt.Sprintf("line %d\n", i)}},
		{"uses": "file.delete", "with": map[string]any{"path": old}},
	}[i%4]
	step["id"], step["gate"] = "step", "ask"
	return map[string]any{"name": "bench", "agent": fmt.Sprintf("agent-%d", i%askingAgents), "steps": []any{step}}
}

// servedPage is starter serve in a process of its own.
type servedPage struct {
	process *exec.Cmd
	address string
}

// serveCommand has main be starter serve.
const serveCommand = "serve"

func servePage(ctx context.Context, server string) (*servedPage, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &servedPage{process: exec.CommandContext(ctx, self, serveCommand, "--listen", "127.0.0.1:0")}
	p.process.Env = append(os.Environ(), "TEMPORAL_ADDRESS="+server, "UNWIND_QUEUE="+queue)
	p.process.Stderr = os.Stderr
	out, err := p.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if p.address = regexp.MustCompile(`http://[0-9.:]+`).FindString(line); p.address == "" {
		p.stop()
		return nil, fmt.Errorf("starter serve said %q: %w", line, err)
	}
	return p, nil
}

func (p *servedPage) stop() {
	_ = p.process.Process.Kill()
	_ = p.process.Wait()
}

func (p *servedPage) resident() (float64, error) {
	return resident(strconv.Itoa(p.process.Process.Pid))
}

// resident is the memory of a process, in MiB.
func resident(process string) (float64, error) {
	if process == "self" {
		debug.FreeOSMemory()
	}
	status, err := os.ReadFile("/proc/" + process + "/status")
	if err != nil {
		return 0, err
	}
	kib := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if kib == nil {
		return 0, fmt.Errorf("process %s has no memory", process)
	}
	n, err := strconv.ParseFloat(string(kib[1]), 64)
	return n / 1024, err
}

// waitingBadge is how many things wait, as the page says.
var waitingBadge = regexp.MustCompile(`Waiting \((\d+)\)`)

// measureList measures until the page lists all that waits, and the memory that it and the worker have
// then.
func (p *servedPage) measureList(ctx context.Context, f *pageFigures) error {
	began := time.Now()
	for steady := 0; steady < 3; {
		text, err := get(ctx, p.address+"/")
		if err != nil {
			return err
		}
		n := 0
		if found := waitingBadge.FindStringSubmatch(text); found != nil {
			n, _ = strconv.Atoi(found[1])
		}
		isRead := !strings.Contains(text, "The list is")
		if n != f.Listed || !isRead {
			f.Listed, steady, f.ReadyMS = n, 0, int(time.Since(began).Milliseconds())
		} else {
			steady++
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	var err, worker error
	f.PageMiB, err = p.resident()
	f.WorkerMiB, worker = resident("self")
	return errors.Join(err, worker)
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
