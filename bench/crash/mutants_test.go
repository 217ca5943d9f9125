package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/etcd"
	"github.com/seed-62bf7108/unwind/activities/file"
	"github.com/seed-62bf7108/unwind/activities/point"
	"github.com/seed-62bf7108/unwind/activities/postgres"
	"github.com/seed-62bf7108/unwind/activities/redis"
	"github.com/seed-62bf7108/unwind/activities/sqlite"
	"github.com/seed-62bf7108/unwind/activities/stripe"
	"github.com/seed-62bf7108/unwind/testrun"
	"github.com/seed-62bf7108/unwind/worker/host"
)

// mutants are workers with one defect each. A matrix that does not find them proves nothing.
var mutants = map[string]Opener{
	"unchanged":            mutate(func(a mutant) mutant { return a }),
	"forgets the fence":    mutate(func(a mutant) mutant { a.apply = forgetsTheFence; return a }),
	"drops a registration": mutate(func(a mutant) mutant { a.undo = dropsTheRegistration; return a }),
	"loses its record":     mutate(func(a mutant) mutant { a.apply = losesItsRecord; return a }),
	"doubles an effect":    mutate(func(a mutant) mutant { a.apply = doublesTheEffect; return a }),
	"leaves a process":     mutate(func(a mutant) mutant { a.undo = leavesAProcess; return a }),
	"leaves what it staged": mutate(func(a mutant) mutant {
		a.undo = leavesWhatItStaged
		return a
	}),
	"rolls nothing back": mutate(func(a mutant) mutant { a.undo = rollsNothingBack; return a }),
	"redoes nothing":     mutate(func(a mutant) mutant { a.apply = redoesNothing; return a }),
	"never comes back":   mutate(func(a mutant) mutant { a.undo = neverComesBack; return a }),
}

// mutant is an action with another Apply or Undo.
type mutant struct {
	activities.Action
	files string // the root of the world of files
	cache string // the address of the Redis database
	apply func(m mutant, ctx context.Context, e activities.Entry, s activities.Step,
		want activities.Digest) (activities.Result, error)
	undo func(m mutant, ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error)
}

// Spec is the action's, without the Preflight, which a mutant does not have.
func (m mutant) Spec() activities.Spec {
	s := m.Action.Spec()
	s.Preflights = false
	return s
}

func (m mutant) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	if m.apply == nil {
		return m.Action.Apply(ctx, e, s, want)
	}
	return m.apply(m, ctx, e, s, want)
}

func (m mutant) Undo(ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone, error) {
	if m.undo == nil {
		return m.Action.Undo(ctx, e, d)
	}
	return m.undo(m, ctx, e, d)
}

// mutate opens the worlds of files, of Stripe and of databases with every action changed.
func mutate(change func(mutant) mutant) Opener {
	return func(c host.Config) (host.Config, []activities.World, error) {
		var all []activities.World
		var problems []error
		add := func(w activities.World, err error) { all, problems = append(all, w), append(problems, err) }
		files := host.SettingsOf[*file.Settings](c).Roots
		add(file.New(file.Config{Roots: files}))
		if s := host.SettingsOf[*stripe.Settings](c); s != nil {
			add(stripe.New(stripe.Config{Key: func() (string, error) { return "sk_test_of_a_mutant", nil }, BaseURL: s.URL}))
		}
		if s := host.SettingsOf[*sqlite.Settings](c); s != nil {
			add(sqlite.New(sqlite.Config{State: filepath.Join(c.State, "sqlite"), Roots: s.Roots}))
		}
		if s := host.SettingsOf[*postgres.Settings](c); s != nil {
			add(postgres.New(s.Config(c.Opening())))
		}
		cache := ""
		if s := host.SettingsOf[*redis.Settings](c); s != nil {
			raw, err := os.ReadFile(strings.TrimPrefix(c.Secrets[string(s.Databases[appDatabase].URL)], "file:"))
			problems = append(problems, err)
			cache = string(raw)
			add(redis.New(
				redis.Config{
					Databases: map[string]redis.Database{appDatabase: {URL: func() (string, error) { return cache, nil }}}}))
		}
		if s := host.SettingsOf[*etcd.Settings](c); s != nil {
			add(etcd.New(
				etcd.Config{Databases: map[string]etcd.Database{appDatabase: {Endpoints: s.Databases[appDatabase].Endpoints}}}))
		}
		if err := errors.Join(problems...); err != nil {
			return c, nil, err
		}
		for _, w := range all {
			for i, a := range w.Actions {
				w.Actions[i] = change(mutant{Action: a, files: files[0], cache: cache})
			}
		}
		for _, w := range all {
			c = c.Without(w.Name)
		}
		return c, all, nil
	}
}

