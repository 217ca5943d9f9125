// Package lease lets one step at a time be at work in a container, whichever tasks the steps belong
// to: what two do at once cannot be told apart, and the undo of one would take the other's work
// with it.
//
// A step takes the lease before it looks at the container, and holds it until it has come to its
// end or is undone, be its worker alive or dead; an undo waits until no other step holds it. A step
// that only reads takes none.
//
// The leases of a container are numbered documents, each written once: whoever wrote the last one
// holds the lease. Each record says whose lease was the one before, so that the steps in a
// container are a chain: see [Leases.CheckLater].
package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/journal"
)

// Leases are those of all containers of an engine.
type Leases struct {
	// Patience is how long a call waits for another step. After that it is for the retries of the
	// step, or of the undo, to wait on. Open sets it to 30 seconds.
	Patience time.Duration
	// LaterPatience is how long an undo waits for the undos of later steps of other tasks. Open sets
	// it to 10 minutes.
	LaterPatience time.Duration
	// IsGone says that a container exists no more, nor one that has taken its place: nobody is at work
	// there. Defaults to never.
	IsGone func(ctx context.Context, id string) (bool, error)

	journal *journal.Journal
	steps   *journal.Journal // of the tokens that take leases
}

const (
	patience      = 30 * time.Second
	laterPatience = 10 * time.Minute
)

// holder is the step that holds a lease.
type holder struct {
	Token string           `json:"token"`
	Step  string           `json:"step"`
	Owner activities.Owner `json:"owner"`
	// Container is the id of the container that it works in: another one can have the name later.
	Container string `json:"container"`
	// After is the token of the step that had the lease before.
	After string `json:"after,omitempty"`
}

// Open opens the leases in folder dir, for steps with tokens in steps.
func Open(dir string, steps *journal.Journal) (*Leases, error) {
	j, err := journal.Open(dir)
	never := func(context.Context, string) (bool, error) { return false, nil }
	return &Leases{patience, laterPatience, never, j, steps}, err
}

// tokenFor opens the leases of a container by its name, which it keeps when it is recreated.
func (l *Leases) tokenFor(name string) (*journal.Token, error) {
	sum := sha256.Sum256([]byte(name))
	return l.journal.Token(hex.EncodeToString(sum[:16]))
}

const document = "lease-"

// readLast reads the lease that counts, and its number; 0 for none.
func readLast(t *journal.Token) (n int, has holder, err error) {
	names, err := os.ReadDir(t.Dir())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, has, nil
	}
	for _, name := range names {
		number, _ := strings.CutPrefix(name.Name(), document)
		if i, err := strconv.Atoi(number); err == nil {
			n = max(n, i)
		}
	}
	if err != nil || n == 0 {
		return n, has, err
	}
	_, err = t.Read(document+strconv.Itoa(n), &has)
	if activities.TypeOf(err) == activities.DamagedRecord { // it is nobody's
		return n, holder{}, nil
	}
	return n, has, err
}

// Take takes the lease of a container, by its name and its id, for a step, and returns the token of
// the step that had it before: the record keeps that as After. Waited says that others were at work
// there since it was asked for.
func (l *Leases) Take(ctx context.Context, name, id string, e activities.Entry) (before string, waited bool,
	err error) {
	t, err := l.tokenFor(name)
	if err != nil {
		return "", false, err
	}
	for {
		n, now, err := readLast(t)
		if err != nil || now.Token == e.Token {
			return now.After, waited, err
		}
		over, err := l.over(ctx, now)
		if err != nil {
			return "", waited, err
		}
		if !over {
			waited = true
			if err := l.Wait(ctx, name, e.Token); err != nil {
				return "", waited, err
			}
			continue
		}
		mine := holder{e.Token, e.Step, activities.OwnerOf(ctx), id, now.Token}
		if _, found, err := l.read(now.Token); err != nil || !found { // it has changed nothing, and is no link of the chain
			mine.After = now.After
		}
		created, err := t.Create(document+strconv.Itoa(n+1), &mine)
		if err != nil {
			return "", waited, err
		}
		after, _, err := readLast(t)
		switch {
		case err != nil:
			return "", waited, err
		case !created:
			continue
		case after == n+1:
			return mine.After, waited, forget(t, n)
		}
		if err := forget(t, n+1); err != nil { // it was slow: there is a later one already
			return "", waited, err
		}
	}
}

// forget removes a lease that counts no more. One that comes back with a loss of power does not
// count either.
func forget(t *journal.Token, n int) error {
	if err := os.Remove(filepath.Join(t.Dir(), document+strconv.Itoa(n))); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Wait waits until no other step has the lease of the container.
func (l *Leases) Wait(ctx context.Context, name, token string) error {
	t, err := l.tokenFor(name)
	if err != nil {
		return err
	}
	began := time.Now()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		_, now, err := readLast(t)
		if err != nil || now.Token == token {
			return err
		}
		if over, err := l.over(ctx, now); over || err != nil {
			return err
		}
		if time.Since(began) > l.Patience {
			return activities.Errorf(activities.ActionFailed,
				"container %s: step %s of %s is at work there, and is waited for; where that task has ended, `starter recover` "+
					"undoes it; where the server does not know it any more, `starter orphans undo %s` on this host",
				name, now.Step, now.task(), now.Token)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (h holder) task() string {
	if h.Owner.Workflow == "" {
		return "token " + h.Token
	}
	return "task " + h.Owner.Workflow
}

// over says that a step has come to its end: it has its result, or is undone, or nothing is known
// of it or its container any more.
func (l *Leases) over(ctx context.Context, now holder) (bool, error) {
	if now.Token == "" {
		return true, nil
	}
	t, err := l.steps.Token(now.Token)
	if err != nil {
		return false, err
	}
	for _, doc := range []string{journal.Applied, journal.Outcome} {
		switch _, err := os.Lstat(t.Dir() + "/" + doc); {
		case err == nil:
			return true, nil
		case !errors.Is(err, fs.ErrNotExist):
			return false, fmt.Errorf("the lease of a container: %w", err)
		}
	}
	_, err = os.Lstat(t.Dir())
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil || now.Container == "" {
		return false, err
	}
	return l.IsGone(ctx, now.Container)
}
