package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/examples/found"
	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/environment"
)

// environments are steps that write into the folder of an environment, take a checkpoint of it,
// write again, and go back to the checkpoint.
type environments struct {
	Host int

	id     string
	on     string
	named  string
	dir    string
	stored string // where the worker stores the checkpoints
	before found.Snapshot
}

func drawEnvironments(r *rand.Rand, hosts int) *environments {
	return &environments{Host: r.IntN(hosts)}
}

func (r *run) setEnvironments(ctx context.Context) error {
	for _, m := range r.fleet.members {
		m.Config = m.With(&host.EnvironmentSettings{Names: []string{"*"}})
	}
	return r.setFolders(ctx)
}

func (p *environments) name(n int) { p.id = fmt.Sprintf("environment-%d", n) }

func (p *environments) actions() []string {
	return []string{"file.write", "environment.checkpoint", "environment.rollback"}
}

func (p *environments) firstStep() string { return p.id + "-write" }

func (p *environments) host() (int, bool) { return p.Host, true }

func (p *environments) setUp(ctx context.Context, r *run, task string) error {
	m := r.fleet.members[p.Host]
	p.on, p.dir = m.Host, filepath.Join(m.files(), task, p.id)
	p.named = "crash-" + activities.DigestOf([]byte(task), []byte(p.id)).Short()
	p.stored = filepath.Join(m.State, "environments", p.named)
	if err := os.MkdirAll(p.dir, 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.dir, "kept"), []byte("before\n"), 0o640); err != nil {
		return err
	}
	_, err := r.client.ExecuteWorkflow(ctx,
		client.StartWorkflowOptions{ID: environment.WorkflowID(p.named), TaskQueue: queue}, environment.WorkflowType,
		environment.Start{Document: environment.Document{Name: p.named, On: p.on,
			Parts: map[string]environment.Part{"files": {Folder: p.dir}}}})
	if err == nil {
		p.before, err = found.Files("", p.dir)
	}
	return err
}

func (p *environments) steps() []map[string]any {
	step := func(what, uses string, with map[string]any) map[string]any {
		return map[string]any{"id": p.id + "-" + what, "uses": uses, "on": p.on, "with": with}
	}
	write := func(what, file string) map[string]any {
		return step(what, "file.write", map[string]any{"path": filepath.Join(p.dir, file), "content": fresh})
	}
	back := step("back", "environment.rollback", map[string]any{"environment": p.named,
		"to": "${{ steps." + p.id + "-keep.outputs.checkpoint }}"})
	back["gate"] = "none"
	return []map[string]any{
		write("write", "new/one"),
		step("keep", "environment.checkpoint", map[string]any{"environment": p.named}),
		write("add", "later/two"), back,
	}
}

func (p *environments) judgePart(_ context.Context, _ *run, e taskEnd) (v verdict, err error) {
	now, err := found.Files("", p.dir)
	if err != nil {
		return v, err
	}
	wants := []found.Want{{Change: "+ new"}, {Change: "+ new/one", Facts: holds(fresh)}}
	for _, wrong := range differences(found.FilesWorld, p.before, now, wants, e) {
		v.Lost = append(v.Lost, p.id+": "+wrong)
	}
	files, err := filepath.Glob(filepath.Join(p.stored, "cp-*.json"))
	if err != nil {
		return v, err
	}
	kept := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return v, err
		}
		var c environment.Checkpoint
		if err := json.Unmarshal(raw, &c); err != nil {
			return v, err
		}
		if c.Trigger == environment.Agent {
			kept++
		}
		if !e.committed() && len(c.NeededBy) > 0 {
			v.Orphaned = append(v.Orphaned, fmt.Sprintf("%s: checkpoint %s is still needed", p.id, c.ID))
		}
	}
	switch {
	case e.committed() && kept == 0:
		v.Lost = append(v.Lost, p.id+": its checkpoint is gone")
	case e.committed() && kept > 1, !e.committed() && kept > 0:
		v.Orphaned = append(v.Orphaned,
			fmt.Sprintf("%s: its steps have left %s", p.id, activities.CountOf(kept, "checkpoint")))
	}
	return v, nil
}

func (p *environments) clear(context.Context, *run) error { return nil }

func (p *environments) String() string { return fmt.Sprintf("%s on host %d", p.id, p.Host) }
