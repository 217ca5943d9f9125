package found

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/client"
)

// Place says what to observe. Empty fields are skipped.
type Place struct {
	// Files is a folder; Skip are names that are left out in it.
	Files string
	Skip  []string
	// Container is a name.
	Container string
	// Infra is a folder with a Terraform configuration and its state, Effects one that the
	// configuration works in.
	Infra, Effects string
	// Database is an SQLite file.
	Database string
	// Stripe is the URL of an emulator.
	Stripe string
}

// The worlds, as findings name them.
const (
	FilesWorld     = "files"
	ContainerWorld = "container"
	TerraformWorld = "terraform"
	DatabaseWorld  = "database"
	StripeWorld    = "stripe"
)

// worlds, in the order of the findings.
var worlds = []string{FilesWorld, ContainerWorld, DatabaseWorld, TerraformWorld, StripeWorld}

// Observed is what was found in each world.
type Observed map[string]Snapshot

// Look takes a snapshot of every world in p.
func Look(ctx context.Context, p Place) (Observed, error) {
	s := Observed{}
	var err error
	if p.Files != "" {
		if s[FilesWorld], err = Files("", p.Files, p.Skip...); err != nil {
			return nil, err
		}
	}
	if p.Container != "" {
		look := Container
		if os.Geteuid() == 0 && os.Getenv(client.EnvOverrideHost) == "" {
			look = Within // an engine's export does not show layers
		}
		if s[ContainerWorld], err = look(ctx, p.Container); err != nil {
			return nil, err
		}
	}
	if p.Database != "" {
		if s[DatabaseWorld], err = Database(p.Database); err != nil {
			return nil, err
		}
	}
	if p.Infra != "" {
		if s[TerraformWorld], err = infrastructure(p); err != nil {
			return nil, err
		}
	}
	if p.Stripe != "" {
		if s[StripeWorld], err = Stripe(ctx, p.Stripe); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// infrastructure is the state, what it has made on disk, and the configuration's folder, without
// the state file: that differs after any apply, and is compared by its content.
func infrastructure(p Place) (Snapshot, error) {
	s, err := Terraform(p.Infra)
	if err != nil {
		return nil, err
	}
	for prefix, folder := range map[string]string{"effects/": p.Effects, "folder/": p.Infra} {
		files, err := Files(prefix, folder, StateFile)
		if err != nil {
			return nil, err
		}
		maps.Copy(s, files)
	}
	return s, nil
}

// Finding is the result of a comparison in one world.
type Finding struct {
	World string
	// OK means that the world is as it should be, except for what Lost names.
	OK bool
	// Looked says what was compared.
	Looked string
	// Wrong lists the differences that should not be.
	Wrong []string
	// Lost lists the differences that the report had named as lost.
	Lost []string
}

// Want is a change that a task was supposed to make.
type Want struct {
	// Change is its sign and the thing: "~ app.yml".
	Change string
	// Facts are those that the thing must have now; all others may have any value.
	Facts Facts
}

// Compare compares now with before. Want are the changes that a task was supposed to make, by
// world; losses are what its report names as not restored.
func (before Observed) Compare(now Observed, want map[string][]Want, losses []string) []Finding {
	var all []Finding
	for _, world := range worlds {
		if before[world] == nil {
			continue
		}
		f := Finding{World: world, Looked: looked(world, now[world])}
		missing := slices.Clone(want[world])
		for _, c := range before[world].Changes(now[world]) {
			wanted := func(w Want) bool { return w.Change == c.Sign+" "+c.Thing }
			if i := slices.IndexFunc(missing, wanted); i >= 0 {
				for _, name := range slices.Sorted(maps.Keys(missing[i].Facts)) {
					if is, should := c.Is[name], missing[i].Facts[name]; is != should {
						f.Wrong = append(f.Wrong, fmt.Sprintf("%s: %s is %s, and not %s", c.Thing, name, orNone(is), should))
					}
				}
				missing = slices.Delete(missing, i, i+1)
				continue
			}
			if world == ContainerWorld {
				c = f.lose(c, losses)
			}
			if c.Sign != "~" || len(c.Facts) > 0 {
				f.Wrong = append(f.Wrong, c.String())
			}
		}
		for _, m := range missing {
			f.Wrong = append(f.Wrong, "not done: "+m.Change)
		}
		f.OK = len(f.Wrong) == 0
		all = append(all, f)
	}
	return all
}

// looked counts what was compared.
func looked(world string, s Snapshot) string {
	count := func(of func(name string, f Facts) bool) (n int) {
		for name, f := range s {
			if of(name, f) {
				n++
			}
		}
		return n
	}
	begins := func(prefix string) func(string, Facts) bool {
		return func(name string, _ Facts) bool { return strings.HasPrefix(name, prefix) }
	}
	switch world {
	case FilesWorld:
		return fmt.Sprintf("paths: %d, with bytes, mode, owner, time to the nanosecond, attributes", len(s))
	case ContainerWorld:
		return fmt.Sprintf("paths: %d, with bytes, mode, owner, time, attributes; its name, program, environment, state",
			len(s)-1)
	case DatabaseWorld:
		return fmt.Sprintf("tables: %d, rows with all columns: %d", count(begins("table ")), count(begins("row ")))
	case TerraformWorld:
		outputs := count(begins("output."))
		effects := count(func(name string, f Facts) bool {
			return strings.HasPrefix(name, "effects/") &&
				f["kind"] == "file"
		})
		resources := count(func(_ string, f Facts) bool { return f["provider"] != "" })
		return fmt.Sprintf("resources with all attributes: %d, outputs: %d, effects on disk: %d", resources, outputs, effects)
	}
	live := 0
	for name, f := range s {
		if n, err := strconv.Atoi(f[number]); err == nil && strings.HasPrefix(name, "live ") {
			live += n
		}
	}
	counted := func(name string) string { return cmp.Or(s["counter "+name][number], "not counted") }
	return fmt.Sprintf("live objects: %d, charges: %s, refunds: %s, mails: %s", live, counted("charges"),
		counted("refunds"), counted("mails"))
}
