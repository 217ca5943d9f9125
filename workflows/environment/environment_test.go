package environment

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-62bf7108/unwind/activities"
)

const shop = `
name: shop
unit: app
parts:
  code: {git: /srv/shop, ignored: true}
  orders: {postgres: shop}
  uploads: {folder: /srv/uploads}
`

func parse(t *testing.T, src string) Document {
	d, err := Parse("environment.yaml", []byte(src))
	require.NoError(t, err)
	return d
}

// written is a step of a task, in a line.
func written(t *testing.T, raw json.RawMessage) (lines []string) {
	var file taskFile
	require.NoError(t, json.Unmarshal(raw, &file))
	for _, s := range file.Steps {
		require.Equal(t, "web-1", s.On)
		with, err := json.Marshal(s.With)
		require.NoError(t, err)
		lines = append(lines, fmt.Sprintf("%s %v %s %s%s", s.ID, s.Needs, s.Uses, with, s.OnFailure))
	}
	return lines
}

func TestACheckpointKeepsAllPartsBesideEachOther(t *testing.T) {
	d := parse(t, shop)
	require.Equal(t, []string{
		`was-healthy [] unit.health {"must":false,"unit":"app"}`,
		`ahead-code [] folder.checkpoint {"git":true,"ignored":true,"path":"/srv/shop"}continue`,
		`ahead-uploads [] folder.checkpoint {"path":"/srv/uploads"}continue`,
		`stop [was-healthy ahead-code ahead-uploads] unit.stop {"unit":"app"}`,
		`keep-code [stop] folder.checkpoint {"git":true,"ignored":true,"path":"/srv/shop"}`,
		`keep-orders [stop] postgres.checkpoint {"as":"copy","database":"shop","read_later":true}`,
		`keep-uploads [stop] folder.checkpoint {"path":"/srv/uploads"}`,
		`start [keep-code keep-orders keep-uploads] unit.start {"if":"${{ steps.stop.outputs.ran }}","unit":"app"}`,
		`verify-orders [start] postgres.verify {"checkpoint":"${{ steps.keep-orders.outputs.checkpoint }}","database":"shop"}`,
	}, written(t, d.CheckpointTask("web-1", "cp-1", "ann")))
	d.Unit = ""
	require.Len(t, written(t, d.CheckpointTask("web-1", "cp-1", "ann")), 4, "without a unit nothing is stopped or read ahead")
}

// TestEachStepIsAboutAField: what is said of a step is told where people have written it.
func TestEachStepIsAboutAField(t *testing.T) {
	d := parse(t, shop)
	kept := Checkpoint{ID: "cp-1", Parts: []KeptPart{{Name: "code", Kind: "git", Resource: "/srv/shop", Snapshot: "a"}}}
	for _, raw := range []json.RawMessage{d.CheckpointTask("web-1", "cp-1", "ann"), d.RollbackTask("web-1", kept, "ann"),
		d.CompareTask("web-1", "d1", kept, nil, "ann")} {
		var file taskFile
		require.NoError(t, json.Unmarshal(raw, &file))
		for _, s := range file.Steps {
			require.Regexp(t, "^(unit|parts|parts[.](code|orders|uploads))$", FieldOf(s.ID))
		}
	}
	require.Equal(t, "step other", FieldOf("other"))
}

