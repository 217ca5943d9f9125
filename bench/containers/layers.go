package containers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities/docker/overlay/sidecar"
)

// What layers may take besides the steps themselves, in milliseconds.
const (
	startTarget   = 1000
	landTarget    = 2000
	restartTarget = 1000
)

// occasions are what layers take besides the steps themselves; medians in milliseconds.
type occasions struct {
	// FirstStep has to start the helper, FirstImport to give the engine the helper's image before;
	// both without what a later step takes, which is LaterStep.
	FirstStep   float64 `json:"first_step_ms"`
	FirstImport float64 `json:"first_step_with_import_ms"`
	LaterStep   float64 `json:"later_step_ms"`
	// Land is the commit of a task that has written 200 MB; DockerCommit is that of a container which
	// holds the same.
	Land         float64 `json:"commit_200_mb_ms"`
	DockerCommit float64 `json:"docker_commit_200_mb_ms"`
	// Restart is from when docker restart returns until a command sees the layers of an open task.
	Restart float64 `json:"restart_ms"`
}

// measureOccasions measures them, each in containers of its own.
func (r *run) measureOccasions(ctx context.Context) (o occasions, err error) {
	for _, measure := range []func(context.Context, *occasions) error{r.firstSteps, r.landings, r.restarts} {
		if err := measure(ctx, &o); err != nil {
			return o, err
		}
	}
	return o, nil
}

// firstSteps measures steps of workers that have no helper yet and start none in advance.
func (r *run) firstSteps(ctx context.Context, o *occasions) error {
	var with, without, later []float64
	for i := range r.rounds {
		for _, imports := range []bool{true, false} {
			progressf("the first step of a worker, round %d of %d", i+1, r.rounds)
			first, next, err := r.firstStep(ctx, imports)
			if err != nil {
				return fmt.Errorf("the first step: %w", err)
			}
			if later = append(later, next); imports {
				with = append(with, first-next)
			} else {
				without = append(without, first-next)
			}
		}
	}
	o.FirstStep, o.FirstImport, o.LaterStep = median(without), median(with), median(later)
	return nil
}

func (r *run) firstStep(ctx context.Context, imports bool) (first, later float64, err error) {
	if imports {
		if err := r.forgetHelper(ctx); err != nil {
			return 0, 0, err
		}
	}
	err = r.withTasks(ctx, unprepared, func(t *tasks, id string) error {
		one, err := t.runTask(ctx, id, 1, false)
		if err != nil {
			return err
		}
		another, err := t.runTask(ctx, id, 1, false)
		if err != nil {
			return err
		}
		first, later = one.forwards[0], another.forwards[0]
		return nil
	})
	return first, later, err
}

// forgetHelper removes the image of the helper, and before that what runs of it.
func (r *run) forgetHelper(ctx context.Context) error {
	ref, err := sidecar.Ref()
	if err != nil {
		return err
	}
	r.helper.Close()
	if err := sidecar.Remove(ctx, r, filepath.Base(r.dir)); err != nil {
		return err
	}
	return r.drop(ref)
}

