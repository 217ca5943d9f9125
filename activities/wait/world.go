package wait

import (
	"context"
	"errors"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/internal/childenv"
	"github.com/seed-62bf7108/unwind/internal/shortlived"
)

// For is the name of the action.
const For = "wait.for"

// New opens the world.
func New() activities.World {
	return activities.World{
		Name: activities.WorldOf(For), Actions: []activities.Action{waitFor{}},
		Journal: func(context.Context) (string, error) { return "none", nil },
	}
}

// waitFor is wait.for.
type waitFor struct{}

type params struct {
	For string `json:"for,omitempty" jsonschema:"how long, such as 10m or 2h, from when the step's turn comes, its gate included, at most 30d; without it, the step is done at once, which makes it a place for a gate"`
}

func (waitFor) Spec() activities.Spec {
	return activities.Spec{
		Name: For, Summary: "Waits for a time; needs no worker meanwhile.",
		Params:  activities.ParamsSchema[params](),
		Outputs: map[string]string{"until": "the end of the wait, as in 2006-01-02T15:04:05Z"},
		Keys:    []activities.Key{}, Preflights: true, ReadOnly: true, Risk: activities.Low, Strategy: activities.NoUndo,
		Undo: "it changes nothing.",
	}
}

// decode reads the parameters. Zero is no time.
func decode(s activities.Step) (time.Duration, error) {
	p, err := activities.DecodeParams[params](s.With)
	if err != nil || p.For == "" {
		return 0, err
	}
	d, ok := activities.ParseDuration(p.For)
	if !ok || d > activities.MaxWait {
		return 0, activities.Errorf(activities.Refused,
			"for: %q must be a time longer than zero and at most %s; write it like 30s, 10m, 2h or 1d", p.For,
			activities.WriteDuration(activities.MaxWait))
	}
	return d, nil
}

// Preflight implements activities.Preflighter.
func (waitFor) Preflight(ctx context.Context, o activities.Outlook) error {
	_, err := decode(o.Step)
	return errors.Join(err, activities.CheckPrograms(ctx, o.Checks))
}

func (waitFor) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	d, err := decode(s)
	c := activities.Change{
		Summary: "go on", Strategy: activities.NoUndo, Undo: "it changes nothing", Risk: activities.Low, Unchanged: true,
		Digest: activities.DigestOf(s.With),
	}
	if d > 0 {
		c.Summary = "wait for " + activities.WriteDuration(d)
	}
	return c, err
}

// Apply says whether the time has passed.
func (waitFor) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	var none activities.Result
	d, err := decode(s)
	if err != nil {
		return none, err
	}
	if want != "" && want != activities.DigestOf(s.With) {
		return none, activities.Errorf(activities.StaleApproval, "the wait is not the one that was approved")
	}
	until := e.Since.Add(d)
	if left := time.Until(until); d > 0 && left > 0 {
		early := activities.Errorf(activities.NotYet, "waiting until %s", until.UTC().Format("2006-01-02 15:04:05 UTC"))
		early.NextRetry = left
		return none, early
	}
	r := activities.Result{Summary: "went on", Outputs: map[string]any{"until": until.UTC().Format(time.RFC3339)}}
	if d > 0 {
		r.Summary = "waited for " + activities.WriteDuration(d)
	}
	return r, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{})
}

func (waitFor) Undo(context.Context, activities.Entry, activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Nothing, Observed: "it changed nothing"}, nil
}

func (waitFor) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsBefore, Detail: "it changes nothing"}, nil
}

func (waitFor) Release(context.Context, activities.Entry) error { return nil }

// scene is what a step's checks see: nothing but what programs on the host can see.
type scene struct{}

func (scene) Target() string { return "" }

func (scene) ReadFile(context.Context, string) ([]byte, error) {
	return nil, activities.Errorf(activities.Refused, "a wait has no file; check it by a command, or by an address")
}

func (scene) Run(ctx context.Context, argv []string) ([]byte, error) {
	return shortlived.Output(ctx, "/", childenv.Minimal(), argv...)
}
