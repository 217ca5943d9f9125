package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// bothRecords implements activities.Records over the journals in the databases and that of
// checkpoints, which is a folder.
type bothRecords struct {
	inDatabases, inFolder activities.Records
	folder                *journal.Journal
}

// of returns where the record of a token is.
func (b bothRecords) of(token string) (activities.Records, error) {
	t, err := b.folder.Token(token)
	if err != nil {
		return b.inDatabases, nil //nolint:nilerr // no token of a checkpoint is like that
	}
	there, err := t.Has("")
	if there {
		return b.inFolder, err
	}
	return b.inDatabases, err
}

// Records lists those of both.
func (b bothRecords) Records(ctx context.Context) (all []activities.Record, problems []error, err error) {
	all, problems, err = b.inDatabases.Records(ctx)
	if err != nil {
		return nil, nil, err
	}
	checkpoints, bad, err := b.inFolder.Records(ctx)
	return append(all, checkpoints...), append(problems, bad...), err
}

// Commit implements activities.Records.
func (b bothRecords) Commit(ctx context.Context, token string, until time.Time) error {
	r, err := b.of(token)
	if err != nil {
		return err
	}
	return r.Commit(ctx, token, until)
}

// Hold implements activities.Records.
func (b bothRecords) Hold(ctx context.Context, token string, holder activities.Owner) (bool, error) {
	r, err := b.of(token)
	if err != nil {
		return false, err
	}
	return r.Hold(ctx, token, holder)
}

// EndHold implements activities.Records.
func (b bothRecords) EndHold(ctx context.Context, token string, holder activities.Owner) error {
	r, err := b.of(token)
	if err != nil {
		return err
	}
	return r.EndHold(ctx, token, holder)
}

// Claim implements activities.Records.
func (b bothRecords) Claim(ctx context.Context, e activities.Entry) error {
	return errors.Join(b.inDatabases.Claim(ctx, e), b.inFolder.Claim(ctx, e))
}

// Abandon implements activities.Records.
func (b bothRecords) Abandon(ctx context.Context, token string) error {
	r, err := b.of(token)
	if err != nil {
		return err
	}
	return r.Abandon(ctx, token)
}

// Forget implements activities.Records.
func (b bothRecords) Forget(ctx context.Context, token string) error {
	r, err := b.of(token)
	if err != nil {
		return err
	}
	return r.Forget(ctx, token)
}
