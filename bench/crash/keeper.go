package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// driveSite plays an environment with its faults. An error is one of the matrix itself.
func (r *run) driveSite(ctx context.Context, p plan) (err error) {
	began, s := time.Now(), p.Site
	defer func() { err = errors.Join(err, s.clear(context.WithoutCancel(ctx), r)) }()
	d, err := s.setUp(ctx, r, p.ID)
	if err != nil {
		return fmt.Errorf("setting up %s: %w", p.ID, err)
	}
	if err := r.armFaults(p); err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	failed := make(chan error, len(p.Faults))
	var injected sync.WaitGroup
	r.inject(inner, p, &injected, failed)
	k := &siteKeeper{run: r, plan: p, states: map[string]map[string]string{}}
	v, err := k.play(ctx, d)
	cancel()
	injected.Wait()
	close(failed)
	for f := range failed {
		err = errors.Join(err, f)
	}
	for _, m := range r.fleet.members {
		err = errors.Join(err, disarm(m.armed(), p.ID))
	}
	r.note(p.ID, v)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.figures.Tasks++
	r.figures.Committed += k.done
	r.figures.Unwound += k.failed
	r.figures.Frozen += k.frozen
	fmt.Fprintf(r.Log, "%-16s %5.1fs done %d, undone %d, kills so far %d\n", p.ID, time.Since(began).Seconds(), k.done,
		k.failed, r.killed())
	if !v.clean() {
		fmt.Fprintf(r.Log, "   ops %v\n   faults %v\n", s.Ops, p.Faults)
	}
	return err
}

// siteKeeper follows one environment.
type siteKeeper struct {
	*run
	plan   plan
	order  []string                     // the checkpoints that there are, the oldest first
	states map[string]map[string]string // what each has of the parts
	now    map[string]string            // what the parts are
	first  string                       // what uploads was at first
	kills  int                          // of the machine, until that was so
	calls  int

	done, failed, frozen int
	rollbacks            int // of those done
}

// play does what the site has, and ends with all removed.
func (k *siteKeeper) play(ctx context.Context, d environment.Document) (v verdict, err error) {
	s := k.plan.Site
	if k.now, _, err = k.look(ctx); err != nil {
		return v, err
	}
	k.first = k.now["uploads"]
	if v = k.make(ctx, d); !v.clean() {
		return v, nil
	}
	for n, op := range append([]siteOp{{}}, s.Ops...) {
		if n > 0 && !op.Back {
			if err := s.change(ctx, k.run, n); err != nil {
				return v, err
			}
			if k.now, _, err = k.look(ctx); err != nil {
				return v, err
			}
		}
		if n == 0 || !op.Back || len(k.order) == 0 {
			v, err = k.checkpoint(ctx, fmt.Sprintf("cp-%d", n))
		} else {
			v, err = k.rollBack(ctx, fmt.Sprintf("cp-%d", n), op)
		}
		if err != nil || !v.clean() {
			return v, err
		}
	}
	return k.remove(ctx, d)
}

// look looks at the parts, and says whether the machine was killed since the last look.
func (k *siteKeeper) look(ctx context.Context) (is map[string]string, killed bool, err error) {
	s := k.plan.Site
	s.mu.Lock()
	defer s.mu.Unlock()
	is, err = s.look(ctx, k.run)
	killed, k.kills = s.kills > k.kills, s.kills
	return is, killed, err
}

// make starts the environment's workflow, however often the server goes away meanwhile.
func (k *siteKeeper) make(ctx context.Context, d environment.Document) (v verdict) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := k.client.ExecuteWorkflow(limited, client.StartWorkflowOptions{
			ID: environment.WorkflowID(d.Name), TaskQueue: queue, WorkflowTaskTimeout: 3 * time.Second,
			WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		}, environment.WorkflowType, environment.Start{Document: d})
		cancel()
		if err == nil {
			break
		}
		pause(ctx, again)
	}
	return k.judgeAnswer(k.ask(ctx, environment.UpdateApply, nil, d))
}

// errBlocked says that an environment does not answer.
var errBlocked = errors.New("blocked")

// ask asks for something and waits for the answer, however often the server goes away meanwhile.
// Its error is the environment's, or errBlocked.
func (k *siteKeeper) ask(ctx context.Context, update string, result any, argument ...any) error {
	k.calls++
	began, inPeace := time.Now(), false
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, 20*time.Second)
		handle, err := k.client.UpdateWorkflow(limited, client.UpdateWorkflowOptions{
			WorkflowID: environment.WorkflowID(k.plan.ID), UpdateName: update, UpdateID: fmt.Sprint("crash-", k.calls),
			Args: argument, WaitForStage: client.WorkflowUpdateStageAccepted,
		})
		if err == nil {
			err = handle.Get(limited, result)
		}
		cancel()
		if answer, ok := errors.AsType[*temporal.ApplicationError](err); ok || err == nil {
			if ok {
				return answer
			}
			return nil
		}
		if time.Since(began) > k.Patience {
			if inPeace {
				return fmt.Errorf("%w: %s is not answered within %s, nor in %[3]s of peace: %w", errBlocked, update, k.Patience,
					err)
			}
			defer k.truce.hold()()
			began, inPeace = time.Now(), true
		}
		pause(ctx, again)
	}
	return ctx.Err()
}