func TestAPartOnAnotherHostHasItsStepsThere(t *testing.T) {
	d := parse(t, `
name: shop
unit: app
parts:
  uploads: {folder: /srv/uploads}
  copies: {folder: /srv/uploads, on: web-2}
  orders: {postgres: shop, on: db-1}
`)
	require.Equal(t, []string{"db-1", "web-2"}, d.Hosts("web-1"))
	places := func(raw json.RawMessage) map[string]string {
		var file taskFile
		require.NoError(t, json.Unmarshal(raw, &file))
		on := map[string]string{}
		for _, s := range file.Steps {
			on[s.ID] = s.On
		}
		return on
	}
	require.Equal(t, map[string]string{"was-healthy": "web-1", "ahead-copies": "web-2", "ahead-uploads": "web-1",
		"stop": "web-1", "keep-copies": "web-2", "keep-orders": "db-1", "keep-uploads": "web-1", "start": "web-1",
		"verify-orders": "db-1"}, places(d.CheckpointTask("web-1", "cp-1", "ann")))
	kept := Checkpoint{ID: "cp-1", Parts: []KeptPart{
		{Name: "uploads", Kind: "folder", Resource: "/srv/uploads", Snapshot: "a"},
		{Name: "copies", Kind: "folder", Resource: "/srv/uploads", On: "web-2", Snapshot: "b"},
		{Name: "orders", Kind: "postgres", Resource: "shop", On: "db-2", Snapshot: "c"}}}
	back := places(d.RollbackTask("web-1", kept, "ann"))
	require.Equal(t, "web-2", back["restore-copies"])
	require.Equal(t, "web-2", back["verify-copies"])
	require.Equal(t, "web-1", back["restore-uploads"])
	require.NotContains(t, back, "restore-orders", "what another host has kept")
	require.Equal(t, []string{"orders"}, d.NotCompared(kept, nil))
	require.Equal(t, "web-2", places(d.CompareTask("web-1", "d1", kept, nil, "ann"))["compare-copies"])

	_, err := Parse("environment.yaml", []byte(`
name: shop
on: web-1
unit: app
parts:
  web: {container: web, on: web-2}
  one: {folder: /srv/a, on: web-1}
  two: {folder: /srv/a}
`))
	require.EqualError(t, err, "environment.yaml: parts.two: /srv/a is already the part one\n"+
		"parts.web.on: the unit is on the host of the environment, and cannot stop a container on web-2")
}

func TestARollbackPutsBackWhatBothHave(t *testing.T) {
	d := parse(t, shop)
	unhealthy := false
	to := Checkpoint{ID: "cp-1", Parts: []KeptPart{
		{Name: "code", Kind: "git", Resource: "/srv/shop", Snapshot: "cp-a"},
		{Name: "gone", Kind: "folder", Resource: "/srv/gone", Snapshot: "cp-b"},
		{Name: "orders", Kind: "postgres", Resource: "shop", Snapshot: "cp-c"},
		{Name: "uploads", Kind: "folder", Resource: "/srv/elsewhere", Snapshot: "cp-d"},
	}}
	lines := written(t, d.RollbackTask("web-1", to, "ann"))
	require.Equal(t, `verify-code [] folder.verify {"checkpoint":"cp-a","path":"/srv/shop"}`, lines[0])
	require.Equal(t, []string{
		`restore-code [keep-code keep-orders keep-uploads] folder.restore {"checkpoint":"cp-a","path":"/srv/shop"}`,
		`restore-orders [keep-code keep-orders keep-uploads] postgres.restore {"checkpoint":"cp-c","database":"shop"}`,
		`start [restore-code restore-orders] unit.start {"unit":"app"}`,
		`health [start was-healthy] unit.health {"must":"${{ steps.was-healthy.outputs.healthy }}","unit":"app","within":"30s"}`,
	}, lines[len(lines)-4:])
	require.Equal(t, []string{
		"part gone (folder /srv/gone) is in the checkpoint, and no longer in the environment: it is left as it is",
		"part uploads (folder /srv/uploads) is not in the checkpoint: it is left as it is",
	}, d.Untouched(to))
	to.Healthy = &unhealthy
	lines = written(t, d.RollbackTask("web-1", to, "ann"))
	require.Equal(t, `health [start was-healthy] unit.health {"must":false,"unit":"app","within":"30s"}`, lines[len(lines)-1])
}

