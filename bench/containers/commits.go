package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/seed-62bf7108/unwind/activities/docker/demoimage"
)

// What a step by docker commit, and its undo, may take against the same by hand; and ten undos in a
// row against one.
const (
	commitTarget = 1.5
	tenTarget    = 3
	inARow       = 10
)

// commits are steps in a container that layers cannot serve, for it uses its own files, against the
// same by hand; medians in milliseconds.
type commits struct {
	Driver string `json:"driver"`
	Load   string `json:"load"`
	// HandStep is docker commit, docker exec and one docker diff; HandUndo one docker diff, stop -t 0,
	// rm and run.
	HandStep float64 `json:"hand_step_ms"`
	Step     float64 `json:"step_ms"`
	HandUndo float64 `json:"hand_undo_ms"`
	Undo     float64 `json:"undo_ms"`
	// Ten are the undos of ten consecutive steps.
	Ten float64 `json:"ten_undos_ms"`
}

// everyDriver asks for each engine that there is: the run's own, and the one at hand where that has
// another storage driver.
const everyDriver = "all"

var drivers = []string{"overlay2", "fuse-overlayfs"}

// measureCommits measures on the engines that have a driver.
func (r *run) measureCommits(ctx context.Context, driver string) (all []commits, err error) {
	engines := []*run{r}
	if r.own != nil {
		other := *r
		other.own = nil
		if other.Client, err = client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation()); err != nil {
			return nil, err
		}
		defer other.Close()
		info, err := other.Info(ctx)
		if err != nil {
			return nil, err
		}
		other.driver = info.Driver
		if _, err := demoimage.Build(ctx, other.Client, other.ref); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, other.drop(other.ref)) }()
		engines = append(engines, &other)
	}
	if driver != everyDriver {
		engines = slices.DeleteFunc(engines, func(e *run) bool { return e.driver != driver })
	}
	if len(engines) == 0 {
		return nil, fmt.Errorf("no engine here has storage driver %s", driver)
	}
	for _, e := range engines {
		found, err := e.commitsHere(ctx)
		if all = append(all, found...); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (r *run) commitsHere(ctx context.Context) (all []commits, err error) {
	t, err := startTasks(ctx, r.address(), prepared)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	for _, l := range loads {
		if l.name != "200 MB" && l.name != "20,000 files" {
			continue
		}
		c, err := r.commitsOver(ctx, t, l)
		if err != nil {
			return all, fmt.Errorf("%s, %s: %w", r.driver, l.name, err)
		}
		all = append(all, c)
	}
	return all, nil
}

func (r *run) commitsOver(ctx context.Context, t *tasks, l load) (c commits, err error) {
	source, err := r.source(l)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	var handSteps, handUndos, ourSteps, ourUndos, tens []float64
	for i := range r.rounds {
		progressf("%s, %s: docker commit, round %d of %d", r.driver, l.name, i+1, r.rounds)
		byHand := func() error {
			step, undo, err := r.stepByHand(ctx, l, source)
			handSteps, handUndos = append(handSteps, step), append(handUndos, undo)
			return err
		}
		byTask := func() error {
			one, err := r.taskOver(ctx, t, l, source, 1)
			if err == nil {
				ourSteps, ourUndos = append(ourSteps, one.forwards[0]), append(ourUndos, one.unwinding)
			}
			return err
		}
		ways := []func() error{byHand, byTask}
		if i%2 > 0 { // who comes after the other finds a disk that has much to free
			slices.Reverse(ways)
		}
		for _, measure := range ways {
			if err := measure(); err != nil {
				return c, err
			}
		}
		if i > 0 { // it takes long, and is far from its target or is not
			continue
		}
		ten, err := r.taskOver(ctx, t, l, source, inARow)
		if err != nil {
			return c, err
		}
		tens = append(tens, ten.unwinding)
	}
	return commits{
		Driver: r.driver, Load: l.name, HandStep: median(handSteps), Step: median(ourSteps),
		HandUndo: median(handUndos), Undo: median(ourUndos), Ten: median(tens),
	}, nil
}

// taskOver runs and undoes n commands in a new container that holds a load.
func (r *run) taskOver(ctx context.Context, t *tasks, l load, source string, n int) (took taskRun, err error) {
	id, err := r.filled(ctx, l, source)
	defer func() { r.remove(id) }()
	if err != nil {
		return took, err
	}
	name, err := r.ContainerInspect(ctx, id)
	if err != nil {
		return took, err
	}
	defer func() { r.remove(name.Name) }() // it has another id then
	return t.runTask(ctx, name.Name[1:], n, true)
}

// filled is a new container that holds a load, with the disk at rest.
func (r *run) filled(ctx context.Context, l load, source string) (id string, err error) {
	if id, err = r.server(ctx, r.ref, source); err != nil {
		return id, err
	}
	if err := r.fill(ctx, id, l); err != nil {
		return id, err
	}
	return id, r.rest()
}

// stepByHand does by hand what a step and its undo do.
func (r *run) stepByHand(ctx context.Context, l load, source string) (step, undo float64, err error) {
	id, err := r.filled(ctx, l, source)
	defer func() { r.remove(id) }()
	if err != nil {
		return 0, 0, err
	}
	ref := r.ref + "-checkpoint"
	step, err = timed(func() error {
		if _, err := r.ContainerCommit(ctx, id, container.CommitOptions{Reference: ref, Pause: true}); err != nil {
			return err
		}
		if err := r.loop(ctx, id, 1); err != nil {
			return err
		}
		_, err := r.ContainerDiff(ctx, id)
		return err
	})
	defer func() {
		r.remove(id)
		err = errors.Join(err, r.drop(ref))
	}()
	if err != nil {
		return 0, 0, err
	}
	seen, err := timed(func() error {
		_, err := r.ContainerDiff(ctx, id)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	id, undo, err = r.again(ctx, id, 0, func() (string, error) { return r.server(ctx, ref, source) })
	return step, seen + undo, err
}

func printCommits(all []commits) (missed []string) {
	const row = "%-15s %-13s %10s %10s %8s | %10s %10s %8s | %10s %8s\n"
	fmt.Print("\nSteps in a container that uses its own files, by docker commit, ms\n\n")
	fmt.Printf(row, "driver", "holds", "by hand", "step", "ratio", "by hand", "undo", "ratio", "ten undos", "of one")
	for _, c := range all {
		step, undo, ten := c.Step/c.HandStep, c.Undo/c.HandUndo, c.Ten/c.Undo
		fmt.Printf(row, c.Driver, c.Load, ms(c.HandStep), ms(c.Step), times(step), ms(c.HandUndo), ms(c.Undo), times(undo),
			ms(c.Ten), times(ten))
		of := c.Driver + ", " + c.Load
		missed = append(missed,
			slices.Concat(over(of+": a step", step, commitTarget), over(of+": an undo", undo, commitTarget),
				over(of+": ten undos against one", ten, tenTarget))...)
	}
	return missed
}

func over(what string, ratio, most float64) []string {
	if ratio <= most {
		return nil
	}
	return []string{fmt.Sprintf("%s takes %.1f times as long, not at most %.1f", what, ratio, most)}
}
