package recordkeeping

import (
	"context"
	"errors"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Both implements activities.Records over the journals in the databases and that of checkpoints,
// which is a folder.
type Both struct {
	InDatabases, InFolder activities.Records
	Folder                *journal.Journal
}

// of returns where the record of a token is.
func (b Both) of(token string) (activities.Records, error) {
	t, err := b.Folder.Token(token)
	if err != nil {
		return b.InDatabases, nil //nolint:nilerr // no token of a checkpoint is like that
	}
	there, err := t.Has("")
	if there {
		return b.InFolder, err
	}
	return b.InDatabases, err
}

// Records lists those of both.
func (b Both) Records(ctx context.Context) (all []activities.Record, problems []error, err error) {
	all, problems, err = b.InDatabases.Records(ctx)
	if err != nil {
		return nil, nil, err
	}
	checkpoints, bad, err := b.InFolder.Records(ctx)
	return append(all, checkpoints...), append(problems, bad...), err
}

// Commit implements activities.Records.
func (b Both) Commit(ctx context.Context, token string, until time.Time) error {
	r, err := b.of(token)
	if err != nil {
		return err
	}
	return r.Commit(ctx, token, until)
}

// Hold implements activities.Records.
func (b Both) Hold(ctx context.Context, token string, holder activities.Owner) (bool, error) {
	r, err := b.of(token)
	if err != nil {
		return false, err
	}
	return r.Hold(ctx, token, holder)
}

// EndHold implements activities.Records.
func (b Both) EndHold(ctx context.Context, token string, holder activities.Owner) error {
	r, err := b.of(token)
	if err != nil {
		return err
	}
	return r.EndHold(ctx, token, holder)
}

// Claim implements activities.Records.
func (b Both) Claim(ctx context.Context, e activities.Entry) error {
	return errors.Join(b.InDatabases.Claim(ctx, e), b.InFolder.Claim(ctx, e))
}

// Abandon implements activities.Records.
func (b Both) Abandon(ctx context.Context, token string) error {
	r, err := b.of(token)
	if err != nil {
		return err
	}
	return r.Abandon(ctx, token)
}

// Forget implements activities.Records.
func (b Both) Forget(ctx context.Context, token string) error {
	r, err := b.of(token)
	if err != nil {
		return err
	}
	return r.Forget(ctx, token)
}
