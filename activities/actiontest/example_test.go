package actiontest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/actiontest"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// A complete custom action and its test. The world is a store of keys, each a file in a folder; the
// action "keys.add" adds a key that is not there yet. A step is done and undone by two atomic
// operations of the filesystem:
//
//	forward   link(2) of a file in the token's folder, the ticket, into the store. It fails if the key exists.
//	undo      takes the ticket away, so that a late forward has nothing to link; then moves the key out of the store
//	          (never over anything), and examines what came out.

// TestKeysAdd is the whole test: the case below says how the action is used, and Run does the rest.
func TestKeysAdd(t *testing.T) { actiontest.Run(t, keysCase) }

// keysCase is also passed to actiontest.Main, in TestMain.
var keysCase = actiontest.Case{
	Name:   "keys.add",
	Action: "keys.add",
	Start: func(t testing.TB, dir string) {
		if err := os.Mkdir(filepath.Join(dir, "keys"), 0o700); err != nil {
			t.Fatal(err)
		}
	},
	Open: func(dir string) (activities.World, error) {
		return openKeys(filepath.Join(dir, "keys"), filepath.Join(dir, "state"))
	},
	With:   func(string) any { return addParams{Key: "color", Value: "red, and a secret: battery staple"} },
	Next:   func(string) any { return addParams{Key: "color", Value: "blue"} },
	Secret: "battery staple",
	Manifest: func(t testing.TB, dir string) (manifest string) {
		keys, err := os.ReadDir(filepath.Join(dir, "keys"))
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			value, err := os.ReadFile(filepath.Join(dir, "keys", k.Name()))
			manifest += fmt.Sprintf("%s %q %v\n", k.Name(), value, err)
		}
		return manifest
	},
	Drift: func(t testing.TB, dir string) {
		f, err := os.OpenFile(filepath.Join(dir, "keys", "color"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString("+"); err != nil {
			t.Fatal(err)
		}
	},
}

// keysAdd is the action.
type keysAdd struct {
	dir     string // of the store, on one filesystem with the journal
	journal *journal.Journal
}

// openKeys opens the world as a worker does.
func openKeys(dir, state string) (activities.World, error) {
	j, err := journal.Open(filepath.Join(state, "journal"))
	return activities.World{
		Name: "keys", Actions: []activities.Action{keysAdd{dir, j}},
		Journal: func(context.Context) (string, error) { return j.Mark() },
		Records: journal.Records{Journal: j},
	}, err
}

type addParams struct {
	Key   string `json:"key"   jsonschema:"the name of the key"`
	Value string `json:"value" jsonschema:"what it holds"`
}

// undoParams are the addParams that the entry holds.
type undoParams struct {
	Key string `json:"key"`
}

// addRecord is the undo record. It needs no pre-image: there was nothing before.
type addRecord struct {
	journal.Owned

	// Value is the digest of what the step writes.
	Value activities.Digest `json:"value"`
}

func (keysAdd) Spec() activities.Spec {
	return activities.Spec{
		Name: "keys.add", Summary: "Adds a key.", Params: activities.ParamsSchema[addParams](), UndoParams: []string{"key"},
		Keys: []activities.Key{{Prefix: "key:", Param: "key"}}, HostBound: true, Risk: activities.Low,
		Strategy: activities.Transaction, Undo: "The key is taken out of the store, exactly.",
	}
}

// token is the step's token in the journal, with the names of the key's file and of those in the
// token's folder.
type token struct {
	*journal.Token

	key, target, ticket, mine, out string
}

func (k keysAdd) token(e activities.Entry) (*token, error) {
	if err := k.journal.Check(e.Place.Journal); err != nil {
		return nil, err
	}
	p, err := activities.DecodeParams[undoParams](e.Params)
	if err != nil {
		return nil, err
	}
	if !filepath.IsLocal(p.Key) || filepath.Base(p.Key) != p.Key {
		return nil, activities.Errorf(activities.Refused, "%q is no name of a key", p.Key)
	}
	t, err := k.journal.Token(e.Token)
	if err != nil {
		return nil, err
	}
	in := func(name string) string { return filepath.Join(t.Dir(), name) }
	return &token{Token: t, key: p.Key, target: filepath.Join(k.dir, p.Key), ticket: in("ticket"), mine: in("mine"),
		out: in("out")}, nil
}

// Plan touches nothing, and leaves nothing.
func (k keysAdd) Plan(_ context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	t, err := k.token(e)
	if err != nil {
		return activities.Change{}, err
	}
	p, err := activities.DecodeParams[addParams](s.With)
	if err != nil {
		return activities.Change{}, err
	}
	if _, err := os.Lstat(t.target); err == nil {
		return activities.Change{}, activities.Errorf(activities.Refused, "key %s is there already", t.key)
	}
	return activities.Change{
		Summary: "add key " + t.key, Diff: "+" + p.Value, Strategy: activities.Transaction,
		Undo: "the key is taken out again",
		// the target is always: no such key
		Risk: activities.Low, Digest: activities.DigestOf([]byte(p.Key), []byte(p.Value)),
	}, nil
}

func (k keysAdd) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	var none activities.Result
	t, err := k.token(e)
	if err != nil {
		return none, err
	}
	unlock, err := t.Lock(ctx) // one attempt of the token at a time; an undo waits for nobody
	if err != nil {
		return none, err
	}
	defer unlock()
	if err := t.CheckOpen(); err != nil {
		return none, err
	}
	p, err := activities.DecodeParams[addParams](s.With)
	if err != nil {
		return none, err
	}
	rec := addRecord{journal.Own(ctx, e), activities.DigestOf([]byte(p.Value))}
	found, err := t.Read(journal.Record, &rec)
	if err != nil {
		return none, err
	}
	if !found { // with a record, it never judges again
		change, err := k.Plan(ctx, e, s)
		if err != nil {
			return none, err
		}
		if err := activities.Judge(ctx, change); err != nil {
			return none, err
		}
		if want != "" && want != change.Digest {
			return none, activities.Errorf(activities.StaleApproval, "this is not what was approved")
		}
		if _, err := t.Create(journal.Record, &rec); err != nil {
			return none, err
		}
	}
	point.Reach("keys.add:recorded")
	if done, err := t.Read(journal.Applied, &struct{}{}); err != nil {
		return none, err
	} else if !done {
		if err := t.linkTicket(p.Value); err != nil {
			return none, err
		}
		if _, err := t.Create(journal.Applied, &struct{}{}); err != nil {
			return none, err
		}
	}
	point.Reach("keys.add:applied")
	return activities.Result{Summary: "added key " + t.key, After: rec.Value},
		activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{t})
}

