package policy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/workflows/task"
)

// The annotations of a Cedar policy that mean something here.
const (
	annotationID      = "id"
	annotationVerdict = "verdict"
	annotationWhy     = "why"
)

// noPermit is the name of the rule that Cedar has without being told: what nothing permits is
// denied.
const noPermit = "no-permit"

// everyPolicy is the name of what asks because none could be evaluated.
const everyPolicy = "every-policy"

// cedarEngine decides by policies in Cedar. Each forbid that matches denies, or asks; of each
// resource a permit must match.
type cedarEngine struct {
	file    string
	version string
	// text is what its policies are in JSON, where a name is written in one way only.
	text    string
	permits cedarPolicies
	forbids cedarPolicies
}

// cedarPolicy is a policy of a file. The verdict of a permit is empty where it only permits.
type cedarPolicy struct {
	*cedar.Policy

	id      cedar.PolicyID
	verdict activities.Verdict
	why     string
}

type cedarPolicies []cedarPolicy

// All implements cedar.PolicyIterator, in the order of the file.
func (all cedarPolicies) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, p := range all {
			if !yield(p.id, p.Policy) {
				return
			}
		}
	}
}

func (all cedarPolicies) find(id cedar.PolicyID) cedarPolicy {
	return all[slices.IndexFunc(all, func(p cedarPolicy) bool { return p.id == id })]
}

// readCedar reads a file of Cedar policies; nil if it has none.
func (l *loader) readCedar(name string) *cedarEngine {
	if name == "" {
		l.badf("cedar", "it is empty; name a file of Cedar policies, relative to this one")
		return nil
	}
	file := name
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(l.file), file)
	}
	src, err := os.ReadFile(file)
	if err != nil {
		l.badf("cedar", "%v; name a file of Cedar policies, relative to this one", err)
		return nil
	}
	policies, err := cedar.NewPolicyListFromBytes(file, src)
	if err != nil {
		l.badf("cedar", "%s", strings.ReplaceAll(strings.TrimPrefix(err.Error(), "parser error: "), "<input>", file))
		return nil
	}
	if len(policies) == 0 {
		l.badf("cedar", "%s has no policy, so it would deny everything; write one, or leave cedar out", file)
	}
	sum := sha256.Sum256(src)
	version := activities.Digest("sha256:" + hex.EncodeToString(sum[:])).Short()
	c := &cedarEngine{file: filepath.Base(file), version: version}
	seen := map[cedar.PolicyID]bool{noPermit: true, everyPolicy: true}
	for i, p := range policies {
		read := cedarPolicy{Policy: p, id: cedar.PolicyID(fmt.Sprintf("policy%d", i))}
		text, problems := checkCedar(p)
		c.text += text
		for _, problem := range append(read.annotate(), problems...) {
			l.badf("cedar", "%s:%d:%d: %s", file, p.Position().Line, p.Position().Column, problem)
		}
		if seen[read.id] {
			l.badf("cedar", "%s:%d: @id(%q) is the name of another policy; give it one of its own", file,
				p.Position().Line, read.id)
		}
		seen[read.id] = true
		if p.Effect() == cedar.Permit {
			c.permits = append(c.permits, read)
		} else {
			c.forbids = append(c.forbids, read)
		}
	}
	return c
}

