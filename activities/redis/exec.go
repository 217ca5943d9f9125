package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/keyvalue"
	"github.com/seed-62bf7108/unwind/activities/point"
)

// execAction is redis.exec.
type execAction struct{ *world }

func (a *execAction) Spec() activities.Spec { return execSpec }

func reach(what string) { point.Reach("redis.exec:" + what) }

// forward is a connection for a forward, with what it is to do.
type forward struct {
	*connection

	commands []command
	touched  touched
}

func (a *execAction) openForward(ctx context.Context, e activities.Entry, s activities.Step) (*forward, error) {
	p, err := readParams(s.With)
	if err != nil {
		return nil, err
	}
	commands, err := p.list()
	if err != nil {
		return nil, err
	}
	c, err := a.open(ctx, e)
	if err != nil {
		return nil, err
	}
	f := &forward{connection: c, commands: commands}
	if f.touched, err = c.findKeys(commands); err != nil {
		c.end()
		return nil, err
	}
	return f, nil
}

// Plan runs the commands on copies of the keys.
func (a *execAction) Plan(ctx context.Context, e activities.Entry, s activities.Step) (activities.Change, error) {
	if err := keyvalue.CheckPlaces(kind, s.Checks); err != nil {
		return activities.Change{}, err
	}
	f, err := a.openForward(ctx, e, s)
	if err != nil {
		return activities.Change{}, err
	}
	defer f.end()
	changes, err := f.rehearse()
	if err != nil {
		return activities.Change{}, err
	}
	reach("planned")
	change, err := f.weigh(changes)
	if err != nil {
		return activities.Change{}, err
	}
	change.Summary, change.Diff, change.Undo = f.name+": "+summarize(changes), f.showKeys(changes), execSpec.Undo
	change.Keys, change.Digest, change.Counts = []string{keyPrefix + f.name}, f.digest(changes),
		keyvalue.CountsOf(countChanges(changes))
	change.Facts = append(change.Facts,
		"it changes "+activities.CountOf(len(changes), "key")+": "+keyvalue.JoinSome(f.touched.changed))
	change.Facts = append(change.Facts, f.persistence()...)
	return change, nil
}

// weigh returns what says whether a person must approve the change.
func (f *forward) weigh(changes []keyChange) (activities.Change, error) {
	n := countChanges(changes)
	touched := int64(n[1] + n[2])
	w := activities.Change{Strategy: activities.Transaction, Risk: activities.Medium, Unchanged: n == [3]int{}}
	if !activities.MostOf(touched, touched) {
		return w, nil
	}
	size, err := f.client.DBSize(f.ctx).Result()
	if err != nil {
		return w, f.explain(err)
	}
	if activities.MostOf(touched, size-1) { // without the journal
		w.Risk, w.Facts = activities.High, []string{"more than half of the keys of the database go or change"}
	}
	return w, nil
}

// mayAsk reports whether a person may have to approve the change; if not, there is no need to see
// it before it is made.
func (f *forward) mayAsk() bool {
	most := int64(len(f.touched.changed))
	return activities.MostOf(most, most) || activities.Judge(f.ctx, activities.Change{Risk: activities.Medium}) != nil
}

// rehearse returns the keys that the commands change, as they are and as the commands would leave
// them.
func (f *forward) rehearse() ([]keyChange, error) {
	args := append([]any{f.id, len(f.touched.changed), maxBytes, maxElements, f.number}, flatten(f.commands)...)
	a, err := f.run(planScript, f.touched.all(), args...)
	if err != nil {
		return nil, err
	}
	switch a.text("happened") {
	case "unfit":
		return nil, f.unfit(a)
	case "failed":
		return nil, f.failed(f.commands, a)
	}
	var changes []keyChange
	for _, each := range a.parts("keys") {
		changes = append(changes, readKeyChange(each))
	}
	return changes, nil
}

