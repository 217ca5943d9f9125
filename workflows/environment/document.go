package environment

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Document is an environment.yaml: parts that are checkpointed and rolled back together.
type Document struct {
	Name  string `yaml:"name" json:"name" jsonschema:"What it is called in commands: small letters, digits and dashes, at most 40."`
	Owner string `yaml:"owner,omitempty" json:"owner,omitempty" jsonschema:"Whose it is."`
	On    string `yaml:"on,omitempty" json:"on,omitempty" jsonschema:"The host whose worker has the parts. Left out: that of the worker which takes the environment first."`
	Unit  string `yaml:"unit,omitempty" json:"unit,omitempty" jsonschema:"The unit in the worker's config that is stopped while the parts are captured or put back. Left out: nothing is stopped, and a checkpoint may be of no one moment."`
	// Quiesce goes with Unit.
	Quiesce Quiesce `yaml:"quiesce,omitempty" json:"quiesce,omitempty" jsonschema:"What is done to the unit while a checkpoint is taken; for a rollback it is always stopped. stop: it is stopped, and started again. pause: a container whose processes are frozen, and go on afterwards; what they had not written yet is not kept. none: it keeps running, as a virtual machine can whose disks are kept, and the parts may be of different moments. Left out: stop."`
	// Healthy is how long the unit may take until it is healthy.
	Healthy   string          `yaml:"healthy,omitempty" json:"healthy,omitempty" jsonschema:"How long the unit may take to be healthy after a rollback. Left out: 30s."`
	Parts     map[string]Part `yaml:"parts" json:"parts" jsonschema:"The parts by name: small letters, digits and dashes, at most 40."`
	Retention Retention       `yaml:"retention,omitempty" json:"retention,omitzero" jsonschema:"Which checkpoints are kept."`
}

// Quiesce is what keeps the parts of a checkpoint of one moment.
type Quiesce string

// What can be done to a unit while its parts are captured.
const (
	StopUnitFor  Quiesce = "stop"
	PauseUnitFor Quiesce = "pause"
	LeaveUnit    Quiesce = "none"
)

var quiesces = []Quiesce{StopUnitFor, PauseUnitFor, LeaveUnit}

// Part is one resource. Exactly one of its kinds is set.
type Part struct {
	Folder string `yaml:"folder,omitempty" json:"folder,omitempty" jsonschema:"A folder, by its absolute path, with all that is in it."`
	Git    string `yaml:"git,omitempty" json:"git,omitempty" jsonschema:"A git repository, by the absolute path of its folder: commit, branches, index, tree and untracked files."`
	// Ignored goes with Git.
	Ignored   bool   `yaml:"ignored,omitempty" json:"ignored,omitempty" jsonschema:"With git: whether files that git ignores are kept and put back as well."`
	Volume    string `yaml:"volume,omitempty" json:"volume,omitempty" jsonschema:"A Docker volume, by its name, with all that is in it."`
	Container string `yaml:"container,omitempty" json:"container,omitempty" jsonschema:"A Docker container, by its name: what has changed in the files of its image. The unit stops it."`
	Postgres  string `yaml:"postgres,omitempty" json:"postgres,omitempty" jsonschema:"A PostgreSQL database, by its name in the worker's config."`
	Redis     string `yaml:"redis,omitempty" json:"redis,omitempty" jsonschema:"A Redis database, by its name in the worker's config: all keys of one logical database."`
	SQLite    string `yaml:"sqlite,omitempty" json:"sqlite,omitempty" jsonschema:"An SQLite database, by the absolute path of its file."`
	Disk      string `yaml:"disk,omitempty" json:"disk,omitempty" jsonschema:"The disk of a virtual machine, by the absolute path of its qcow2 image. The unit stops the machine."`
	// Memory goes with Disk.
	Memory    bool   `yaml:"memory,omitempty" json:"memory,omitempty" jsonschema:"With disk: whether the memory of the machine is kept as well, and all disks that it writes. It goes on from there after a rollback, and is not stopped."`
	Terraform string `yaml:"terraform,omitempty" json:"terraform,omitempty" jsonschema:"A folder with a Terraform configuration, by its absolute path: its files, and what it manages."`
	// On goes with each kind.
	On string `yaml:"on,omitempty" json:"on,omitempty" jsonschema:"The host whose worker has the part. Left out: that of the environment."`
}

