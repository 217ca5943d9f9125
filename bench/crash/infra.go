package crash

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-62bf7108/unwind/examples/found"
)

//go:embed main.tf
var configuration []byte

// infra is one step that applies a configuration of Terraform whose objects are files.
type infra struct {
	Host int
	// Prior says that there is a state before, with one object.
	Prior bool

	id      string
	on      string
	dir     string // the configuration's
	objects string
	state   string // the worker's
	before  found.Snapshot
	folder  found.Snapshot
	had     map[string]string
}

func drawInfra(r *rand.Rand, hosts int) *infra {
	return &infra{Host: r.IntN(hosts), Prior: r.IntN(2) == 0}
}

func (p *infra) name(n int) { p.id = fmt.Sprintf("infra-%d", n) }

func (p *infra) actions() []string { return []string{"terraform.apply"} }

func (p *infra) firstStep() string { return p.id }

func (p *infra) host() (int, bool) { return p.Host, true }

func (p *infra) setUp(ctx context.Context, r *run, task string) (err error) {
	m := r.fleet.members[p.Host]
	base := filepath.Join(m.infra(), task, p.id)
	p.on, p.state, p.dir, p.objects = m.Host, m.State, filepath.Join(base, "configuration"), filepath.Join(base, "objects")
	for _, dir := range []string{p.dir, p.objects} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(p.dir, "main.tf"), configuration, 0o600); err != nil {
		return err
	}
	if p.Prior {
		if err := r.copyPrior(ctx, p.dir, p.objects); err != nil {
			return err
		}
	}
	if p.before, err = found.Terraform(p.dir); err != nil {
		return err
	}
	if p.folder, err = found.Files("", p.dir, found.StateFile); err != nil {
		return err
	}
	p.had, err = objectsIn(p.objects)
	return err
}

func (p *infra) steps() []map[string]any {
	vars := func(release string, regions ...string) map[string]any {
		return map[string]any{"release": release, "regions": regions, "objects": p.objects}
	}
	with := map[string]any{"dir": p.dir, "vars": vars("2", "eu", "us")}
	if p.Prior {
		with["previous"] = map[string]any{"dir": p.dir, "vars": vars("1", "eu")}
	}
	return []map[string]any{{"id": p.id, "uses": "terraform.apply", "on": p.on, "with": with}}
}

// objectsIn are the regions of the objects, by id.
func objectsIn(dir string) (map[string]string, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		all[f.Name()] = string(raw)
	}
	return all, nil
}

func (p *infra) judgePart(_ context.Context, _ *run, e taskEnd) (v verdict, err error) {
	state, err := found.Terraform(p.dir)
	if err != nil {
		return v, err
	}
	folder, err := found.Files("", p.dir, found.StateFile)
	if err != nil {
		return v, err
	}
	objects, err := objectsIn(p.objects)
	if err != nil {
		return v, err
	}
	for _, c := range p.folder.Changes(folder) {
		v.Orphaned = append(v.Orphaned, fmt.Sprintf("%s: in the folder of the configuration: %s", p.id, c))
	}
	known := map[string]string{} // by id
	for address, facts := range state {
		if strings.HasPrefix(address, "terraform_data.object") {
			known[strings.Trim(facts["id"], `"`)] = address
		}
	}
	p.count(&v, objects, known, e)
	if e.committed() {
		p.held(&v, state, objects)
	} else {
		p.back(&v, state, objects, e)
	}
	for _, token := range e.tokens(p.id) {
		work, err := p.workIn(token)
		if err != nil {
			return v, err
		}
		v.Orphaned = append(v.Orphaned, work...)
	}
	return v, nil
}

// count looks for objects that no state knows, and for a region with more than one.
func (p *infra) count(v *verdict, objects, known map[string]string, e taskEnd) {
	regions := map[string]int{}
	for id, region := range objects {
		regions[region]++
		if known[id] == "" && !named(e, id) && !p.reportNames(e, region) {
			v.Orphaned = append(v.Orphaned, fmt.Sprintf("%s: object %s of region %s is in no state", p.id, id, region))
		}
	}
	for region, n := range regions {
		if n > 1 && !p.reportNames(e, region) {
			v.Doubled = append(v.Doubled, fmt.Sprintf("%s: region %s has %d objects", p.id, region, n))
		}
	}
}

