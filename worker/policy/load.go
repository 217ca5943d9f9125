package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/yamlfile"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// Limits on a policy: what its rules say of a change is in the history of the change's task.
const (
	maxRules   = 50
	maxMembers = 50
	maxWhy     = 200 // bytes
)

// document is a policy as it is written.
type document struct {
	Groups map[string][]string `yaml:"groups"`
	Rules  []writtenRule       `yaml:"rules"`
	// Cedar is a file of Cedar policies, relative to the folder of this one. Defaults to none.
	Cedar string `yaml:"cedar"`
	// OPA is a server that is asked as well. Defaults to none.
	OPA      *writtenOPA `yaml:"opa"`
	Examples []Example   `yaml:"examples"`
}

type writtenRule struct {
	Name   string          `yaml:"name"`
	When   string          `yaml:"when"`
	Then   string          `yaml:"then"`
	Why    string          `yaml:"why"`
	From   []writtenDemand `yaml:"from"`
	Within time.Duration   `yaml:"within"`
}

type writtenDemand struct {
	Group   string `yaml:"group"   json:"group"`
	Persons int    `yaml:"persons" json:"persons"`
}

// Load reads the policy of a host. Its error names the line, the field and the value of all that is
// wrong, and the way out.
func Load(file, host string) (*Policy, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var doc document
	places, err := yamlfile.Read(file, src, &doc)
	if err != nil {
		return nil, err
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(src)
	l := loader{file: file, places: places, groups: doc.Groups, env: env}
	p := &Policy{Version: activities.Digest("sha256:" + hex.EncodeToString(sum[:])), Host: host, examples: doc.Examples,
		now: time.Now}
	l.checkGroups()
	if l.has("cedar") {
		if c := l.readCedar(doc.Cedar); c != nil {
			p.engines = append(p.engines, c)
		}
	}
	if doc.OPA != nil {
		p.engines = append(p.engines, l.readOPA(*doc.OPA))
	}
	p.rules = l.readRules(doc.Rules)
	l.checkExamples(p.examples, p)
	return p, errors.Join(l.problems...)
}

// loader checks what stands in a file.
type loader struct {
	file     string
	places   yamlfile.Places
	groups   map[string][]string
	env      *cel.Env
	problems []error
}

// badf says what is wrong with a field, at the line where it stands, or where the next one around
// it does.
func (l *loader) badf(field, format string, args ...any) {
	at := field
	for l.places[at].Line == 0 && at != "" {
		at = at[:max(0, strings.LastIndexAny(at, ".["))]
	}
	l.problems = append(l.problems,
		fmt.Errorf("%s:%d: %s: "+format, append([]any{l.file, max(1, l.places[at].Line), field}, args...)...))
}

func (l *loader) has(field string) bool { return l.places[field].Line > 0 }

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

const nameHelp = "give it letters, digits, dots, dashes and underscores, at most 63"

func (l *loader) checkGroups() {
	for _, name := range slices.Sorted(maps.Keys(l.groups)) {
		field, members := "groups."+name, l.groups[name]
		switch {
		case !nameForm.MatchString(name):
			l.badf(field, "%q is no name; %s", name, nameHelp)
		case len(members) == 0:
			l.badf(field, "nobody is in it, so nobody could approve; name its persons, as in [ann, bob]")
		case len(members) > maxMembers:
			l.badf(field, "it has %s; at most %d fit", activities.CountOf(len(members), "person"), maxMembers)
		}
		for i, member := range members {
			item := fmt.Sprintf("%s[%d]", field, i)
			if strings.TrimSpace(member) != member || member == "" {
				l.badf(item, "%q is no person's name; write it as in the gate's who, without spaces around it", member)
			}
			first := slices.IndexFunc(members, func(m string) bool { return activities.IsSamePerson(m, member) })
			if first < i {
				l.badf(item, "%q is the same person as %q: what stands before an @ names a person; name each once", member,
					members[first])
			}
		}
	}
}

func (l *loader) readRules(written []writtenRule) (rules []rule) {
	if len(written) == 0 && !l.has("cedar") && !l.has("opa") {
		l.badf("rules", "there is none, so it would decide nothing; write rules, or leave policy out of the config")
	}
	if len(written) > maxRules {
		l.badf("rules", "there are %d; at most %d fit", len(written), maxRules)
	}
	first := map[string]int{}
	for i, w := range written {
		field := fmt.Sprintf("rules[%d]", i)
		switch earlier, twice := first[w.Name]; {
		case w.Name == "":
			l.badf(field+".name", "it is missing; name the rule, for gates and reports say which one has decided")
		case !nameForm.MatchString(w.Name):
			l.badf(field+".name", "%q is no name; %s", w.Name, nameHelp)
		case twice:
			l.badf(field+".name", "%q is the name of rules[%d] as well; give it another", w.Name, earlier)
		default:
			first[w.Name] = i
		}
		rules = append(rules, l.readRule(field, w))
	}
	return rules
}

func (l *loader) readRule(field string, w writtenRule) rule {
	r := rule{name: w.Name, verdict: activities.Verdict(w.Then), why: w.Why, within: w.Within}
	if strings.TrimSpace(w.When) == "" {
		l.badf(field+".when", "it is missing; write a condition, as in change.risk == \"high\", or \"true\" for every change")
	} else if program, err := compile(l.env, w.When); err != nil {
		l.badf(field+".when", "%q: %v; a rule can look at %s", w.When, err, fieldsToSee)
	} else {
		r.program = program
	}
	if !slices.Contains(activities.Verdicts, r.verdict) {
		l.badf(field+".then", "%q must be allow, ask or deny", w.Then)
	}
	if len(w.Why) > maxWhy {
		l.badf(field+".why", "it has %s, and at most %d are shown; make it shorter", activities.CountOf(len(w.Why), "byte"),
			maxWhy)
	}
	if r.verdict != activities.Asked {
		for _, only := range []string{".from", ".within"} {
			if l.has(field + only) {
				l.badf(field+only, "only a rule that asks has it; write then: ask, or leave it out")
			}
		}
		return r
	}
	if l.has(field+".within") && w.Within < time.Second {
		l.badf(field+".within", "%s is too short; give at least 1s, as in 4h", w.Within)
	}
	r.demands = l.readDemands(field+".from", w.From)
	return r
}

// readDemands checks whom a rule asks: there must be enough persons, each for one group.
func (l *loader) readDemands(field string, from []writtenDemand) (demands []activities.Demand) {
	if l.has(field) && len(from) == 0 {
		l.badf(field, "it names nobody; name a group, as in [{group: dba}], or leave it out for one person, whoever it is")
	}
	before := len(l.problems)
	for i, f := range from {
		item := fmt.Sprintf("%s[%d]", field, i)
		members, isKnown := l.groups[f.Group]
		if f.Group == "" || !isKnown {
			l.badf(item+".group", "%q is none of groups; %s", f.Group, l.suggestGroup(f.Group))
			continue
		}
		if slices.ContainsFunc(demands, func(d activities.Demand) bool { return d.Group == f.Group }) {
			l.badf(item+".group", "%q stands here twice; give persons the sum", f.Group)
		}
		if l.has(item+".persons") && f.Persons < 1 {
			l.badf(item+".persons", "%d is too few; give how many persons must approve, at least 1", f.Persons)
		}
		demands = append(demands, activities.Demand{Group: f.Group, Persons: max(1, f.Persons), Of: members})
	}
	if len(l.problems) == before && len(demands) > 0 {
		l.checkEnough(field, demands)
	}
	return demands
}

// checkEnough refuses demands that not even everybody could meet together.
func (l *loader) checkEnough(field string, demands []activities.Demand) {
	var all []activities.Assent
	for _, d := range demands {
		for _, member := range d.Of {
			all = append(all, activities.Assent{Who: member})
		}
	}
	everybody := activities.Ruling{Verdict: activities.Asked, Demands: demands}
	if waits := everybody.Waits("", all); waits != "" {
		l.badf(field, "if all approve there would be %s, for each person counts once; ask fewer, or put more into a group",
			waits)
	}
}

func (l *loader) suggestGroup(name string) string {
	known := slices.Sorted(maps.Keys(l.groups))
	if fix := task.SuggestNearest(name, known); fix != "" {
		return fix
	}
	if len(known) == 0 {
		return "add it, as in groups: {dba: [ann, bob]}"
	}
	return "known are " + strings.Join(known, ", ")
}