// Retention says which checkpoints are kept besides those that are pinned.
type Retention struct {
	Last  int   `yaml:"last,omitempty" json:"last,omitempty" jsonschema:"How many of the newest are kept. Left out: 10."`
	Days  int   `yaml:"days,omitempty" json:"days,omitempty" jsonschema:"For how many days the oldest of each day is kept. Left out: 7."`
	Bytes int64 `yaml:"bytes,omitempty" json:"bytes,omitempty" jsonschema:"How many bytes the parts of all of them have together, at most; the newest stays. Left out: any."`
}

// The defaults of a document.
const (
	defaultLast    = 10
	defaultDays    = 7
	defaultHealthy = 30 * time.Second
)

// WithDefaults replaces zero fields by their defaults.
func (r Retention) WithDefaults() Retention {
	r.Last, r.Days = cmp.Or(r.Last, defaultLast), cmp.Or(r.Days, defaultDays)
	return r
}

// kind is a kind of part: how it is captured and put back.
type kind struct {
	name string
	// of is the name of its resource in a part; empty: it is of another kind.
	of func(Part) string
	// param names its resource for these actions.
	capture, restore, verify, compare, param string
	// isPath says that its resource is an absolute path.
	isPath bool
	// counts is what its comparison counts.
	counts string
	stage  Stage
	with   map[string]any
	// gate is that of the restore: who rolls back has decided.
	gate string
	// hands names an output of the verification that the restore is given.
	hands string
	// readsLater: what is captured has not been read; it is verified once the unit runs again.
	readsLater bool
}

var kinds = []kind{
	keptAsFolder(kind{name: "folder", param: "path", isPath: true, of: func(p Part) string { return p.Folder }}),
	keptAsFolder(kind{name: "git", param: "path", isPath: true, of: func(p Part) string { return p.Git },
		with: map[string]any{"git": true}}),
	keptAsFolder(kind{name: "volume", param: "volume", of: func(p Part) string { return p.Volume }}),
	keptAsFolder(kind{name: "container", param: "container", of: func(p Part) string { return p.Container }}),
	{name: "postgres", param: "database", of: func(p Part) string { return p.Postgres },
		capture: "postgres.checkpoint", restore: "postgres.restore", verify: "postgres.verify", compare: "postgres.compare",
		stage: RestoreDatabases, with: map[string]any{"as": "copy", "read_later": true}, gate: "none", readsLater: true,
		counts: "place"},
	{name: "redis", param: "database", of: func(p Part) string { return p.Redis },
		capture: "redis.checkpoint", restore: "redis.restore", verify: "redis.verify", compare: "redis.compare",
		stage: RestoreDatabases, gate: "none", counts: "key"},
	{name: "sqlite", param: "database", isPath: true, of: func(p Part) string { return p.SQLite },
		capture: "sqlite.checkpoint", restore: "sqlite.restore", verify: "sqlite.verify", compare: "sqlite.compare",
		stage: RestoreDatabases, gate: "none", counts: "place"},
	{name: "disk", param: "disk", isPath: true, of: func(p Part) string { return p.Disk },
		capture: "disk.checkpoint", restore: "disk.restore", verify: "disk.verify", compare: "disk.compare",
		stage: RestoreDisks, gate: "none", counts: "byte"},
	{name: "terraform", param: "dir", isPath: true, of: func(p Part) string { return p.Terraform },
		capture: "terraform.checkpoint", restore: "terraform.restore", verify: "terraform.verify",
		compare: "terraform.compare", stage: RestoreInfrastructure, gate: "none", counts: "place", hands: "accepted"},
}

// keptAsFolder is a kind that the world of folders captures and puts back.
func keptAsFolder(k kind) kind {
	k.capture, k.restore, k.verify, k.compare = "folder.checkpoint", "folder.restore", "folder.verify", "folder.compare"
	k.stage, k.counts = RestoreFiles, "path"
	return k
}

func kindNamed(name string) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })]
}

// IsDatabase reports whether parts of the kind with a name are databases.
func IsDatabase(name string) bool {
	return slices.ContainsFunc(kinds, func(k kind) bool { return k.name == name && k.stage == RestoreDatabases })
}

// Counted is what a comparison of parts of the kind with a name counts.
func Counted(name string) string { return kindNamed(name).counts }

