package sqlite

import (
	"context"
	"os"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/isolated"
)

// Local does the calls of the actions in this process, without the cost of
// another.
type Local struct{ Config Config }

// Plan plans a step.
func (l Local) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	return doHere[activities.Change](ctx, job{Op: isolated.Plan, Config: l.Config, Entry: e, Step: s})
}

// Apply does a step.
func (l Local) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	op := isolated.Apply
	if (&call{job: job{Entry: e}}).onlyReads() {
		op = isolated.Query
	}
	return doHere[activities.Result](ctx,
		job{Op: op, Config: l.Config, Entry: e, Step: s, Want: want, Approval: activities.ApprovalFrom(ctx)})
}

// Undo undoes a step.
func (l Local) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	return doHere[activities.Undone](ctx, job{Op: isolated.Undo, Config: l.Config, Entry: e, Decision: d})
}

// Release releases a step.
func (l Local) Release(ctx context.Context, e activities.Entry) error {
	_, err := doHere[struct{}](ctx, job{Op: isolated.Release, Config: l.Config, Entry: e})
	return err
}

func doHere[T any](ctx context.Context, j job) (result T, err error) {
	got, err := do(activities.WithOwner(ctx, j.Owner), j)
	if err == nil && got != nil {
		result = got.(T) //nolint:forcetypeassert // each call has its result
	}
	return result, err
}

// OnSync calls look before each file of undo data, and its folder, is synced.
func OnSync(look func(path string)) (restore func()) {
	fsync = func(f *os.File) error {
		look(f.Name())
		return f.Sync()
	}
	return func() { fsync = (*os.File).Sync }
}