// withTasks runs f with a worker and a container of their own.
func (r *run) withTasks(ctx context.Context, how preparation, f func(t *tasks, id string) error) (err error) {
	t, err := startTasks(ctx, r.address(), how)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close(), sidecar.Remove(context.WithoutCancel(ctx), r, t.home)) }()
	source, err := r.source(load{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	id, err := r.box(ctx, r.ref, source)
	defer func() { r.remove(id) }()
	if err != nil {
		return err
	}
	return f(t, id)
}

// landings measures commits of tasks that have written 200 MB.
func (r *run) landings(ctx context.Context, o *occasions) (err error) {
	l := load{name: "200 MB", files: 4, size: 50 << 20}
	source, err := r.source(l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	var ours, docker []float64
	err = r.withTasks(ctx, prepared, func(t *tasks, _ string) error {
		for i := range r.rounds {
			progressf("commit of %s, round %d of %d", l.name, i+1, r.rounds)
			if err := r.rest(); err != nil {
				return err
			}
			commit, _, err := r.byHand(ctx, l, source, 0)
			if err != nil {
				return err
			}
			if err := r.rest(); err != nil {
				return err
			}
			land, err := r.land(ctx, t, source)
			if err != nil {
				return err
			}
			ours, docker = append(ours, land), append(docker, commit)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("commit of %s: %w", l.name, err)
	}
	o.Land, o.DockerCommit = median(ours), median(docker)
	return nil
}

// land runs a task that copies a source, and says what its commit has taken.
func (r *run) land(ctx context.Context, t *tasks, source string) (float64, error) {
	id, err := r.box(ctx, r.ref, source)
	defer func() { r.remove(id) }()
	if err != nil {
		return 0, err
	}
	took, err := t.runSteps(ctx, []map[string]any{execStep("copy", id, "cp -r /source/load /load")}, 1, false)
	if err == nil && len(took.commits) != 1 {
		err = fmt.Errorf("the task has %d commits, not one", len(took.commits))
	}
	if err != nil {
		return 0, err
	}
	return took.commits[0], nil
}

// restarts measures how soon the layers of an open task are back after a restart of their
// container.
func (r *run) restarts(ctx context.Context, o *occasions) error {
	var all []float64
	for i := range r.rounds {
		progressf("restart, round %d of %d", i+1, r.rounds)
		err := r.withTasks(ctx, prepared, func(t *tasks, id string) (err error) {
			end, err := t.open(ctx, id)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, end()) }()
			now := 0
			if err := r.ContainerRestart(ctx, id, container.StopOptions{Timeout: &now}); err != nil {
				return err
			}
			took, err := timed(func() error { return r.awaitFile(ctx, id, "/written") })
			all = append(all, took)
			return err
		})
		if err != nil {
			return fmt.Errorf("a restart: %w", err)
		}
	}
	o.Restart = median(all)
	return nil
}

// patience is how long something is waited for that should take a second.
const patience = 20 * time.Second

// awaitFile waits until a command in a container sees a file.
func (r *run) awaitFile(ctx context.Context, id, at string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		seen, err := r.sees(ctx, id, at)
		if seen || err != nil {
			return err
		}
	}
}

func (r *run) sees(ctx context.Context, id, at string) (bool, error) {
	made, err := r.ContainerExecCreate(ctx, id, container.ExecOptions{Cmd: []string{"cat", at}, AttachStdout: true})
	if err != nil {
		return false, err
	}
	stream, err := r.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return false, err
	}
	defer stream.Close()
	if _, err := io.Copy(io.Discard, stream.Reader); err != nil {
		return false, err
	}
	for {
		ended, err := r.ContainerExecInspect(ctx, made.ID)
		if err != nil || !ended.Running {
			return ended.ExitCode == 0, err
		}
	}
}

func printOccasions(o occasions) (missed []string) {
	fmt.Print("\nBesides the steps, with layers, ms\n\n")
	for _, row := range []struct {
		what         string
		took, target float64
		beside       string
	}{
		{"a first step that starts the helper takes longer by", o.FirstStep, startTarget, "a later step: " + ms(o.LaterStep)},
		{"a first step that also imports the helper's image, by", o.FirstImport, startTarget,
			"a later step: " + ms(o.LaterStep)},
		{"commit of 200 MB", o.Land, landTarget, "docker commit: " + ms(o.DockerCommit)},
		{"from the restart of a container to its layers", o.Restart, restartTarget, ""},
	} {
		fmt.Printf("%-54s %8s (target: %.0f)  %s\n", row.what, ms(row.took), row.target, row.beside)
		if row.took > row.target {
			missed = append(missed, fmt.Sprintf("%s: %s ms, not at most %.0f", row.what, ms(row.took), row.target))
		}
	}
	return missed
}