// digest covers the commands, and the keys that they change as these were.
func (f *forward) digest(changes []keyChange) activities.Digest {
	parts := [][]byte{[]byte(f.name)}
	for _, each := range f.commands {
		raw, err := json.Marshal(each.args)
		if err != nil {
			panic(err) // texts
		}
		parts = append(parts, raw)
	}
	for _, k := range changes {
		parts = append(parts, []byte(k.key), []byte(k.before.sum), []byte(k.before.expires))
	}
	return activities.DigestOf(parts...)
}

// Apply runs the commands together with their record.
func (a *execAction) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	if err := keyvalue.CheckPlaces(kind, s.Checks); err != nil {
		return activities.Result{}, err
	}
	f, err := a.openForward(ctx, e, s)
	if err != nil {
		return activities.Result{}, err
	}
	defer f.end()
	private := ""
	if activities.HoldsSecret(ctx, s.With) {
		private = "1"
	}
	for {
		result, err := f.applyOnce(ctx, e, private, want)
		if errors.Is(err, errMoved) {
			continue // the next look decides; the call is bounded
		}
		if err != nil {
			return activities.Result{}, err
		}
		reach("applied")
		return result, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, f.scene(result))
	}
}

// errMoved is a change by somebody else between looking and acting.
var errMoved = errors.New("a key was changed meanwhile")

func (f *forward) applyOnce(ctx context.Context, e activities.Entry, private string,
	want activities.Digest) (activities.Result, error) {
	made, err := owned(ctx, e)
	if err != nil {
		return activities.Result{}, err
	}
	expected, err := f.expect(e, want)
	if err != nil {
		return activities.Result{}, err
	}
	reach("looked")
	args := append([]any{f.id}, made...)
	args = append(args, private, len(f.touched.changed), maxBytes, maxElements, len(expected)/2)
	args = append(append(args, expected...), flatten(f.commands)...)
	a, err := f.run(applyScript, f.touched.all(), args...)
	if err != nil {
		return activities.Result{}, err
	}
	switch a.text("happened") {
	case "applied":
		return f.result(a), nil
	case "fenced":
		return activities.Result{}, activities.Errorf(activities.Fenced, "token %s is %s: this forward came too late",
			e.Token, a.text("state"))
	case "damaged":
		return activities.Result{}, f.damaged(e, a.text("what"))
	case "moved":
		return activities.Result{}, errMoved
	case "unfit":
		return activities.Result{}, f.unfit(a)
	}
	return activities.Result{}, f.failed(f.commands, a)
}

// expect returns the digest and the expiry of each key as it was approved or judged, for a step
// that has not acted yet.
func (f *forward) expect(e activities.Entry, want activities.Digest) ([]any, error) {
	if want == "" && !f.mayAsk() {
		return nil, nil
	}
	seen, err := f.see(e)
	if err != nil || seen.state != "" {
		return nil, err // the script finds the record
	}
	changes, err := f.rehearse()
	if err != nil {
		return nil, err
	}
	weighed, err := f.weigh(changes)
	if err == nil {
		err = activities.Judge(f.ctx, weighed)
	}
	if err != nil {
		return nil, err
	}
	if got := f.digest(changes); want != "" && got != want {
		return nil, activities.Errorf(activities.StaleApproval,
			"the change is not the one that was approved: now it is %s (%s), approved was %s", summarize(changes), got.Short(),
			want.Short())
	}
	var expected []any
	for _, k := range changes {
		expected = append(expected, k.before.sum, k.before.expires)
	}
	return expected, nil
}

// result is what a step has done, as its record says.
func (f *forward) result(a answer) activities.Result {
	var came, went, changed int
	_, _ = fmt.Sscan(a.text("counts"), &came, &went, &changed) // written by the script
	return activities.Result{
		Summary: fmt.Sprintf("%s: %s", f.name, keyvalue.DescribeChanges([3]int{came, went, changed})),
		Outputs: map[string]any{"replies": plain(a["replies"]), "changed": came + went + changed},
		Notes:   f.persistence(),
	}
}

// plain makes a reply one that JSON can hold.
func plain(v any) any {
	switch v := v.(type) {
	case []any:
		all := make([]any, len(v))
		for i, each := range v {
			all[i] = plain(each)
		}
		return all
	case string:
		return strings.ToValidUTF8(v, "\uFFFD")
	}
	return v
}