// kindOf is the kind of a part, and the name of its resource.
func (p Part) kindOf() (kind, string) {
	for _, k := range kinds {
		if resource := k.of(p); resource != "" {
			return k, resource
		}
	}
	return kinds[0], ""
}

// Kind is the kind of the part, and Resource the name of what it is.
func (p Part) Kind() string { k, _ := p.kindOf(); return k.name }

// Resource is the path of a folder, or the name of what it is else.
func (p Part) Resource() string { _, r := p.kindOf(); return r }

// partNames are the names of the parts, in their order.
func (d Document) partNames() []string { return slices.Sorted(maps.Keys(d.Parts)) }

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// CheckName refuses what cannot be the name of an environment.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%q must begin with a small letter and have at most 40 of a-z, 0-9 and -", name)
	}
	return nil
}

var typeName = regexp.MustCompile(` (in|into) type \S+| in type \S+`)

// Parse reads an environment.yaml, YAML or JSON. Its error names the file, and each field that is
// wrong.
func Parse(file string, src []byte) (d Document, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(src))
	decoder.KnownFields(true)
	switch err := decoder.Decode(&d); {
	case errors.Is(err, io.EOF):
		return d, fmt.Errorf("%s: it is empty; `starter env init` writes one", file)
	case err != nil:
		if wrong, is := errors.AsType[*yaml.TypeError](err); is {
			return d, fmt.Errorf("%s: %s; known fields: %s", file,
				typeName.ReplaceAllString(strings.Join(wrong.Errors, "; "), ""), knownFields())
		}
		line, message := task.ExplainYAML(src, err)
		return d, fmt.Errorf("%s:%d: %s", file, line, message)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return d, fmt.Errorf("%s: a second document begins; a file holds one environment", file)
	}
	if err := d.Check(); err != nil {
		return d, fmt.Errorf("%s: %w", file, err)
	}
	return d, nil
}

// knownFields lists the fields of a document and of a part.
func knownFields() string {
	list := func(t reflect.Type) (names []string) {
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
		}
		return names
	}
	return fmt.Sprintf("%s; of a part: %s; of retention: %s", strings.Join(list(reflect.TypeFor[Document]()), ", "),
		strings.Join(list(reflect.TypeFor[Part]()), ", "), strings.Join(list(reflect.TypeFor[Retention]()), ", "))
}

