package containers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/client"

	"github.com/seed-62bf7108/unwind/activities/docker/demoimage"
	"github.com/seed-62bf7108/unwind/activities/docker/enginetest"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/helper"
	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
)

// What the usual way takes must be at least so many times what layers take; the first two from 15
// MB on, and without any grace for the container's processes.
const (
	checkpointTarget = 20
	rollbackTarget   = 50
	pileTarget       = 50
)

// figures are medians in milliseconds.
type figures struct {
	Load string `json:"load"`
	// Commit, and Grace and Stop with ten seconds and with none, are docker's; the others those of
	// layers.
	Commit     float64 `json:"commit_ms"`
	Grace      float64 `json:"stop_grace_rm_run_ms"`
	Stop       float64 `json:"stop_rm_run_ms"`
	Checkpoint float64 `json:"layer_checkpoint_ms"`
	Rollback   float64 `json:"layer_rollback_ms"`

	bytes int64
}

// Command measures; args are its flags.
func Command(ctx context.Context, args []string) (result any, missed []string, err error) {
	flags := flag.NewFlagSet("containers", flag.ExitOnError)
	quick := flags.Bool("quick", false, "leave out 1 GB")
	rounds := flags.Int("rounds", 5, "how often each is measured; the median counts")
	deep := flags.Int("depth", 0, "measure nothing but so many checkpoints of one container, each over all before it")
	many := flags.Int("commands", 0, "measure nothing but a task of so many commands, with layers")
	whole := flags.Bool("steps", false, "measure nothing but whole steps through tasks")
	byLayers := flags.Bool("layers", false, "measure nothing but whole steps with layers, and what layers take besides")
	byCommit := flags.String("commits", "",
		"measure nothing but whole steps by docker commit, on the engine with this storage `driver`, or on all")
	_ = flags.Parse(args) // it exits
	if *many != 0 && *many < 2*ends {
		return nil, nil,
			fmt.Errorf("-commands %d: the first %d commands are compared with the last; name at least %d", *many, ends, 2*ends)
	}
	if *deep != 0 && *deep < 2*ends {
		return nil, nil,
			fmt.Errorf("-depth %d: the first %d checkpoints are compared with the last; name at least %d", *deep, ends, 2*ends)
	}
	if !slices.Contains(append([]string{"", everyDriver}, drivers...), *byCommit) {
		return nil, nil, fmt.Errorf("-commits %s: name %s, or %s", *byCommit, strings.Join(drivers, ", "), everyDriver)
	}
	r, err := beginRun(ctx, *rounds)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, r.clearAll()) }()
	switch {
	case *deep > 0:
		return r.measureDepth(ctx, *deep)
	case *many > 0:
		return r.measureLong(ctx, *many)
	case *whole:
		return r.wholeSteps(ctx)
	case *byLayers:
		figures, missed, err := r.measureLayers(ctx)
		fmt.Println()
		return figures, missed, err
	case *byCommit != "":
		all, err := r.measureCommits(ctx, *byCommit)
		missed = printCommits(all) // what there is, where a later load has failed
		fmt.Println()
		return map[string]any{"engine": r.version, "commits": all}, missed, err
	}
	all, err := r.all(ctx, *quick)
	fmt.Printf("Docker engine %s, %s; medians of %d, in ms\n\n", r.version, r.driver, *rounds)
	missed = printLayers(all) // what there is, where a later load has failed
	if err != nil {
		return nil, nil, err
	}
	progressf("%d checkpoints of 10 MB more each", piled)
	p, err := r.pile(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%d checkpoints: %w", piled, err)
	}
	ratio := sum(p.Commits) / sum(p.Layers)
	fmt.Printf("\n%d checkpoints of 10 MB more each: docker commit %.0f ms (%.0f to %.0f each), layers %.0f ms (%.1f "+
		"to %.1f): %s\n\n",
		piled, sum(p.Commits), p.Commits[0], p.Commits[piled-1], sum(p.Layers), p.Layers[0], p.Layers[piled-1], times(ratio))
	missed = append(missed, under("checkpoints that pile up", ratio, pileTarget)...)
	figures, late, err := r.wholeSteps(ctx)
	if err != nil {
		return nil, nil, err
	}
	figures["figures"], figures["pile"] = all, p
	return figures, append(missed, late...), nil
}

// wholeSteps measures steps through tasks.
func (r *run) wholeSteps(ctx context.Context) (figures map[string]any, missed []string, err error) {
	figures, missed, err = r.measureLayers(ctx)
	if err != nil {
		return nil, nil, err
	}
	commits, err := r.measureCommits(ctx, everyDriver)
	missed = append(missed, printCommits(commits)...)
	fmt.Println()
	figures["commits"] = commits
	return figures, missed, err
}