// TestAnSQLiteDatabaseIsVerifiedAndPutBackUnasked and is not read ahead.
func TestAnSQLiteDatabaseIsVerifiedAndPutBackUnasked(t *testing.T) {
	d := parse(t, "name: shop\nunit: app\nparts: {orders: {sqlite: /srv/orders.db}}")
	require.Equal(t, []string{
		`was-healthy [] unit.health {"must":false,"unit":"app"}`,
		`stop [was-healthy] unit.stop {"unit":"app"}`,
		`keep-orders [stop] sqlite.checkpoint {"database":"/srv/orders.db"}`,
	}, written(t, d.CheckpointTask("web-1", "cp-1", "ann"))[:3])
	raw := d.RollbackTask("web-1", Checkpoint{ID: "cp-1", Parts: []KeptPart{
		{Name: "orders", Kind: "sqlite", Resource: "/srv/orders.db", Snapshot: "cp-a"},
	}}, "ann")
	lines := written(t, raw)
	require.Equal(t, `verify-orders [] sqlite.verify {"checkpoint":"cp-a","database":"/srv/orders.db"}`, lines[0])
	require.Contains(t, lines, `restore-orders [keep-orders] sqlite.restore {"checkpoint":"cp-a","database":"/srv/orders.db"}`)
	require.Contains(t, string(raw), `"gate":"none"`)
	for _, bad := range []string{"orders.db", "/srv/../orders.db", "/srv/"} {
		_, err := Parse("environment.yaml", []byte("name: shop\nparts: {orders: {sqlite: "+bad+"}}"))
		require.ErrorContains(t, err, "parts.orders.sqlite: \""+bad+"\" must be an absolute path")
	}
	for whole, refused := range map[string]bool{"folder: /srv": true, "folder: /srv/other": false, "git: /srv": false,
		"git: /srv, ignored: true": true} {
		_, err := Parse("environment.yaml",
			[]byte("name: shop\nparts: {all: {"+whole+"}, orders: {sqlite: /srv/orders.db}}"))
		if refused {
			require.ErrorContains(t, err, "parts.orders.sqlite: /srv/orders.db is in the folder of part all as well", whole)
		} else {
			require.NoError(t, err, whole)
		}
	}
}

// TestWhatTerraformDestroysIsAcceptedBeforeTheUnitIsStopped and only the verification can hand that on.
func TestWhatTerraformDestroysIsAcceptedBeforeTheUnitIsStopped(t *testing.T) {
	d := parse(t, "name: shop\nunit: app\nparts: {infra: {terraform: /srv/infra}}")
	require.Contains(t, written(t, d.CheckpointTask("web-1", "cp-1", "ann")),
		`keep-infra [stop] terraform.checkpoint {"dir":"/srv/infra"}`)
	raw := d.RollbackTask("web-1", Checkpoint{ID: "cp-1", Parts: []KeptPart{
		{Name: "infra", Kind: "terraform", Resource: "/srv/infra", Snapshot: "cp-a"},
	}}, "ann")
	lines := written(t, raw)
	require.Equal(t, `verify-infra [] terraform.verify {"checkpoint":"cp-a","dir":"/srv/infra"}`, lines[0])
	require.Contains(t, lines, `tasks [verify-infra was-healthy] environment.tasks {"environment":"shop"}`)
	require.Contains(t, lines, `stop [tasks] unit.stop {"unit":"app"}`)
	require.Contains(t, lines, `restore-infra [keep-infra] terraform.restore `+
		`{"accepted":"${{ steps.verify-infra.outputs.accepted }}","checkpoint":"cp-a","dir":"/srv/infra"}`)
	require.Contains(t, string(raw), `"gate":"none"`)
	for other, refused := range map[string]string{
		"folder: /srv":               "parts.infra.terraform: /srv/infra is in the folder of part all as well",
		"git: /srv":                  "parts.infra.terraform: /srv/infra is in the folder of part all as well",
		"folder: /srv/infra/modules": "parts.all.folder: /srv/infra/modules is in the folder of part infra as well",
		"terraform: /srv/infra/more": "parts.all.terraform: /srv/infra/more is in the folder of part infra as well",
		"sqlite: /srv/infra/a.db":    "parts.all.sqlite: /srv/infra/a.db is in the folder of part infra as well",
		"folder: /srv/infra2":        "",
		"folder: /srv/infra, on: db": "",
	} {
		_, err := Parse("environment.yaml", []byte("name: shop\nparts: {all: {"+other+"}, infra: {terraform: /srv/infra}}"))
		if refused == "" {
			require.NoError(t, err, other)
		} else {
			require.ErrorContains(t, err, refused, other)
		}
	}
}

