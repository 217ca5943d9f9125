package crash

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities/postgres/postgrestest"
	"github.com/seed-62bf7108/unwind/testrun"
)

// worlds are those of the machine. One that is missing is not tested, and fails where nothing may
// be skipped.
func worlds(t *testing.T) (all []string) {
	t.Helper()
	for world, why := range missing() {
		if why == nil {
			all = append(all, world)
			continue
		}
		t.Run("world "+world, func(t *testing.T) { testrun.Skipf(t, "nothing of world %s is tested: %v", world, why) })
	}
	return all
}

// TestMatrix is a small matrix, and a large one in a deep run: what is lost, doubled, left over or
// blocked in it is told in the log.
func TestMatrix(t *testing.T) {
	t.Parallel()
	o := Options{Kills: 15, Seed: 1, Within: time.Minute, Worlds: worlds(t), Log: t.Output()}
	if testrun.Deep() {
		o.Kills, o.Seed, o.Within = 200, testrun.Rand(t).Uint64(), 20*time.Minute
		t.Logf("seed %d", o.Seed)
	}
	f, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Zero(t, f.Lost+f.Doubled+f.Orphaned+f.Blocked, "%+v", f)
	require.GreaterOrEqual(t, f.Kills, 5, "too little was killed to tell anything")
	require.NotZero(t, f.Unwound)
}

// TestEnvironmentsAreInTheMatrix plays a few environments, one of which is found not to work after a
// rollback.
func TestEnvironmentsAreInTheMatrix(t *testing.T) {
	t.Parallel()
	testrun.NeedProgram(t, "git", "install it")
	o := Options{Environments: true, Seed: 1, Side: 2, Worlds: worlds(t), Log: t.Output()}
	back := func(at string) plan {
		p := drawSite(1, 0, 3, o.Worlds)
		p.Site.Ops = []siteOp{{}, {Back: true}, {Back: true, To: 2}, {Back: true, Veto: true}}
		p.Faults = []fault{{Kind: killAt, Host: p.Site.Host, At: at, Nth: 2}}
		if slices.Contains(o.Worlds, "redis") {
			p.Faults = append(p.Faults, fault{Kind: killAt, Host: p.Site.Host, At: "redis.restore:exchanged", Nth: 1})
		}
		return p
	}
	o.plans = []plan{back("folder.restore:put-back")}
	if testrun.Deep() {
		o.plans, o.Kills, o.Seed = nil, 100, testrun.Rand(t).Uint64()
		t.Logf("seed %d", o.Seed)
	}
	f, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Zero(t, f.Lost+f.Doubled+f.Orphaned+f.Blocked, "%+v", f)
	require.NotZero(t, f.Kills)
	if o.plans != nil {
		require.Equal(t, []int{4, 1, len(back("").Faults)}, []int{f.Committed, f.Unwound, f.Points})
	}
}

// TestMachinesAreInTheMatrix plays an environment whose machine keeps running while checkpoints are
// taken, and is killed, as is the worker that has just put its disk back.
func TestMachinesAreInTheMatrix(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"git", "qemu-img", machineProgram} {
		testrun.NeedProgram(t, program, "install the packages git, qemu-utils and qemu-system-x86")
	}
	o := Options{Environments: true, Seed: 1, Worlds: []string{"file", "folder", "unit", "disk"}, Log: t.Output()}
	var p plan
	for i := 0; p.Site == nil || !p.Site.Machine || !p.Site.Live; i++ {
		p = drawSite(o.Seed, i, 3, o.Worlds)
	}
	p.Site.Ops = []siteOp{{}, {Back: true}, {}, {}, {Back: true, To: 2}, {Back: true, Veto: true}}
	at := p.Site.Host
	p.Faults = []fault{{Kind: killAt, Host: at, At: "disk.restore:put-back", Nth: 1},
		{Kind: killAt, Host: at, At: "disk.checkpoint:kept", Nth: 3}, {Kind: killMachine, Host: at, Site: p.Site}}
	o.plans = []plan{p}
	f, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Zero(t, f.Lost+f.Doubled+f.Orphaned+f.Blocked, "%+v", f)
	require.Equal(t, []int{6, 1, 2, 3}, []int{f.Committed, f.Unwound, f.Points, f.Kills})
	require.Equal(t, 1, p.Site.kills)
}

