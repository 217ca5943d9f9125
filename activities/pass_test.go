package activities_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"

	"github.com/seed-62bf7108/unwind/activities"
)

// valve is an action whose target may change between its plan and its forward, and which keeps its
// record in memory.
type valve struct {
	echo
	target  string // what a plan sees
	later   string // what a forward sees, if not the same
	risk    activities.Risk
	fails   error // after the record was made
	record  bool
	applied int
	planned int
	want    activities.Digest
}

func (v *valve) Spec() activities.Spec { return activities.Spec{Name: "echo.say"} }

func (v *valve) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	v.planned++
	return activities.Change{Summary: "say " + v.revealSecret(s), Risk: v.risk, Digest: activities.DigestOf([]byte(v.target))}, nil
}

func (v *valve) Apply(ctx context.Context, _ activities.Entry, _ activities.Step, want activities.Digest) (activities.Result,
	error) {
	v.want = want
	if v.record {
		v.applied++
		return activities.Result{Summary: "done"}, nil
	}
	now := v.target
	if v.later != "" {
		now = v.later
	}
	if want != "" && want != activities.DigestOf([]byte(now)) {
		return activities.Result{}, activities.Errorf(activities.StaleApproval, "it is another by now")
	}
	if err := activities.Judge(ctx, activities.Change{Risk: v.risk}); err != nil {
		return activities.Result{}, err
	}
	v.record = true
	if v.fails != nil {
		return activities.Result{}, v.fails
	}
	v.applied++
	return activities.Result{Summary: "done"}, nil
}

func (v *valve) Undo(context.Context, activities.Entry, activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Restored}, nil
}

func (v *valve) Release(context.Context, activities.Entry) error { return nil }

// judges are rules that return what a test says, and keep what they were asked.
type judges struct {
	ruling *activities.Ruling
	asked  []activities.Case
	// histories are what the rules could see of it.
	histories []activities.History
}

func (j *judges) Judge(_ context.Context, c activities.Case) *activities.Ruling {
	h, err := c.History()
	if err != nil {
		panic(err)
	}
	j.asked, j.histories = append(j.asked, c), append(j.histories, h)
	return j.ruling
}

// kept are passes in memory.
type kept map[string]activities.Pass

func (k kept) Lock() {}

func (k kept) Unlock() {}

func (k kept) History(task string) (h activities.History, err error) {
	for _, p := range k {
		if p.Task == task {
			h.Steps++
			h.Removed += p.Removed
		}
	}
	return h, nil
}

func (k kept) Find(token string) (activities.Pass, bool, error) {
	p, isThere := k[token]
	return p, isThere, nil
}

func (k kept) Keep(token string, p activities.Pass) error {
	k[token] = p
	return nil
}

func (k kept) Forget(token string) error {
	delete(k, token)
	return nil
}

func rulingOf(v activities.Verdict, demands ...activities.Demand) *activities.Ruling {
	return &activities.Ruling{Verdict: v, Rules: []activities.RuleMatch{{Name: "r", Why: "because"}},
		Version: activities.DigestOf([]byte("policy")), Demands: demands}
}