// TestARedisDatabaseIsVerifiedAndPutBackUnasked and is not read ahead.
func TestARedisDatabaseIsVerifiedAndPutBackUnasked(t *testing.T) {
	d := parse(t, "name: shop\nunit: app\nparts: {carts: {redis: shop}, orders: {postgres: shop}}")
	require.Contains(t, written(t, d.CheckpointTask("web-1", "cp-1", "ann")),
		`keep-carts [stop] redis.checkpoint {"database":"shop"}`)
	raw := d.RollbackTask("web-1", Checkpoint{ID: "cp-1", Parts: []KeptPart{
		{Name: "carts", Kind: "redis", Resource: "shop", Snapshot: "cp-a"},
	}}, "ann")
	lines := written(t, raw)
	require.Equal(t, `verify-carts [] redis.verify {"checkpoint":"cp-a","database":"shop"}`, lines[0])
	require.Contains(t, lines, `restore-carts [keep-carts keep-orders] redis.restore {"checkpoint":"cp-a","database":"shop"}`)
	require.Contains(t, string(raw), `"gate":"none"`)
	require.True(t, IsDatabase("redis"))
	_, err := Parse("environment.yaml", []byte("name: shop\nparts: {a: {redis: shop}, b: {redis: shop}}"))
	require.ErrorContains(t, err, "parts.b: shop is already the part a")
}