// entered is a point before anything of a forward.
const entered = "mutant:entered"

func forgetsTheFence(m mutant, ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	if m.Spec().Name == "file.write" {
		point.Reach(entered)
	}
	result, err := m.Action.Apply(context.WithoutCancel(ctx), e, s, want)
	if activities.TypeOf(err) == activities.Fenced {
		e.Token = activities.NewToken(e.Token, "late", 1)
		return m.Action.Apply(context.WithoutCancel(ctx), e, s, "")
	}
	return result, err
}

func dropsTheRegistration(m mutant, ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone,
	error) {
	if m.Spec().Name != "file.write" {
		return activities.Undone{Outcome: activities.Nothing, Observed: "there is no record of it"}, nil
	}
	return m.Action.Undo(ctx, e, d)
}

// losesItsRecord dies in the middle of a change, and its record is not on the disk.
func losesItsRecord(m mutant, ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	result, err := m.Action.Apply(ctx, e, s, want)
	first := func() bool { return os.Mkdir(filepath.Join(m.files, "..", "lost-"+e.Token), 0o700) == nil }
	switch name := m.Spec().Name; {
	case err != nil:
	case name == "file.write" && m.cache == "" && first():
		at, _ := filepath.Glob(filepath.Join(m.files, ".unwind", "journal", "*", e.Token))
		for _, folder := range at {
			_ = os.RemoveAll(folder)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case name == "redis.exec" && first():
		if err := m.forgetInRedis(e.Token); err != nil {
			return result, err
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return result, err
}

// forgetInRedis removes all that the journal has of a token.
func (m mutant) forgetInRedis(token string) error {
	options, err := client.ParseURL(m.cache)
	if err != nil {
		return err
	}
	c := client.NewClient(options)
	defer c.Close()
	fields, err := c.HKeys(context.Background(), "unwind:journal").Result()
	for _, field := range fields {
		if strings.HasPrefix(field, token+":") {
			err = errors.Join(err, c.HDel(context.Background(), "unwind:journal", field).Err())
		}
	}
	return err
}

func doublesTheEffect(m mutant, ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	if m.Spec().Name == "stripe.customer.create" {
		again := e
		again.Token = activities.NewToken(e.Token, "again", 1)
		if result, err := m.Action.Apply(ctx, again, s, want); err != nil {
			return result, err
		}
	}
	return m.Action.Apply(ctx, e, s, want)
}

func leavesAProcess(m mutant, ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone,
	error) {
	c := exec.Command("sleep", "600")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return activities.Undone{}, err
	}
	return m.Action.Undo(ctx, e, d)
}

func leavesWhatItStaged(m mutant, ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone,
	error) {
	undone, err := m.Action.Undo(ctx, e, d)
	left := filepath.Join(m.files, ".unwind", "stage", e.Token)
	return undone, errors.Join(err, os.RemoveAll(left), os.Mkdir(left, 0o700))
}

func rollsNothingBack(m mutant, ctx context.Context, e activities.Entry, d activities.Decision) (activities.Undone,
	error) {
	if d.Redoable && m.Spec().Name == "file.delete" {
		return activities.Undone{Outcome: activities.Restored, Observed: "all is as before"}, nil
	}
	return m.Action.Undo(ctx, e, d)
}

func redoesNothing(m mutant, ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	if e.Redoes != "" && m.Spec().Name != "file.write" {
		return activities.Result{Summary: "done again"}, nil
	}
	return m.Action.Apply(ctx, e, s, want)
}

func neverComesBack(mutant, context.Context, activities.Entry, activities.Decision) (activities.Undone, error) {
	return activities.Undone{}, activities.Errorf(activities.ActionFailed, "not today")
}

// TestMutantsAreFound plays one task on each mutant: the matrix must name the defect, and find none
// in the unchanged worker.
func TestMutantsAreFound(t *testing.T) {
	killed := []fault{{Kind: killAt, Host: 0, At: "file.write:swapped", Nth: 1}}
	for _, c := range []struct {
		mutant string
		ends   ending
		sequel sequel
		faults []fault
		tries  int
		part   part
		finds  func(Figures) int
	}{
		{mutant: "unchanged", ends: fails, faults: killed, part: &files{Deletes: true}},
		{mutant: "unchanged", ends: commits, faults: killed, part: &payments{Kind: "customer"}},
		{mutant: "unchanged", ends: commits, sequel: redone, faults: killed, part: &files{Deletes: true}},
		{"forgets the fence", fails, stays, []fault{{Kind: freezeAt, At: entered, Nth: 1}}, 1, &files{}, lost},
		{"drops a registration", fails, stays, killed, 100, &files{Deletes: true}, lost},
		{"loses its record", fails, stays, nil, 100, &files{}, lost},
		{"doubles an effect", commits, stays, killed, 100, &payments{Kind: "customer"},
			func(f Figures) int { return f.Doubled }},
		{"leaves a process", fails, stays, nil, 100, &files{}, orphaned},
		{"leaves what it staged", fails, stays, nil, 100, &files{}, orphaned},
		{"rolls nothing back", commits, rolledBack, nil, 100, &files{Deletes: true}, lost},
		{"redoes nothing", commits, redone, nil, 100, &files{Deletes: true}, lost},
		{"drops a registration", fails, stays, nil, 100, &inSQLite{}, lost},
		{"drops a registration", fails, stays, nil, 100, &inPostgres{Alters: true}, lost},
		{"redoes nothing", commits, redone, nil, 100, &inSQLite{Alters: true}, lost},
		{"redoes nothing", commits, redone, nil, 100, &inPostgres{}, lost},
		{"forgets the fence", fails, stays, []fault{{Kind: freezeAt, At: "redis.exec:looked", Nth: 1}}, 1, &inRedis{}, lost},
		{"loses its record", fails, stays, nil, 100, &inRedis{}, lost},
		{"drops a registration", fails, stays, nil, 100, &inRedis{Flushes: true}, lost},
		{"redoes nothing", commits, redone, nil, 100, &inRedis{}, lost},
		{"forgets the fence", fails, stays, []fault{{Kind: freezeAt, At: "etcd.txn:looked", Nth: 1}}, 1, &inEtcd{}, lost},
		{"drops a registration", fails, stays, nil, 100, &inEtcd{Clears: true}, lost},
		{"redoes nothing", commits, redone, nil, 100, &inEtcd{}, lost},
		{"never comes back", fails, stays, nil, 100, &files{}, func(f Figures) int { return f.Blocked }},
	} {
		world := activities.WorldOf(c.part.actions()[0])
		t.Run(strings.TrimSpace(fmt.Sprintf("%s of %s, a task that %s %s", c.mutant, world, c.ends, c.sequel)),
			func(t *testing.T) {
				t.Parallel()
				testrun.Sampled(t)
				if why := missing()[world]; why != nil {
					testrun.Skipf(t, "nothing of world %s is tested: %v", world, why)
				}
				p := plan{ID: "mutant", Ends: c.ends, Sequel: c.sequel, Faults: c.faults, Attempts: max(c.tries, 1)}
				if c.finds == nil {
					p.Attempts = 100
				}
				p.Parts = []part{c.part, &files{Fails: c.ends == fails}}
				for n, each := range p.Parts {
					each.name(n)
				}
				f, err := Run(t.Context(), Options{
					Hosts: 1, Patience: 25 * time.Second, Worlds: []string{"file", world}, Log: t.Output(), opener: c.mutant,
					plans: []plan{p},
				})
				require.NoError(t, err)
				require.Equal(t, 1, f.Tasks)
				if c.finds == nil {
					require.Zero(t, f.Lost+f.Doubled+f.Orphaned+f.Blocked, "%+v", f)
					return
				}
				require.NotZero(t, c.finds(f), "%+v", f)
			})
	}
}

func lost(f Figures) int { return f.Lost }

func orphaned(f Figures) int { return f.Orphaned }