// annotate reads the annotations of a policy, and says what is wrong with them. All others are left
// alone: they mean something elsewhere.
func (p *cedarPolicy) annotate() (problems []string) {
	known := []string{annotationID, annotationVerdict, annotationWhy}
	verdicts := []activities.Verdict{"", activities.Allows, activities.Asked}
	if p.Effect() == cedar.Forbid {
		p.verdict, verdicts = activities.Denies, []activities.Verdict{activities.Asked, activities.Denies}
	}
	for name, value := range p.Annotations() {
		switch text := string(value); string(name) {
		case annotationID:
			if p.id = cedar.PolicyID(text); !nameForm.MatchString(text) {
				problems = append(problems, fmt.Sprintf("@id(%q) is no name; %s", text, nameHelp))
			}
		case annotationVerdict:
			if p.verdict = activities.Verdict(text); text == "" || !slices.Contains(verdicts, p.verdict) {
				problems = append(problems, fmt.Sprintf("@verdict(%q) is not known; a forbid has ask or deny "+
					"(without it, deny), a permit ask or allow (without it, neither)", text))
			}
		case annotationWhy:
			if p.why = text; len(text) > maxWhy {
				problems = append(problems, fmt.Sprintf("@why has %s, and at most %d are shown; make it shorter",
					activities.CountOf(len(text), "byte"), maxWhy))
			}
		default:
			if fix := task.SuggestNearest(string(name), known[1:]); fix != "" {
				problems = append(problems, fmt.Sprintf("@%s means nothing here; %s", name, fix))
			}
		}
	}
	return problems
}

func (c *cedarEngine) String() string { return "cedar " + c.file + "@" + c.version }

func (c *cedarEngine) rules() []string {
	names := []string{"cedar:" + noPermit, "cedar:" + everyPolicy}
	for _, p := range append(slices.Clone(c.permits), c.forbids...) {
		names = append(names, "cedar:"+string(p.id))
	}
	return names
}

// sees implements engine. The resources are the keys of the change; else what has an input's name
// in it may look at it.
func (c *cedarEngine) sees(input string) bool {
	name := input[strings.LastIndex(input, ".")+1:]
	return input == "change" || input == "change.keys" || strings.Contains(c.text, name)
}

func (c *cedarEngine) asks(why string) finding {
	return c.finding(everyPolicy, activities.Asked, shown(why))
}

func (c *cedarEngine) finding(id cedar.PolicyID, verdict activities.Verdict, why string) finding {
	return finding{verdict: verdict, rule: activities.RuleMatch{Name: "cedar:" + string(id), Version: c.version, Why: why}}
}

// The types of the entities that a policy can name.
const (
	typeAgent    cedar.EntityType = "Agent"
	typeAction   cedar.EntityType = "Action"
	typeResource cedar.EntityType = "Resource"
)

// unknownKey is the resource of a change that names none.
const unknownKey = "unknown"

// decide implements engine. A change is allowed if every resource is.
func (c *cedarEngine) decide(_ context.Context, in inputs) (all []finding) {
	seen, err := in.tree(c.sees("history"))
	if err != nil {
		return []finding{c.asks("it could not be evaluated: " + oneLine(err))}
	}
	request := cedar.Request{
		Principal: cedar.NewEntityUID(typeAgent, cedar.String(in.task.Agent)),
		Action:    cedar.NewEntityUID(typeAction, cedar.String(in.step.Action)),
		Context:   cedarValue(seen).(cedar.Record),
	}
	keys := in.change.Keys
	if len(keys) == 0 {
		keys = []string{unknownKey}
	}
	isAllowed := true
	for _, key := range keys {
		request.Resource = cedar.NewEntityUID(typeResource, cedar.String(key))
		found := c.decideOn(request)
		isAllowed = isAllowed && slices.ContainsFunc(found, finding.allows)
		for _, f := range found {
			if !slices.ContainsFunc(all, func(o finding) bool { return o.rule.Name == f.rule.Name && o.verdict == f.verdict }) {
				all = append(all, f)
			}
		}
	}
	if !isAllowed {
		all = slices.DeleteFunc(all, finding.allows)
	}
	slices.SortStableFunc(all, func(a, b finding) int { // what counts is not cut off
		return slices.Index(activities.Verdicts, b.verdict) - slices.Index(activities.Verdicts, a.verdict)
	})
	return all[:min(len(all), maxRules)]
}

func (f finding) allows() bool { return f.verdict == activities.Allows }