// linkTicket links the ticket into the store. The order is the fence: the ticket is there before
// the token is seen to be open, and an undo takes the ticket after it has closed the token, so one
// of the two sees the other. (A store that must survive a power failure also syncs the ticket
// before the link, and the store's folder after it.)
func (t *token) linkTicket(value string) error {
	// an earlier attempt's ticket may already be in the store
	if _, err := os.Stat(t.ticket); errors.Is(err, fs.ErrNotExist) {
		staged := t.ticket + ".new"
		if err := errors.Join(os.WriteFile(staged, []byte(value), 0o600), os.Rename(staged, t.ticket)); err != nil {
			return err
		}
	}
	point.Reach("keys.add:staged")
	if err := t.CheckOpen(); err != nil {
		return errors.Join(err, os.Remove(t.ticket))
	}
	point.Reach("keys.add:still-open")
	err := os.Link(t.ticket, t.target)
	point.Reach("keys.add:linked")
	if errors.Is(err, fs.ErrNotExist) {
		return activities.Errorf(activities.Fenced, "the step was undone")
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if there, err := t.observeFile(t.target); err != nil || there.state == own {
		return err
	}
	return activities.Errorf(activities.ActionDenied, "someone else has added key %s", t.key)
}

func (k keysAdd) Undo(_ context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	var undone activities.Undone
	t, err := k.token(e)
	if err != nil {
		return undone, err
	}
	if undone, isOver, err := t.BeginUndo(); isOver || err != nil {
		return undone, err
	}
	if found, err := t.Read(journal.Record, &addRecord{}); err != nil {
		return undone, err
	} else if !found { // it has done nothing, unless the history says otherwise
		if err := t.CheckNotLost(d.Done); err != nil {
			return undone, err
		}
	}
	point.Reach("keys.add:closed")
	if err := os.Rename(t.ticket, t.mine); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return undone, err
	}
	point.Reach("keys.add:ticket-taken")
	if undone, err = t.takeOut(d); err != nil || undone.Outcome == activities.Drifted {
		return undone, err // drift waits for a person, so this outcome is not kept
	}
	_, err = t.Create(journal.Outcome, &undone)
	point.Reach("keys.add:undone")
	return undone, err
}