// reportNames says that the report names the region's object, as a loss or in the outcome of the
// step.
func (p *infra) reportNames(e taskEnd, region string) bool {
	return named(e, address(region)) ||
		slices.ContainsFunc(e.notes(p.id), func(n string) bool { return strings.Contains(n, address(region)) })
}

func address(region string) string { return fmt.Sprintf("terraform_data.object[%q]", region) }

// held says what a committed step should have left, and has not.
func (p *infra) held(v *verdict, state found.Snapshot, objects map[string]string) {
	for _, region := range []string{"eu", "us"} {
		id := strings.Trim(state[address(region)]["id"], `"`)
		if objects[id] != region {
			v.Lost = append(v.Lost,
				fmt.Sprintf("%s: region %s has the id %q in the state, and no object of that id", p.id, region, id))
		}
	}
	if now := state["output.release"]["value"]; now != `"2"` {
		v.Lost = append(v.Lost, fmt.Sprintf("%s: the release in the state is %q", p.id, now))
	}
}

// back says what is not as before, and not named.
func (p *infra) back(v *verdict, state found.Snapshot, objects map[string]string, e taskEnd) {
	for _, c := range p.before.Changes(state) {
		if !named(e, c.Thing) {
			v.Lost = append(v.Lost, fmt.Sprintf("%s: in the state: %s", p.id, c))
		}
	}
	for id, region := range p.had {
		if objects[id] != region && !named(e, address(region)) {
			v.Lost = append(v.Lost, fmt.Sprintf("%s: object %s of region %s is gone", p.id, id, region))
		}
	}
}

// workIn are the working copies that a token has left.
func (p *infra) workIn(token string) (left []string, err error) {
	err = filepath.WalkDir(filepath.Join(p.state, "terraform"), func(path string, d fs.DirEntry, err error) error {
		switch {
		case os.IsNotExist(err):
			return nil
		case err != nil:
			return err
		case d.IsDir() && filepath.Base(filepath.Dir(path)) == "work" &&
			filepath.Base(filepath.Dir(filepath.Dir(path))) == token:
			left = append(left, path+" is left over")
			return fs.SkipDir
		case d.IsDir() && d.Name() != token && len(d.Name()) == len(token):
			return fs.SkipDir
		}
		return nil
	})
	return left, err
}

func (p *infra) clear(context.Context, *run) error { return nil }

func (p *infra) String() string {
	return fmt.Sprintf("%s on host %d, prior state %v", p.id, p.Host, p.Prior)
}

// prior is what an apply has made once, to be copied for each task.
type prior struct {
	state   []byte
	objects string // the folder that the state names
	made    map[string]string
}

// applyPrior makes it.
func (r *run) applyPrior(ctx context.Context, terraform string) error {
	dir := filepath.Join(r.dir, "prior")
	p := &prior{objects: filepath.Join(dir, "objects")}
	if err := os.MkdirAll(p.objects, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), configuration, 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"init", "-input=false"},
		{"apply", "-input=false", "-auto-approve", "-var=release=1", `-var=regions=["eu"]`, "-var=objects=" + p.objects},
	} {
		c := exec.CommandContext(ctx, terraform, append(args, "-no-color")...)
		c.Dir = dir
		c.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TF_") }),
			"CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_CLI_CONFIG_FILE="+os.DevNull)
		if said, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("terraform %s: %w\n%s", args[0], err, said)
		}
	}
	var err error
	if p.state, err = os.ReadFile(filepath.Join(dir, found.StateFile)); err != nil {
		return err
	}
	p.made, err = objectsIn(p.objects)
	r.prior = p
	return err
}

// copyPrior lays a copy of it out.
func (r *run) copyPrior(_ context.Context, dir, objects string) error {
	from, err := json.Marshal(r.prior.objects)
	if err != nil {
		return err
	}
	to, err := json.Marshal(objects)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, found.StateFile), bytes.ReplaceAll(r.prior.state, from, to),
		0o600); err != nil {
		return err
	}
	for id := range maps.Keys(r.prior.made) {
		if err := os.WriteFile(filepath.Join(objects, id), []byte(r.prior.made[id]), 0o600); err != nil {
			return err
		}
	}
	return nil
}