func TestAForwardIsJudgedAsItActsWhateverItWasGiven(t *testing.T) {
	planned := activities.DigestOf([]byte("t"))
	both := rulingOf(activities.Asked, dba, activities.Demand{Group: "sre", Persons: 1, Of: []string{"cy"}})
	for name, c := range map[string]struct {
		ruling *activities.Ruling
		change func(*activities.Forward)
		want   activities.ErrorType // empty if it acts
		says   string
	}{
		"no rule matches, low":           {nil, nil, "", ""},
		"allowed":                        {rulingOf(activities.Allows), nil, "", ""},
		"denied":                         {rulingOf(activities.Denies), nil, activities.Denied, "this worker's policy denies the change: rules r@"},
		"denied though approved":         {rulingOf(activities.Denies), func(f *activities.Forward) { f.Consent, f.Want = activities.Approved, planned }, activities.Denied, "(because); nothing was touched"},
		"asked, and nobody was":          {rulingOf(activities.Asked, anybody), nil, activities.Asks, "nobody has approved this change: the worker's policy asks: rules r@"},
		"asked, and waived by the file":  {rulingOf(activities.Asked, anybody), func(f *activities.Forward) { f.Consent = activities.Waived }, activities.Asks, ""},
		"a consent without its change":   {rulingOf(activities.Asked, anybody), func(f *activities.Forward) { f.Consent, f.Assents = activities.Approved, assents("ann") }, activities.Asks, ""},
		"a forged consent without names": {both, func(f *activities.Forward) { f.Consent, f.Want = activities.Approved, planned }, activities.StaleApproval, "0 of 2: still one of dba (ann, bob), and one of sre (cy)"},
		"names outside of the groups": {both, func(f *activities.Forward) {
			f.Consent, f.Want, f.Assents = activities.Approved, planned, assents("eve", "dan")
		}, activities.StaleApproval, "0 of 2"},
		"one of two": {both, func(f *activities.Forward) {
			f.Consent, f.Want, f.Assents = activities.Approved, planned, assents("ann")
		}, activities.StaleApproval, "1 of 2"},
		"one person twice": {both, func(f *activities.Forward) {
			f.Consent, f.Want, f.Assents = activities.Approved, planned, assents("ann", "ann@x")
		}, activities.StaleApproval, "1 of 2"},
		"the agent": {rulingOf(activities.Asked, anybody), func(f *activities.Forward) {
			f.Consent, f.Want, f.Assents, f.Agent = activities.Approved, planned, assents("bot"), "bot"
		}, activities.StaleApproval, "0 of 1"},
		"both": {both, func(f *activities.Forward) {
			f.Consent, f.Want, f.Assents = activities.Approved, planned, assents("cy", "ann")
		}, "", ""},
		"both, of another change": {both, func(f *activities.Forward) {
			f.Consent, f.Want, f.Assents = activities.Approved, activities.DigestOf(nil), assents("cy", "ann")
		}, activities.StaleApproval, "is not what was approved"},
		"allowed, but planned as another": {rulingOf(activities.Allows), func(f *activities.Forward) { f.Want = activities.DigestOf(nil) }, activities.StaleApproval, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v, passes := &valve{target: "t", risk: activities.Low}, kept{}
			f := forwardOfThisRun(`{}`)
			if c.change != nil {
				c.change(&f)
			}
			env := newEnvironment(v, func(h *activities.Host) { h.Rules, h.Passes = &judges{ruling: c.ruling}, passes })
			_, err := env.ExecuteActivity("echo.say", f)
			require.Equal(t, 1, v.planned)
			if c.want == "" {
				require.NoError(t, err)
				require.Equal(t, planned, v.want, "it makes what was judged, and nothing else")
				require.Equal(t, kept{"t": {Action: "echo.say", Task: "default-test-workflow-id", Change: planned, Ruling: c.ruling}}, passes)
				return
			}
			app := applicationError(t, err)
			require.Equal(t, string(c.want), app.Type())
			require.True(t, app.NonRetryable())
			require.Contains(t, app.Message(), c.says)
			require.Zero(t, v.applied)
			require.Empty(t, v.want, "the action was not called")
			require.Empty(t, passes)
		})
	}
}

// High risk asks by itself, unless a rule allows it: the action hears of that.
func TestAnAllowedChangeOfHighRiskActs(t *testing.T) {
	for ruling, acts := range map[*activities.Ruling]bool{nil: false, rulingOf(activities.Allows): true} {
		v, passes := &valve{target: "t", risk: activities.High}, kept{}
		env := newEnvironment(v, func(h *activities.Host) { h.Rules, h.Passes = &judges{ruling: ruling}, passes })
		got, err := env.ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
		if acts {
			var r activities.Result
			require.NoError(t, err)
			require.NoError(t, got.Get(&r))
			require.Equal(t, []string{"nobody was asked though its risk is high: " + ruling.Describe()}, r.Notes)
			continue
		}
		require.Equal(t, string(activities.Asks), applicationError(t, err).Type())
		require.Empty(t, passes, "what did not act is judged again")
	}
}