// TestADiskIsPutBackBeforeDatabases and needs a machine that is stopped, except for a checkpoint
// where the unit goes on running.
func TestADiskIsPutBackBeforeDatabases(t *testing.T) {
	d := parse(t, "name: shop\nunit: vm\nparts: {root: {disk: /srv/root.qcow2}}")
	require.Equal(t, []string{
		`was-healthy [] unit.health {"must":false,"unit":"vm"}`,
		`stop [was-healthy] unit.stop {"unit":"vm"}`,
		`keep-root [stop] disk.checkpoint {"disk":"/srv/root.qcow2"}`,
		`start [keep-root] unit.start {"if":"${{ steps.stop.outputs.ran }}","unit":"vm"}`,
	}, written(t, d.CheckpointTask("web-1", "cp-1", "ann")))
	d.Quiesce = LeaveUnit
	require.NoError(t, d.Check())
	require.Equal(t, []string{
		`was-healthy [] unit.health {"must":false,"unit":"vm"}`,
		`keep-root [was-healthy] disk.checkpoint {"disk":"/srv/root.qcow2"}`,
	}, written(t, d.CheckpointTask("web-1", "cp-1", "ann")))
	to := Checkpoint{ID: "cp-1", Parts: []KeptPart{{Name: "root", Kind: "disk", Resource: "/srv/root.qcow2",
		Snapshot: "cp-a"}}}
	raw := d.RollbackTask("web-1", to, "ann")
	require.Equal(t, []string{
		`verify-root [] disk.verify {"checkpoint":"cp-a","disk":"/srv/root.qcow2"}`,
		`was-healthy [] unit.health {"must":false,"unit":"vm"}`,
		`tasks [verify-root was-healthy] environment.tasks {"environment":"shop"}`,
		`stop [tasks] unit.stop {"unit":"vm"}`,
		`keep-root [stop] disk.checkpoint {"disk":"/srv/root.qcow2"}`,
		`restore-root [keep-root] disk.restore {"checkpoint":"cp-a","disk":"/srv/root.qcow2"}`,
		`start [restore-root] unit.start {"unit":"vm"}`,
	}, written(t, raw)[:7])
	require.Contains(t, string(raw), `"gate":"none"`)
	at := time.Unix(0, 0)
	require.Equal(t, RestoreDisks, d.Stages([]Done{{Entry: activities.Entry{Step: "restore-root"}, Began: at, Ended: at}})[0].Stage)
	d.Parts["root"] = Part{Disk: "/srv/root.qcow2", Memory: true}
	require.NoError(t, d.Check())
	require.Equal(t, []string{
		`was-healthy [] unit.health {"must":false,"unit":"vm"}`,
		`keep-root [was-healthy] disk.checkpoint {"disk":"/srv/root.qcow2","memory":true}`,
	}, written(t, d.CheckpointTask("web-1", "cp-1", "ann")))
	require.Equal(t, []string{
		`verify-root [] disk.verify {"checkpoint":"cp-a","disk":"/srv/root.qcow2","memory":true}`,
		`was-healthy [] unit.health {"must":false,"unit":"vm"}`,
		`tasks [verify-root was-healthy] environment.tasks {"environment":"shop"}`,
		`keep-root [tasks] disk.checkpoint {"disk":"/srv/root.qcow2","memory":true}`,
		`restore-root [keep-root] disk.restore {"checkpoint":"cp-a","disk":"/srv/root.qcow2","memory":true}`,
		`health [restore-root was-healthy] unit.health {"must":"${{ steps.was-healthy.outputs.healthy }}","unit":"vm","within":"30s"}`,
	}, written(t, d.RollbackTask("web-1", to, "ann")), "a machine with its memory is not stopped")
	for src, wrong := range map[string]string{
		"name: a\nquiesce: pause\nparts: {x: {folder: /x}}":                  "quiesce: it is about a unit",
		"name: a\nunit: u\nquiesce: halt\nparts: {x: {folder: /x}}":          `quiesce: "halt" must be stop, pause or none`,
		"name: a\nunit: u\nquiesce: none\nparts: {x: {container: web}}":      "parts.x.container: web is kept while it is stopped or paused",
		"name: a\nparts: {x: {folder: /x, memory: true}}":                    "parts.x.memory: it says that the memory",
		"name: a\nunit: u\nparts: {x: {disk: /x, memory: true}}":             "parts.x.memory: the machine runs while it is kept",
		"name: a\nparts: {x: {disk: /x, memory: true}, y: {folder: /srv}}":   "parts.y: /srv is put back while nothing runs",
		"name: a\nparts: {x: {disk: x.qcow2}}":                               `parts.x.disk: "x.qcow2" must be an absolute path`,
		"name: a\nparts: {x: {disk: /srv/x.qcow2}, all: {folder: /srv}}":     "parts.x.disk: /srv/x.qcow2 is in the folder of part all",
		"name: a\nparts: {x: {disk: /srv/x.qcow2}, y: {disk: /srv/x.qcow2}}": "parts.y: /srv/x.qcow2 is already the part x",
		"name: a\nparts: {x: {disk: /srv/x.qcow2, container: web}}":          "parts.x: it has 2 kinds",
	} {
		_, err := Parse("environment.yaml", []byte(src))
		require.ErrorContains(t, err, wrong)
	}
}

func TestACheckpointWithoutAPartIsNone(t *testing.T) {
	d := parse(t, shop)
	_, err := d.Find("cp-1", "shop-1", Manual, []Done{{Entry: activities.Entry{Step: "keep-code"}}})
	require.ErrorContains(t, err, "task shop-1 has not kept the part orders")
}

func TestTheRetentionKeeps(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var all []Checkpoint // three a day, the newest first
	for n := range 60 {
		all = append(all, Checkpoint{ID: fmt.Sprintf("cp-%d", n), Bytes: 10, Created: now.Add(-8 * time.Hour * time.Duration(n))})
	}
	all[50].Pinned = true
	kept := func(r Retention) (ids []string) {
		gone := map[string]bool{}
		for _, id := range r.Expired(all, now) {
			gone[id] = true
		}
		for _, c := range all {
			if !gone[c.ID] {
				ids = append(ids, c.ID)
			}
		}
		return ids
	}
	require.Equal(t, []string{"cp-0", "cp-1", "cp-2", "cp-3", "cp-4", "cp-5", "cp-6", "cp-7", "cp-8", "cp-9", // the last 10
		"cp-10", "cp-13", "cp-16", "cp-19", "cp-20", "cp-50"}, kept(Retention{}))
	require.Equal(t, []string{"cp-0", "cp-1", "cp-2", "cp-50"}, kept(Retention{Last: 2, Days: 1}))
	require.Equal(t, []string{"cp-0", "cp-1", "cp-50"}, kept(Retention{Bytes: 30}), "the pinned one counts")
	require.Equal(t, []string{"cp-0", "cp-50"}, kept(Retention{Bytes: 1}), "the newest stays")
	require.Equal(t, Usage{Checkpoints: 60, Pinned: 1, Bytes: 600, Last: 10, Days: 7}, Retention{}.UsageOf(all))
}

