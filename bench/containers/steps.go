package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// What whole steps may take with layers: a task of commands against a loop of docker exec, an undo
// in milliseconds, and the last hundred of many commands against the first hundred.
const (
	stepTarget = 1.3
	undoTarget = 25
	flatTarget = 1.2
	// commands is how many a task has that is measured.
	commands = 30
)

// steps are whole steps through a task, with layers; medians in milliseconds a step.
type steps struct {
	Load string  `json:"load"`
	Bare float64 `json:"docker_exec_ms"`
	Step float64 `json:"step_ms"`
	Undo float64 `json:"undo_ms"`
}

// measureSteps measures tasks of commands against the same commands by docker exec, side by side in
// one container.
func (r *run) measureSteps(ctx context.Context) (all []steps, err error) {
	t, err := startTasks(ctx, r.address(), prepared)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	for _, l := range []load{loads[0], loads[len(loads)-1]} {
		s, err := r.stepsOver(ctx, t, l)
		if err != nil {
			return all, fmt.Errorf("%s: %w", l.name, err)
		}
		all = append(all, s)
	}
	return all, nil
}

func (r *run) stepsOver(ctx context.Context, t *tasks, l load) (s steps, err error) {
	source, err := r.source(l)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	id, err := r.box(ctx, r.ref, source)
	defer func() { r.remove(id) }()
	if err == nil {
		err = r.fill(ctx, id, l)
	}
	if err == nil {
		_, err = t.runTask(ctx, id, 1, true) // the first step starts the helper
	}
	if err != nil {
		return s, err
	}
	var bare, ours, undos []float64
	for i := range r.rounds {
		progressf("%s: %d commands, round %d of %d", l.name, commands, i+1, r.rounds)
		took, err := timed(func() error { return r.loop(ctx, id, commands) })
		if err != nil {
			return s, err
		}
		bare = append(bare, took/commands)
		task, err := t.runTask(ctx, id, commands, false)
		if err != nil {
			return s, err
		}
		ours = append(ours, task.wall/commands)
		undone, err := t.runTask(ctx, id, commands, true)
		if err != nil {
			return s, err
		}
		undos = append(undos, undone.unwinding/float64(undone.undos))
	}
	return steps{Load: l.name, Bare: median(bare), Step: median(ours), Undo: median(undos)}, nil
}

// loop runs commands as people do.
func (r *run) loop(ctx context.Context, id string, n int) error {
	for i := range n {
		command := exec.CommandContext(ctx, "docker", "exec", id, "sh", "-c", fmt.Sprintf("echo %d >/written", i))
		command.Env = append(os.Environ(), "DOCKER_HOST="+r.address())
		if said, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("docker exec: %w: %s", err, said)
		}
	}
	return nil
}

func printSteps(all []steps) (missed []string) {
	const row = "%-13s %12s %12s %8s %12s\n"
	fmt.Printf("\nWhole steps through a task of %d commands, with layers, ms a step\n\n", commands)
	fmt.Printf(row, "holds", "docker exec", "step", "ratio", "undo")
	for _, s := range all {
		fmt.Printf(row, s.Load, ms(s.Bare), ms(s.Step), fmt.Sprintf("%.2fx", s.Step/s.Bare), ms(s.Undo))
		if ratio := s.Step / s.Bare; ratio > stepTarget {
			missed = append(missed,
				fmt.Sprintf("%s: a step takes %.2f times as long as docker exec, not at most %.1f", s.Load, ratio, stepTarget))
		}
		if s.Undo > undoTarget {
			missed = append(missed,
				fmt.Sprintf("%s: the undo of a step takes %s ms, not at most %d", s.Load, ms(s.Undo), undoTarget))
		}
	}
	return missed
}

// long is one task of many commands.
type long struct {
	Commands int     `json:"commands"`
	First    float64 `json:"first_hundred_ms"`
	Last     float64 `json:"last_hundred_ms"`
	Undo     float64 `json:"undo_ms"`
}

// measureLong prints whether the steps of a long task stay as quick as they begin.
func (r *run) measureLong(ctx context.Context, n int) (figures any, missed []string, err error) {
	t, id, end, err := r.readyBox(ctx)
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return nil, nil, err
	}
	took, err := t.runTask(ctx, id, n, true)
	if err != nil {
		return nil, nil, err
	}
	l := long{Commands: n, First: median(took.forwards[:ends]), Last: median(took.forwards[n-ends:]),
		Undo: took.unwinding / float64(took.undos)}
	ratio := l.Last / l.First
	fmt.Printf("a task of %d commands: the first %d took %s ms each, the last %s ms: %.2fx; their undo %s ms each\n\n",
		n, ends, ms(l.First), ms(l.Last), ratio, ms(l.Undo))
	if ratio > flatTarget {
		missed = append(missed,
			fmt.Sprintf("the last of %d commands take %.2f times as long as the first, not at most %.1f", n, ratio, flatTarget))
	}
	if l.Undo > undoTarget {
		missed = append(missed,
			fmt.Sprintf("the undo of %d commands takes %s ms each, not at most %d", n, ms(l.Undo), undoTarget))
	}
	return map[string]any{"engine": r.version, "driver": r.driver, "long": l}, missed, nil
}