func TestAPlanSaysWhatTheRulesDecide(t *testing.T) {
	j := &judges{ruling: rulingOf(activities.Asked, dba)}
	env := newEnvironment(&valve{target: "t", risk: activities.Low}, func(h *activities.Host) { h.Rules, h.Passes = j, kept{} })
	got, err := env.ExecuteActivity("echo.say.plan", forwardOfThisRun(withSecret))
	require.NoError(t, err)
	var c activities.Change
	require.NoError(t, got.Get(&c))
	require.Equal(t, j.ruling, c.Policy)
	require.Len(t, j.asked, 1)
	require.JSONEq(t, withSecret, string(j.asked[0].Step.With), "rules see the reference")
	require.Equal(t, "say "+activities.Mask, j.asked[0].Change.Summary)
	require.Equal(t, "default-test-workflow-id", j.asked[0].Task)
	raw, err := json.Marshal([]any{j.asked[0].Step, j.asked[0].Change})
	require.NoError(t, err)
	require.NotContains(t, string(raw), "horse")

	j.ruling = rulingOf(activities.Denies)
	_, err = env.ExecuteActivity("echo.say.plan", forwardOfThisRun(`{}`))
	require.Equal(t, string(activities.Denied), applicationError(t, err).Type())
}

// What an earlier attempt was let do is finished, whatever the rules have become.
func TestAnAttemptThatFollowsIsNotJudgedAgain(t *testing.T) {
	v, passes := &valve{target: "t", risk: activities.High, fails: errors.New("connection lost")}, kept{}
	j := &judges{ruling: rulingOf(activities.Allows)}
	env := newEnvironment(v, func(h *activities.Host) { h.Rules, h.Passes = j, passes })
	_, err := env.ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
	require.ErrorContains(t, err, "connection lost")
	j.ruling, v.target = rulingOf(activities.Denies), "as the first attempt left it"
	_, err = env.ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
	require.NoError(t, err)
	require.Len(t, j.asked, 1)
	require.Equal(t, activities.DigestOf([]byte("t")), v.want)

	_, err = env.ExecuteActivity("echo.say.undo", activities.Backward{Entry: forwardOfThisRun(`{}`).Entry})
	require.NoError(t, err)
	require.Empty(t, passes, "an undone step needs none")
	require.NoError(t, passes.Keep("t", activities.Pass{}))
	_, err = env.ExecuteActivity("echo.say.release", forwardOfThisRun(`{}`).Entry)
	require.NoError(t, err)
	require.Empty(t, passes, "a released one neither")
}

// deleting is a valve whose plan deletes rows, each call those of its own.
type deleting struct{ *valve }

func (deleting) Plan(context.Context, activities.Entry, activities.Step) (activities.Change, error) {
	return activities.Change{Risk: activities.Low, Digest: activities.DigestOf([]byte("t")),
		Counts: []activities.Count{{Of: "a", Removed: 30}, {Of: "b", Removed: 4}}}, nil
}

func (deleting) Apply(context.Context, activities.Entry, activities.Step, activities.Digest) (activities.Result, error) {
	return activities.Result{}, nil
}

// Rules see what the task was let do before, and the present attempt is no part of that.
func TestRulesSeeWhatTheTaskHasDoneBefore(t *testing.T) {
	j, passes := &judges{}, kept{"x": {Task: "another", Removed: 7}}
	env := newEnvironment(deleting{&valve{}}, func(h *activities.Host) { h.Rules, h.Passes = j, passes })
	for _, token := range []string{"one", "two"} {
		f := forwardOfThisRun(`{}`)
		f.Entry.Token = token
		before := len(passes) - 1
		_, err := env.ExecuteActivity("echo.say", f)
		require.NoError(t, err)
		require.Equal(t, int64(34), passes[token].Removed)
		require.Equal(t, activities.History{Steps: int64(before), Removed: int64(34 * before)}, j.histories[before])
	}
}

// oneByOne are passes that tell what is done under their lock.
type oneByOne struct {
	kept
	did *[]string
}