// judgeAnswer takes an error of what cannot fail.
func (k *siteKeeper) judgeAnswer(err error) (v verdict) {
	if err != nil {
		v.Blocked = []string{err.Error()}
	}
	return v
}

// settle lets what is frozen act, and counts an answer. An answer that is neither yes nor a failure
// which was undone is a defect.
func (k *siteKeeper) settle(ctx context.Context, err error) (done bool, v verdict) {
	for _, m := range k.fleet.members {
		n, stuck := m.thaw(k.plan.ID)
		if k.frozen += n; stuck > 0 {
			v.Blocked = append(v.Blocked, fmt.Sprintf("%s: %d workers that were woken did not finish", m.Host, stuck))
		}
	}
	k.fleet.calm(ctx)
	var answer *temporal.ApplicationError
	switch {
	case err == nil:
		k.done++
		return true, v
	case errors.As(err, &answer) && answer.Type() == environment.Failed:
		k.failed++
		fmt.Fprintf(k.Log, "%-16s %s\n", k.plan.ID, answer.Message())
	default:
		v.Blocked = append(v.Blocked, err.Error())
	}
	return false, v
}

func (k *siteKeeper) checkpoint(ctx context.Context, id string) (verdict, error) {
	var c environment.Checkpoint
	done, v := k.settle(ctx, k.ask(ctx, environment.UpdateCheckpoint, &c,
		environment.CheckpointRequest{ID: id, Trigger: environment.Manual}))
	if done {
		k.order, k.states[id] = append(k.order, id), k.now
	}
	w, err := k.compare(ctx, "checkpoint "+id)
	v.merge(w)
	return v, err
}

func (k *siteKeeper) rollBack(ctx context.Context, safety string, op siteOp) (verdict, error) {
	to, fails := k.order[op.To%len(k.order)], false
	if op.Veto && k.states[k.order[0]]["uploads"] == k.first && k.now["uploads"] != k.first {
		to, fails = k.order[0], true
		veto := vetoOf(k.fleet.members[k.plan.Site.Host], k.plan.ID)
		if err := os.WriteFile(veto, nil, 0o600); err != nil {
			return verdict{}, err
		}
		defer os.Remove(veto)
	}
	var back environment.RolledBack
	done, v := k.settle(ctx, k.ask(ctx, environment.UpdateRollback, &back,
		environment.RollbackRequest{To: to, Safety: safety}))
	if done && fails {
		v.Lost = append(v.Lost, "a rollback to what is not healthy has succeeded")
	}
	if done {
		k.rollbacks++
		k.order, k.states[safety] = append(k.order, safety), k.now
		k.now = maps.Clone(k.states[to])
		k.now["unit"] = "true" // whether it ran before, or did not
	}
	w, err := k.compare(ctx, "rollback to "+to)
	v.merge(w)
	return v, err
}

// compare looks whether the parts are as they are to be. A machine that was killed meanwhile may have
// been started again, or not.
func (k *siteKeeper) compare(ctx context.Context, what string) (v verdict, err error) {
	is, killed, err := k.look(ctx)
	if err != nil {
		return v, err
	}
	for _, name := range slices.Sorted(maps.Keys(k.now)) {
		if is[name] != k.now[name] && (name != "unit" || !killed) {
			v.Lost = append(v.Lost, fmt.Sprintf("after %s %s is\n      %s\n   and not\n      %s", what, name, is[name],
				k.now[name]))
		}
	}
	k.now = is
	beside := []string{k.plan.Site.dir}
	if k.plan.Site.volume != "" {
		beside = append(beside, filepath.Dir(k.plan.Site.volume))
	}
	for _, dir := range beside {
		left, err := filepath.Glob(filepath.Join(dir, ".unwind-*"))
		if err != nil {
			return v, err
		}
		v.Orphaned = append(v.Orphaned, left...)
	}
	return v, nil
}

// remove compares the list with what was answered, and removes the environment.
func (k *siteKeeper) remove(ctx context.Context, d environment.Document) (v verdict, err error) {
	var view environment.View
	err = insist(ctx, func() error {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		answer, err := k.client.QueryWorkflow(limited, environment.WorkflowID(d.Name), "", environment.QueryView)
		if err == nil {
			err = answer.Get(&view)
		}
		return err
	})
	if err != nil {
		return v, err
	}
	listed := map[string]bool{}
	for _, c := range view.Checkpoints {
		listed[c.ID] = true
	}
	for _, id := range k.order {
		if !listed[id] {
			v.Lost = append(v.Lost, "checkpoint "+id+" is not listed")
		}
		delete(listed, id)
	}
	for id := range listed {
		v.Orphaned = append(v.Orphaned, "checkpoint "+id+" is listed, though it was not taken")
	}
	v.merge(k.judgeAnswer(k.ask(ctx, environment.UpdateRemove, nil)))
	if k.plan.Site.disk != "" && v.clean() {
		w, err := k.plan.Site.judgeDisk(ctx, k.run, k.rollbacks)
		v.merge(w)
		return v, err
	}
	return v, nil
}
