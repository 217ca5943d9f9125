package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-62bf7108/unwind/activities/folder"
	"github.com/seed-62bf7108/unwind/examples/found"
)

// folders are steps that write into a folder, keep it, change it, and put it back as it was kept.
type folders struct {
	Host int

	id     string
	on     string
	root   string
	store  string // of the worker
	dir    string
	before found.Snapshot
}

func drawFolders(r *rand.Rand, hosts int) *folders { return &folders{Host: r.IntN(hosts)} }

func (r *run) setFolders(context.Context) error {
	for _, m := range r.fleet.members {
		m.Config = m.With(&folder.Settings{Roots: []string{m.files()}})
	}
	return nil
}

func (p *folders) name(n int) { p.id = fmt.Sprintf("folder-%d", n) }

func (p *folders) actions() []string {
	return []string{"file.write", "folder.checkpoint", "file.delete", "folder.restore"}
}

func (p *folders) firstStep() string { return p.id + "-write" }

func (p *folders) host() (int, bool) { return p.Host, true }

func (p *folders) setUp(_ context.Context, r *run, task string) error {
	m := r.fleet.members[p.Host]
	p.on, p.root, p.store = m.Host, m.files(), filepath.Join(m.State, "folder", "store")
	p.dir = filepath.Join(p.root, task, p.id)
	old := time.Date(2024, 3, 1, 8, 30, 0, 123_456_789, time.UTC)
	for _, name := range []string{"kept", "doomed/a", "doomed/deep/b"} {
		at := filepath.Join(p.dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(at, []byte("before: "+name+"\n"), 0o640); err != nil {
			return err
		}
		if err := os.Chtimes(at, old, old); err != nil {
			return err
		}
	}
	if err := os.Symlink("../kept", filepath.Join(p.dir, "doomed", "link")); err != nil {
		return err
	}
	var err error
	p.before, err = found.Files("", p.dir)
	return err
}

func (p *folders) steps() []map[string]any {
	at := func(name string) string { return filepath.Join(p.dir, name) }
	step := func(what, uses string, with map[string]any) map[string]any {
		return map[string]any{"id": p.id + "-" + what, "uses": uses, "on": p.on, "with": with}
	}
	write := func(what, file string) map[string]any {
		return step(what, "file.write", map[string]any{"path": at(file), "content": fresh})
	}
	return []map[string]any{
		write("write", "new/one"),
		step("keep", "folder.checkpoint", map[string]any{"path": p.dir}),
		step("delete", "file.delete", map[string]any{"paths": []string{at("doomed"), at("new")}}),
		write("add", "later/two"),
		step("restore", "folder.restore", map[string]any{"path": p.dir,
			"checkpoint": "${{ steps." + p.id + "-keep.outputs.checkpoint }}"}),
	}
}

func (p *folders) judgePart(_ context.Context, _ *run, e taskEnd) (v verdict, err error) {
	now, err := found.Files("", p.dir)
	if err != nil {
		return v, err
	}
	wants := []found.Want{{Change: "+ new"}, {Change: "+ new/one", Facts: holds(fresh)}}
	for _, wrong := range differences(found.FilesWorld, p.before, now, wants, e) {
		v.Lost = append(v.Lost, p.id+": "+wrong)
	}
	for _, s := range p.steps() {
		id, _ := s["id"].(string)
		for _, token := range e.tokens(id) {
			if staged := filepath.Join(filepath.Dir(p.dir), ".unwind-"+token); exists(staged) {
				v.Orphaned = append(v.Orphaned, staged+" is left over")
			}
			if kept := filepath.Join(p.store, "trees", "cp-"+token); exists(kept) && (!e.committed() || token != e.token(id)) {
				v.Orphaned = append(v.Orphaned, kept+" is left over")
			}
		}
	}
	return v, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (p *folders) clear(context.Context, *run) error { return nil }

func (p *folders) String() string { return fmt.Sprintf("%s on host %d", p.id, p.Host) }