func (o oneByOne) Lock() { *o.did = append(*o.did, "lock") }

func (o oneByOne) Unlock() { *o.did = append(*o.did, "unlock") }

func (o oneByOne) History(task string) (activities.History, error) {
	*o.did = append(*o.did, "history")
	return o.kept.History(task)
}

func (o oneByOne) Keep(token string, p activities.Pass) error {
	*o.did = append(*o.did, "keep")
	return o.kept.Keep(token, p)
}

// Of two steps of a task that run beside each other one is judged anew, so both cannot use the last of a
// budget; and nobody waits while rules ask somebody.
func TestAChangeIsJudgedAnewWhereAnotherStepWasLetActMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		looks bool     // the rules look at the history
		task  string   // of the step that is let act while they judge
		want  []string // that is done
	}{
		"of the same task":               {true, "default-test-workflow-id", []string{"history", "judged 0", "lock", "history", "unlock", "history", "judged 1", "lock", "history", "keep", "unlock"}},
		"of another":                     {true, "another", []string{"history", "judged 0", "lock", "history", "keep", "unlock"}},
		"which the rules do not look at": {false, "default-test-workflow-id", []string{"judged 0", "lock", "keep", "unlock"}},
	} {
		t.Run(name, func(t *testing.T) {
			var did []string
			passes := oneByOne{kept{}, &did}
			env := newEnvironment(deleting{&valve{}}, func(h *activities.Host) {
				h.Rules, h.Passes = whenJudged(func(judged activities.Case) {
					var seen activities.History
					if c.looks {
						seen, _ = judged.History()
					}
					did = append(did, fmt.Sprint("judged ", seen.Steps))
					passes.kept["beside"] = activities.Pass{Task: c.task}
				}), passes
			})
			_, err := env.ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
			require.NoError(t, err)
			require.Equal(t, c.want, did)
		})
	}
}

// An attempt that another one overtakes while it is judged is not denied because of it: the step acts once,
// and would be said not to have touched anything.
func TestAnAttemptIsNotJudgedByWhatAnotherOneOfItsStepWasLetDo(t *testing.T) {
	for name, late := range map[string]bool{"before the history is read": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			passes := kept{}
			v := &valve{}
			other := func() {
				passes["t"] = activities.Pass{Action: "echo.say", Task: "default-test-workflow-id",
					Change: activities.DigestOf([]byte(v.target)), Note: "of the other attempt"}
			}
			env := newEnvironment(v, func(h *activities.Host) { h.Rules, h.Passes = budgetOfOne{other, late}, passes })
			value, err := env.ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
			require.NoError(t, err)
			var r activities.Result
			require.NoError(t, value.Get(&r))
			require.Contains(t, r.Notes, "of the other attempt")
		})
	}
}

// budgetOfOne are rules that deny what is not the first step of a task. Meanwhile another attempt is let act.
type budgetOfOne struct {
	other  func()
	isLate bool
}

func (b budgetOfOne) Judge(_ context.Context, c activities.Case) *activities.Ruling {
	if !b.isLate {
		b.other()
	}
	h, err := c.History()
	if b.isLate {
		b.other()
	}
	if err != nil || h.Steps > 0 {
		return rulingOf(activities.Denies)
	}
	return nil
}

// whenJudged are rules that tell when they judge.
type whenJudged func(activities.Case)

func (j whenJudged) Judge(_ context.Context, c activities.Case) *activities.Ruling { j(c); return nil }

// Who was asked could not answer any more: that is no verdict.
func TestACallThatEndsWhileItIsJudgedAsksNobody(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	env := newEnvironment(&valve{}, func(h *activities.Host) {
		h.Rules, h.Passes = endless{cancel}, kept{}
	})
	env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	for _, activity := range []string{"echo.say", "echo.say.plan"} {
		_, err := env.ExecuteActivity(activity, forwardOfThisRun(`{}`))
		require.ErrorContains(t, err, "canceled")
	}
}

// endless are rules that ask while the call is canceled.
type endless struct{ cancel func() }