// takeOut moves the key out of the store if it is the step's own, or the drift that was shown and
// is forced.
func (t *token) takeOut(d activities.Decision) (activities.Undone, error) {
	restored := activities.Undone{Outcome: activities.Restored, Observed: "there is no such key"}
	if out, err := t.observeFile(t.out); err != nil || out.state != absent {
		return restored, err // an earlier undo got this far
	}
	now, err := t.observeFile(t.target)
	switch {
	case err != nil:
		return restored, err
	case now.state == absent && !now.added, now.state == foreign && !now.added:
		return activities.Undone{Outcome: activities.Nothing, Observed: "the step has added no key"}, nil
	case now.state == absent:
		return restored, nil
	case now.state != own && now.drift().Digest != d.Force:
		return activities.Undone{Outcome: activities.Drifted, Observed: now.drift().Diff, Drift: now.drift()}, nil
	}
	err = unix.Renameat2(unix.AT_FDCWD, t.target, unix.AT_FDCWD, t.out, unix.RENAME_NOREPLACE)
	point.Reach("keys.add:taken-out")
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return t.takeOut(d) // someone was faster: observe again
	}
	if err != nil {
		return restored, err
	}
	out, err := t.observeFile(t.out)
	if err == nil && out.content != now.content { // it changed before the move, so it is put back
		err = errors.Join(unix.Renameat2(unix.AT_FDCWD, t.out, unix.AT_FDCWD, t.target, unix.RENAME_NOREPLACE),
			fmt.Errorf("key %s has changed just now", t.key))
	}
	return restored, err
}

// seen is what was observed of a file.
type seen struct {
	state   string
	content activities.Digest
	size    int
	added   bool // whether the step has ever added its key
}

const (
	absent  = "absent"
	own     = "own"
	edited  = "edited" // the step's file, with another content
	foreign = "foreign"
)

func (s seen) drift() *activities.Drift {
	return &activities.Drift{Digest: s.content,
		Diff: fmt.Sprintf("the key is not as the step left it: %s, %d bytes", s.state, s.size)}
}

// observeFile compares a file with the step's own, which the token's folder holds as ticket or
// mine.
func (t *token) observeFile(path string) (s seen, err error) {
	var rec addRecord
	if _, err := t.Read(journal.Record, &rec); err != nil {
		return s, err
	}
	if s.added, err = t.Read(journal.Applied, &struct{}{}); err != nil {
		return s, err
	}
	kept := t.mine
	mine, err := os.Stat(kept)
	if errors.Is(err, fs.ErrNotExist) {
		kept = t.ticket
		mine, err = os.Stat(kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	f, err := os.Open(path) // the same file throughout, whatever has its name later
	if errors.Is(err, fs.ErrNotExist) {
		s.state = absent
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer f.Close()
	raw, errRead := io.ReadAll(f)
	info, err := f.Stat()
	if err = errors.Join(errRead, err); err != nil {
		return s, err
	}
	s.content, s.size = activities.DigestOf(raw), len(raw)
	switch {
	case mine == nil || !os.SameFile(mine, info):
		s.state = foreign
		if own, err := os.ReadFile(kept); s.added && (err != nil || activities.DigestOf(own) != rec.Value) {
			return s, activities.Errorf(activities.DamagedRecord, "%s is gone, or not as the step has made it", kept)
		}
	case s.content != rec.Value:
		s.state, s.added = edited, true
	default:
		s.state, s.added = own, true
	}
	return s, nil
}

func (k keysAdd) Observe(_ context.Context, e activities.Entry) (activities.Observation, error) {
	t, err := k.token(e)
	if err != nil {
		return activities.Observation{}, err
	}
	switch now, err := t.observeFile(t.target); {
	case err != nil:
		return activities.Observation{}, err
	case now.state == absent:
		return activities.Observation{State: activities.AsBefore}, nil
	case now.state == own:
		return activities.Observation{State: activities.AsLeft}, nil
	default:
		return activities.Observation{State: activities.Elsewise, Drift: now.drift()}, nil
	}
}

// Release leaves the tombstone and the outcome.
func (k keysAdd) Release(_ context.Context, e activities.Entry) error {
	t, err := k.token(e)
	if err != nil {
		return err
	}
	if _, err := t.DecideReleasing(); err != nil {
		return err
	}
	for _, name := range []string{t.ticket, t.mine, t.out} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.Join(t.Drop(journal.Record), t.MarkReleased())
}

// scene is what the step's checks see.
type scene struct{ *token }

func (s scene) Target() string { return s.key }
func (s scene) ReadFile(_ context.Context, path string) ([]byte, error) {
	if path != s.key {
		return nil, fs.ErrNotExist
	}
	return os.ReadFile(s.target)
}
func (scene) Run(context.Context, []string) ([]byte, error) {
	return nil, activities.Errorf(activities.Refused, "a store of keys runs no commands")
}