func TestTheSchemaNamesEveryField(t *testing.T) {
	s, err := Schema()
	require.NoError(t, err)
	require.Equal(t, []string{"name", "parts"}, s.Required)
	for _, field := range []string{"name", "owner", "on", "unit", "healthy", "parts", "retention"} {
		require.NotEmpty(t, s.Properties[field].Description, field)
	}
}

// TestStagesPassInTheirOrder though the steps of several go on beside each other.
func TestStagesPassInTheirOrder(t *testing.T) {
	d := parse(t, shop)
	to := Checkpoint{ID: "cp-1", Parts: []KeptPart{
		{Name: "code", Kind: "git", Resource: "/srv/shop", Snapshot: "cp-a"},
		{Name: "orders", Kind: "postgres", Resource: "shop", Snapshot: "cp-c"},
	}}
	var steps []Done
	pass := func(ids ...string) (passed []Stage) {
		for _, id := range ids {
			at := time.Unix(int64(len(steps)), 0)
			steps = append(steps, Done{Entry: activities.Entry{Step: id}, Began: at, Ended: at})
		}
		for _, p := range d.PassedStages(to, steps) {
			passed = append(passed, p.Stage)
		}
		return passed
	}
	require.Empty(t, pass("verify-code", "was-healthy", "ahead-code"))
	require.Equal(t, []Stage{Verify}, pass("verify-orders"))
	require.Equal(t, []Stage{Verify, StopUnit}, pass("stop", "keep-code", "keep-orders"))
	before := []Stage{Verify, StopUnit, SafetyCheckpoint}
	require.Equal(t, before, pass("keep-uploads"))
	require.Equal(t, before, pass("restore-orders"), "files are first")
	require.Equal(t, append(before, RestoreFiles, RestoreDatabases), pass("restore-code"))
}

// TestAContainerCanBePausedForACheckpoint and is stopped for a rollback all the same.
func TestAContainerCanBePausedForACheckpoint(t *testing.T) {
	d := parse(t, "name: shop\nunit: web\nquiesce: pause\nparts: {data: {volume: data}}")
	require.Equal(t, []string{
		`was-healthy [] unit.health {"must":false,"unit":"web"}`,
		`ahead-data [] folder.checkpoint {"volume":"data"}continue`,
		`stop [was-healthy ahead-data] unit.pause {"unit":"web"}`,
		`keep-data [stop] folder.checkpoint {"volume":"data"}`,
		`start [keep-data] unit.resume {"if":"${{ steps.stop.outputs.ran }}","unit":"web"}`,
	}, written(t, d.CheckpointTask("web-1", "cp-1", "ann")))
	to := Checkpoint{ID: "cp-1", Parts: []KeptPart{{Name: "data", Kind: "volume", Resource: "data", Snapshot: "cp-a"}}}
	require.Contains(t, written(t, d.RollbackTask("web-1", to, "ann")), `stop [tasks] unit.stop {"unit":"web"}`)
	done := func(step string, ran bool) Done {
		return Done{Entry: activities.Entry{Step: step}, Result: activities.Result{Outputs: map[string]any{"ran": ran}}}
	}
	require.True(t, isQuiesced([]Done{done("stop", true), done("start", false)}))
	require.True(t, isQuiesced([]Done{done("stop", false)}), "it did not run")
	require.False(t, isQuiesced([]Done{done("stop", true), done("start", true)}), "somebody has let it go on")
	require.False(t, isQuiesced([]Done{done("was-healthy", true)}))
}