// decideOn is what it finds about one resource. Cedar itself skips a policy that cannot be
// evaluated, also one that forbids: here it asks.
func (c *cedarEngine) decideOn(request cedar.Request) (all []finding) {
	_, permitted := cedar.Authorize(c.permits, entities{}, request)
	_, forbidden := cedar.Authorize(c.forbids, entities{}, request)
	for _, e := range append(forbidden.Errors, permitted.Errors...) {
		all = append(all, c.finding(e.PolicyID, activities.Asked, shown("it could not be evaluated: "+e.Message)))
	}
	failed := all
	for _, r := range forbidden.Reasons {
		p := c.forbids.find(r.PolicyID)
		all = append(all, c.finding(p.id, p.verdict, p.why))
	}
	if len(permitted.Reasons) == 0 {
		whys := []string{"nothing permits it for " + request.Resource.String()}
		for _, f := range failed {
			whys = append(whys, f.rule.Name+": "+f.rule.Why)
		}
		return append(all, c.finding(noPermit, activities.Denies, shown(strings.Join(whys, "; "))))
	}
	lenient := []activities.Verdict{activities.Allows, "", activities.Asked}
	best := len(lenient) - 1
	for _, r := range permitted.Reasons {
		best = min(best, slices.Index(lenient, c.permits.find(r.PolicyID).verdict))
	}
	for _, r := range permitted.Reasons {
		if p := c.permits.find(r.PolicyID); p.verdict == lenient[best] && p.verdict != "" {
			all = append(all, c.finding(p.id, p.verdict, p.why))
		}
	}
	return all
}

// entities are those that policies can name: an action is in its world, a resource in the folders
// above it.
type entities struct{}

// Get implements cedar.EntityGetter.
func (entities) Get(uid cedar.EntityUID) (cedar.Entity, bool) {
	id, parent := string(uid.ID), ""
	switch uid.Type {
	case typeAction:
		parent = activities.WorldOf(id)
	case typeResource:
		parent = folderOf(id)
	}
	e := cedar.Entity{UID: uid}
	if uid.Type == typeResource {
		e.Attributes = cedar.NewRecord(cedar.RecordMap{"key": uid.ID})
	}
	if parent != "" && parent != id {
		e.Parents = cedar.NewEntityUIDSet(cedar.NewEntityUID(uid.Type, cedar.String(parent)))
	}
	return e, true
}

// folderOf is the key that a key is below: of "file:/srv/site" it is "file:/srv", and of that
// "file:/".
func folderOf(key string) string {
	i := strings.LastIndex(strings.TrimSuffix(key, "/"), "/")
	if i < 0 {
		return ""
	}
	if strings.HasSuffix(key[:i], ":") {
		return key[:i+1]
	}
	return key[:i]
}

// cedarValue is a value of the tree in Cedar; nil for null, which Cedar does not have.
func cedarValue(value any) cedar.Value {
	switch v := value.(type) {
	case bool:
		return cedar.Boolean(v)
	case int64:
		return cedar.Long(v)
	case float64:
		return cedarNumber(v)
	case string:
		return cedar.String(v)
	case time.Time:
		return cedar.NewDatetime(v)
	case time.Duration:
		return cedar.NewDuration(v)
	case []any:
		var items []cedar.Value
		for _, item := range v {
			if item := cedarValue(item); item != nil {
				items = append(items, item)
			}
		}
		return cedar.NewSet(items...)
	case map[string]any:
		fields := cedar.RecordMap{}
		for name, of := range v {
			if of := cedarValue(of); of != nil {
				fields[cedar.String(name)] = of
			}
		}
		return cedar.NewRecord(fields)
	default:
		return nil
	}
}

// cedarNumber is a Long if the number is whole, however it is written: 100.0 does not get past what
// forbids 100. One that Cedar's decimals cannot hold exactly is a text, so that it is no less or more
// than another, and asks.
func cedarNumber(number float64) cedar.Value {
	if number == math.Trunc(number) && math.Abs(number) < 1<<63 {
		return cedar.Long(int64(number))
	}
	text := strconv.FormatFloat(number, 'f', -1, 64)
	if exact, err := types.ParseDecimal(text); err == nil {
		return exact
	}
	return cedar.String(text)
}
