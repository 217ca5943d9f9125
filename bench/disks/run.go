// Package disks measures how long a checkpoint of a disk of 2 GB stops the machine that has it open.
package disks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/disk"
)

const (
	diskSize    = "2G"
	checkpoints = 11
	stopTarget  = 100 * time.Millisecond
)

// figures are medians in milliseconds.
type figures struct {
	Checkpoint float64 `json:"checkpoint_ms"`
	// Stopped is the longest write of the machine while a checkpoint is taken, Longest the longest
	// of all, and Idle the longest write in as long a time without a checkpoint.
	Stopped float64 `json:"stopped_ms"`
	Longest float64 `json:"longest_stopped_ms"`
	Idle    float64 `json:"idle_ms"`
}

// Run takes checkpoints one after the other, of a disk all of whose clusters are allocated.
func Run(ctx context.Context) (result any, missed []string, err error) {
	dir, err := os.MkdirTemp("", "unwind-bench-disks-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "disk.qcow2")
	if said, err := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-o", "preallocation=falloc", path,
		diskSize).CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("making a disk: %w: %s", err, said)
	}
	m, err := startMachine(ctx, dir, path)
	if err != nil {
		return nil, nil, err
	}
	defer m.stop()
	found, err := measure(ctx, dir, path, m)
	if err != nil {
		return nil, nil, err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "checkpoint of %s\tlongest write meanwhile\ttarget\tof all\twithout a checkpoint\n"+
		"%.0f ms\t%.0f ms\t%d ms\t%.0f ms\t%.0f ms\n", diskSize, found.Checkpoint, found.Stopped, stopTarget.Milliseconds(),
		found.Longest, found.Idle)
	if found.Stopped > ms(stopTarget) {
		missed = append(missed, fmt.Sprintf("the machine was stopped for %.0f ms, target %d", found.Stopped,
			stopTarget.Milliseconds()))
	}
	return found, missed, w.Flush()
}

func measure(ctx context.Context, dir, path string, m *machine) (f figures, err error) {
	w, err := disk.New(disk.Config{State: filepath.Join(dir, "state"), Roots: []string{dir},
		Machines: map[string]disk.Machine{"bench": {QMP: m.ours}}})
	if err != nil {
		return f, err
	}
	keep, err := newKeeper(ctx, w, path)
	if err != nil {
		return f, err
	}
	var took, stopped, idle []time.Duration
	for range checkpoints {
		began := time.Now()
		longest, err := m.longestWrite(ctx, func() error { return keep(ctx) })
		if err != nil {
			return f, err
		}
		took, stopped = append(took, time.Since(began)), append(stopped, longest)
		if longest, err = m.longestWrite(ctx, func() error { return wait(ctx, time.Since(began)) }); err != nil {
			return f, err
		}
		idle = append(idle, longest)
	}
	return figures{Checkpoint: median(took), Stopped: median(stopped), Longest: ms(slices.Max(stopped)),
		Idle: median(idle)}, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func median(all []time.Duration) float64 { return ms(slices.Sorted(slices.Values(all))[len(all)/2]) }

// newKeeper returns what takes a checkpoint each time that it is called.
func newKeeper(ctx context.Context, w activities.World, path string) (func(context.Context) error, error) {
	place, err := w.Journal(ctx)
	if err != nil {
		return nil, err
	}
	with, err := json.Marshal(map[string]any{"disk": path})
	if err != nil {
		return nil, err
	}
	for _, a := range w.Actions {
		if a.Spec().Name != "disk.checkpoint" {
			continue
		}
		params, err := a.Spec().EntryParams(with)
		n := 0
		return func(ctx context.Context) error {
			n++
			e := activities.Entry{Version: activities.EntryVersion, Seq: 1, Step: "keep", Action: a.Spec().Name,
				UndoType: a.Spec().Name + ".undo", Params: params, Token: activities.NewToken("bench", "keep", n),
				Place: activities.Place{Queue: "bench", Host: "here", Journal: place}}
			r, err := a.Apply(ctx, e, activities.Step{ID: "keep", With: with}, "")
			if err == nil && r.Outputs["running"] != true {
				err = errors.New("the machine does not run")
			}
			return err
		}, err
	}
	return nil, errors.New("there is no disk.checkpoint")
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