// Check is an error that names each field of a document that cannot be meant.
func (d Document) Check() error {
	var problems []error
	bad := func(field, format string, args ...any) {
		problems = append(problems, fmt.Errorf(field+": "+format, args...))
	}
	if err := CheckName(d.Name); err != nil {
		bad("name", "%v", err)
	}
	if d.Healthy != "" {
		if within, err := time.ParseDuration(d.Healthy); err != nil || within <= 0 {
			bad("healthy", "%q must be a time above zero, such as 30s", d.Healthy)
		} else if d.Unit == "" {
			bad("healthy", "it is about a unit; name one with unit:")
		}
	}
	if d.Quiesce != "" && !slices.Contains(quiesces, d.Quiesce) {
		bad("quiesce", "%q must be stop, pause or none", d.Quiesce)
	} else if d.Quiesce != "" && d.Unit == "" {
		bad("quiesce", "it is about a unit; name one with unit:")
	}
	if len(d.Parts) == 0 {
		bad("parts", "name at least one part, such as `code: {git: /srv/app}`")
	}
	resources := map[string]string{}
	for _, name := range d.partNames() {
		field, p := "parts."+name, d.Parts[name]
		if err := CheckName(name); err != nil {
			bad(field, "the name %v", err)
		}
		p.check(field, bad)
		d.checkMemory(field, p, bad)
		if p.Container != "" && d.Unit == "" {
			bad(field+".container", "%s is put back while it is stopped; name the unit that stops it with unit:", p.Container)
		}
		if p.Container != "" && d.isElsewhere(p) {
			bad(field+".on", "the unit is on the host of the environment, and cannot stop a container on %s", p.On)
		}
		if p.Container != "" && d.Quiesce == LeaveUnit {
			bad(field+".container", "%s is kept while it is stopped or paused; leave out quiesce: none", p.Container)
		}
		k, resource := p.kindOf()
		// A folder may be a repository as well.
		what := strings.Join([]string{d.hostOf(p, ""), k.capture, k.param, resource}, " ")
		if other, twice := resources[what]; twice {
			bad(field, "%s is already the part %s", resource, other)
		}
		resources[what] = name
		if outer := d.folderAround(p); outer != "" {
			bad(field+"."+k.name, "%s is in the folder of part %s as well, and cannot be put back by both; keep one of them",
				resource, outer)
		}
	}
	for what, n := range map[string]int64{"last": int64(d.Retention.Last), "days": int64(d.Retention.Days),
		"bytes": d.Retention.Bytes} {
		if n < 0 {
			bad("retention."+what, "%d must not be below 0", n)
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}

// checkMemory refuses parts that cannot be put back while a machine runs.
func (d Document) checkMemory(field string, p Part, bad activities.Bad) {
	switch {
	case p.Memory && p.Disk == "":
		bad(field+".memory", "it says that the memory of a machine is kept, and goes with disk")
	case p.Memory && d.Unit != "" && d.Quiesce != LeaveUnit:
		bad(field+".memory", "the machine runs while it is kept; say so with quiesce: none")
	case !p.Memory && d.keepsMemory():
		bad(field, "%s is put back while nothing runs, and another part has the memory of a machine, which runs on; put it "+
			"into another environment (the other disks of the machine are kept with its memory)", p.Resource())
	}
}

// keepsMemory says that the parts are machines, which run all the time.
func (d Document) keepsMemory() bool {
	for _, p := range d.Parts {
		if p.Memory {
			return true
		}
	}
	return false
}

// Quiesced says what the unit is while parts are captured: stopped or paused; empty where there is none,
// or it keeps running.
func (d Document) Quiesced() string {
	switch {
	case d.Unit == "" || d.Quiesce == LeaveUnit:
		return ""
	case d.Quiesce == PauseUnitFor:
		return "paused"
	}
	return "stopped"
}

// Stops is the unit that is stopped while parts are put back; empty: none is.
func (d Document) Stops() string {
	if d.keepsMemory() {
		return ""
	}
	return d.Unit
}

// folderAround is the part that keeps the files of a part with all else in its folder. A git
// repository leaves alone what it ignores, as it may a database.
func (d Document) folderAround(of Part) string {
	for _, name := range d.partNames() {
		p := d.Parts[name]
		outer, inner := p.Folder+p.Terraform, of.SQLite+of.Disk+of.Terraform
		if p.Ignored || of.Terraform != "" {
			outer += p.Git
		}
		if p.Terraform != "" {
			inner += of.Folder + of.Git
		}
		if outer == "" || inner == "" || p == of || d.hostOf(p, "") != d.hostOf(of, "") {
			continue
		}
		if strings.HasPrefix(inner+"/", outer+"/") {
			return name
		}
	}
	return ""
}

// hostOf is the host of a part of an environment that is at home there.
func (d Document) hostOf(p Part, home string) string { return cmp.Or(p.On, d.On, home) }

// isElsewhere reports whether a part is on another host than the environment.
func (d Document) isElsewhere(p Part) bool { return p.On != "" && p.On != d.On }

// Hosts are the hosts of the parts of an environment that is at home on a host, without that one.
func (d Document) Hosts(home string) (others []string) {
	for _, p := range d.Parts {
		if on := d.hostOf(p, home); on != home && !slices.Contains(others, on) {
			others = append(others, on)
		}
	}
	slices.Sort(others)
	return others
}

func (p Part) check(field string, bad activities.Bad) {
	set := 0
	names := make([]string, len(kinds))
	for i, k := range kinds {
		if names[i] = k.name; k.of(p) != "" {
			set++
		}
	}
	if set != 1 {
		bad(field, "it has %s; give one of %s", activities.CountOf(set, "kind"), strings.Join(names, ", "))
		return
	}
	if k, resource := p.kindOf(); k.isPath && (!path.IsAbs(resource) || path.Clean(resource) != resource) {
		bad(field+"."+k.name, "%q must be an absolute path, without . and ..", resource)
	}
	if p.Ignored && p.Git == "" {
		bad(field+".ignored", "it says what becomes of files that git ignores, and goes with git")
	}
}

// Schema is the JSON Schema of an environment.yaml, for editors.
func Schema() (*jsonschema.Schema, error) {
	s, err := jsonschema.For[Document](nil)
	if err != nil {
		return nil, err
	}
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "Unwind environment"
	s.Description = "Parts that are checkpointed and rolled back together."
	return s, nil
}