func (e endless) Judge(ctx context.Context, _ activities.Case) *activities.Ruling {
	e.cancel()
	<-ctx.Done()
	return rulingOf(activities.Asked, anybody)
}

// A worker that died between the note and the record has let nothing but the change that it judged.
func TestAPassLetsExactlyItsChange(t *testing.T) {
	v, passes := &valve{target: "another by now", risk: activities.High}, kept{
		"t": {Action: "echo.say", Change: activities.DigestOf([]byte("t")), Ruling: rulingOf(activities.Allows)}}
	j := &judges{ruling: rulingOf(activities.Denies)}
	env := newEnvironment(v, func(h *activities.Host) { h.Rules, h.Passes = j, passes })
	_, err := env.ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
	require.Equal(t, string(activities.StaleApproval), applicationError(t, err).Type())
	require.Empty(t, passes)
	_, err = env.ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
	require.Equal(t, string(activities.Denied), applicationError(t, err).Type())
	require.False(t, v.record)
}

// What another action was let do is no pass, whoever gives a forward its token.
func TestAPassIsOfOneAction(t *testing.T) {
	v, passes := &valve{target: "t", risk: activities.Low}, kept{
		"t": {Action: "echo.whisper", Change: activities.DigestOf([]byte("t")), Ruling: rulingOf(activities.Allows)}}
	env := newEnvironment(v, func(h *activities.Host) { h.Rules, h.Passes = &judges{ruling: rulingOf(activities.Denies)}, passes })
	_, err := env.ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
	require.Equal(t, string(activities.Denied), applicationError(t, err).Type())
	require.Zero(t, v.applied)
}

// bare plans changes without a digest.
type bare struct{ *valve }

func (bare) Plan(context.Context, activities.Entry, activities.Step) (activities.Change, error) {
	return activities.Change{Summary: "something", Risk: activities.Low}, nil
}

func TestAChangeWithoutADigestIsRefused(t *testing.T) {
	v := &valve{target: "t"}
	env := newEnvironment(bare{v}, func(h *activities.Host) { h.Rules, h.Passes = &judges{}, kept{} })
	_, err := env.ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
	require.Equal(t, string(activities.Refused), applicationError(t, err).Type())
	require.ErrorContains(t, err, "plans a change without a digest")
	require.False(t, v.record)
}

func TestATargetThatChangesWhileItIsJudgedIsRefused(t *testing.T) {
	v, passes := &valve{target: "t", later: "another", risk: activities.Low}, kept{}
	env := newEnvironment(v, func(h *activities.Host) { h.Rules, h.Passes = &judges{}, passes })
	_, err := env.ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
	require.Equal(t, string(activities.StaleApproval), applicationError(t, err).Type())
	require.Empty(t, passes)
	require.False(t, v.record)
}

func TestAWorkerWithoutRulesPlansNothingWhenItActs(t *testing.T) {
	v := &valve{target: "t", risk: activities.Low}
	_, err := newEnvironment(v).ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
	require.NoError(t, err)
	require.Zero(t, v.planned)
	require.Empty(t, v.want)
}

// reader is an action that only reads.
type reader struct{ *valve }

func (reader) Spec() activities.Spec { return activities.Spec{Name: "echo.say", ReadOnly: true} }

func TestEachAttemptToReadIsJudged(t *testing.T) {
	v, passes := &valve{target: "t", risk: activities.Low}, kept{}
	j := &judges{}
	env := newEnvironment(reader{v}, func(h *activities.Host) { h.Rules, h.Passes = j, passes })
	_, err := env.ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
	require.NoError(t, err)
	for verdict, want := range map[activities.Verdict]activities.ErrorType{
		activities.Denies: activities.Denied, activities.Asked: activities.Asks,
	} {
		j.ruling = rulingOf(verdict, anybody)
		_, err = env.ExecuteActivity("echo.say", forwardOfThisRun(`{}`))
		require.Equal(t, string(want), applicationError(t, err).Type())
	}
	require.Equal(t, 1, v.applied)
	require.Empty(t, passes)
}