// TestStepsOnEnvironmentsAreInTheMatrix breaks checkpoints and rollbacks that are steps of tasks, and
// their undos.
func TestStepsOnEnvironmentsAreInTheMatrix(t *testing.T) {
	t.Parallel()
	o := Options{Seed: 1, Worlds: []string{"file", "folder", "environment"}, Log: t.Output()}
	for _, at := range []fault{
		{Kind: killAt, At: "environment.checkpoint:asked"}, {Kind: killAt, At: "environment.rollback:asked"},
		{Kind: freezeAt, At: "environment.rollback:recorded"}, {Kind: killAt, At: "environment.rollback:forward"},
	} {
		at.Nth = 1
		p := plan{ID: fmt.Sprintf("crash-1-%d", len(o.plans)), Ends: fails, Attempts: 100, Faults: []fault{at},
			Parts: []part{&environments{}, &files{Fails: true}}}
		if at.Kind == freezeAt {
			p.Attempts = 1
		}
		for n, each := range p.Parts {
			each.name(n)
		}
		o.plans = append(o.plans, p)
	}
	if testrun.Deep() {
		o.plans, o.Kills, o.Seed = nil, 100, testrun.Rand(t).Uint64()
		t.Logf("seed %d", o.Seed)
	}
	f, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Zero(t, f.Lost+f.Doubled+f.Orphaned+f.Blocked, "%+v", f)
	require.NotZero(t, f.Unwound)
	require.GreaterOrEqual(t, f.Kills, 3, "too little was killed to tell anything")
}

// TestLayersAndVolumesAreInTheMatrix kills a worker that has just taken layers off, and one that
// has just put back what a command had changed in a volume: what the engine does not see is looked
// at from within, and where the volume is.
func TestLayersAndVolumesAreInTheMatrix(t *testing.T) {
	t.Parallel()
	testrun.NeedRoot(t, "layers over containers and copies of volumes")
	if err := hasEngine(); err != nil {
		testrun.Skipf(t, "no Docker engine answers: %v", err)
	}
	layers := plan{ID: "layers", Ends: fails, Attempts: 100,
		Parts: []part{&inContainer{Host: 1, Commands: 2, Slow: []int{0, 0}}, &files{Fails: true}}}
	layers.Faults = []fault{{Kind: killAt, Host: 1, At: "container.exec:layers-restored", Nth: 1}}
	volumes := plan{ID: "volumes", Ends: commits, Sequel: redone, Attempts: 100,
		Parts: []part{&inContainer{Volume: true, Commands: 2, Slow: []int{0, 0}}, &files{}}}
	volumes.Faults = []fault{{Kind: killAt, At: "container.exec:volumes-restored", Nth: 1}}
	plans := []plan{layers, volumes}
	for _, p := range plans {
		for n, each := range p.Parts {
			each.name(n)
		}
	}
	f, err := Run(t.Context(), Options{Hosts: 2, Worlds: []string{"container", "file"}, Log: t.Output(), plans: plans})
	require.NoError(t, err)
	require.Zero(t, f.Lost+f.Doubled+f.Orphaned+f.Blocked, "%+v", f)
	require.Equal(t, 2, f.Points, "the workers were not killed there")
	require.Equal(t, 1, f.Unwound)
	require.Equal(t, 1, f.Redone)
}

// TestAJournalThatNoStepHasCreatedHoldsNothing judges tasks that ended before a step of any task
// had begun on the database.
func TestAJournalThatNoStepHasCreatedHoldsNothing(t *testing.T) {
	server := postgrestest.Need(t)
	r := &run{postgres: &postgresServer{Server: server}}
	require.NoError(t, r.postgres.run(t.Context(), server.Admin("postgres"), "CREATE DATABASE "+appDatabase))
	p := &inPostgres{id: "postgres-1"}
	left, err := p.leftOf(t.Context(), r, "lost", false)
	require.NoError(t, err)
	require.Empty(t, left)
	left, err = p.leftOf(t.Context(), r, "lost", true)
	require.NoError(t, err)
	require.Equal(t, []string{"postgres-1: token lost has no record, though its step is committed"}, left)
}