// measureLayers measures whole steps with layers, and what these take besides.
func (r *run) measureLayers(ctx context.Context) (figures map[string]any, missed []string, err error) {
	layers, err := r.measureSteps(ctx)
	missed = printSteps(layers) // what there is, where a later load has failed
	if err != nil {
		return nil, missed, err
	}
	others, err := r.measureOccasions(ctx)
	if err != nil {
		return nil, missed, err
	}
	missed = append(missed, printOccasions(others)...)
	return map[string]any{"engine": r.version, "driver": r.driver, "steps": layers, "occasions": others}, missed, nil
}

// address is that of the engine.
func (r *run) address() string { return r.DaemonHost() }

// all measures all loads, or those before the one that fails.
func (r *run) all(ctx context.Context, quick bool) (all []figures, err error) {
	for _, l := range loads {
		if l.large && quick {
			continue
		}
		f, err := r.measure(ctx, l)
		if err != nil {
			return all, fmt.Errorf("%s: %w", l.name, err)
		}
		all = append(all, f)
	}
	return all, nil
}

// printLayers prints what layers take against docker's usual way.
func printLayers(all []figures) (missed []string) {
	const row = "%-13s %10s %8s %8s | %14s %10s %8s %8s\n"
	fmt.Printf(row, "holds", "commit", "layer", "ratio", "stop, rm, run", "with -t 0", "layers", "ratio")
	for _, f := range all {
		checkpoint, rollback := f.Commit/f.Checkpoint, f.Stop/f.Rollback
		fmt.Printf(row, f.Load, ms(f.Commit), ms(f.Checkpoint), times(checkpoint), ms(f.Grace), ms(f.Stop), ms(f.Rollback),
			times(rollback))
		if f.bytes > 0 {
			missed = append(missed, under(f.Load+": a checkpoint", checkpoint, checkpointTarget)...)
			missed = append(missed, under(f.Load+": a rollback", rollback, rollbackTarget)...)
		}
	}
	return missed
}

// progressf says what is measured now, for those who wait.
func progressf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func ms(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func times(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1fx", v)
	}
	return fmt.Sprintf("%.0fx", v)
}

func under(what string, ratio, target float64) []string {
	if ratio >= target {
		return nil
	}
	return []string{fmt.Sprintf("%s takes docker %.1f times as long, not %.0f", what, ratio, target)}
}

// run is one run of the bench.
type run struct {
	*client.Client
	own             *enginetest.Engine // nil where the engine at hand has overlay2
	helper          *helper.Client
	dir, ref        string
	version, driver string
	rounds          int
}

func beginRun(ctx context.Context, rounds int) (_ *run, err error) {
	r := &run{rounds: rounds, ref: fmt.Sprintf("unwind/bench-containers:%d", os.Getpid())}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.clearAll())
		}
	}()
	if err := r.connect(ctx); err != nil {
		return nil, err
	}
	if r.dir, err = os.MkdirTemp("", "unwind-bench-"); err != nil {
		return nil, err
	}
	r.helper = helper.NewClient(sidecar.Starter(r, filepath.Base(r.dir)))
	if _, err := r.helper.Ask(ctx, helper.Request{Op: helper.Probe}); err != nil {
		return nil, fmt.Errorf("no layers here: %w", err)
	}
	_, err = demoimage.Build(ctx, r, r.ref)
	return r, err
}

// connect connects to the engine at hand where it has overlay2, as most have, or else to one of its
// own.
func (r *run) connect(ctx context.Context) (err error) {
	options := []client.Opt{client.FromEnv, client.WithAPIVersionNegotiation()}
	for {
		if r.Client, err = client.NewClientWithOpts(options...); err != nil {
			return err
		}
		info, err := r.Info(ctx)
		if r.version, r.driver = info.ServerVersion, info.Driver; err == nil && r.driver == "overlay2" {
			return nil
		}
		r.Close()
		if r.own != nil {
			return errors.Join(err, fmt.Errorf("the engine has storage driver %s, not overlay2", r.driver))
		}
		if r.own, err = enginetest.Open(); err != nil {
			return err
		}
		options = append(options, client.WithHost(r.own.Host))
	}
}

func (r *run) clearAll() (err error) {
	if r.helper != nil {
		r.helper.Close()
	}
	if r.own != nil {
		err = r.own.Close()
	} else if r.Client != nil {
		_ = r.drop(r.ref)
		err = sidecar.Remove(context.Background(), r, filepath.Base(r.dir))
	}
	if r.Client != nil {
		r.Close()
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}
