package unit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// health is unit.health. It changes nothing.
type health struct{ *world }

type healthParams struct {
	Unit   string `json:"unit"             jsonschema:"the name of a unit in the worker's config"`
	Within string `json:"within,omitempty" jsonschema:"how long it may take to be healthy, such as 30s; by default it is asked once"`
	Must   *bool  `json:"must,omitempty"   jsonschema:"false: the step is done whatever the unit answers, and says what; by default it fails unless the unit is healthy"`
}

func (*health) Spec() activities.Spec {
	return activities.Spec{
		Name: "unit.health", Summary: "Asks whether a unit of the host works.",
		Params: activities.ParamsSchema[healthParams](),
		Outputs: map[string]string{
			"healthy": "whether it is healthy",
			"asked":   "whether it could be asked: false where the program that asks cannot be run",
			"detail":  "what it answered",
		},
		UndoParams: []string{"unit"}, Keys: []activities.Key{{Prefix: keyPrefix, Param: "unit"}},
		HostBound: true, Preflights: true, ReadOnly: true, Risk: activities.Low, Strategy: activities.NoUndo,
		Undo: "it changes nothing.",
	}
}

func (p healthParams) within() (time.Duration, error) {
	if p.Within == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(p.Within)
	if err != nil || d < 0 {
		return 0, activities.Errorf(activities.Refused, "within: %q must be a time such as 30s", p.Within)
	}
	return d, nil
}

// Preflight implements activities.Preflighter.
func (a *health) Preflight(_ context.Context, o activities.Outlook) error {
	p, err := activities.DecodeParams[healthParams](o.With)
	if err == nil {
		_, err = p.within()
	}
	if err == nil {
		_, err = a.find(p.Unit)
	}
	return err
}

func (a *health) Plan(_ context.Context, _ activities.Entry, s activities.Step) (activities.Change, error) {
	p, err := activities.DecodeParams[healthParams](s.With)
	return activities.Change{
		Summary: "ask whether the unit " + p.Unit + " works", Strategy: activities.NoUndo, Undo: "it changes nothing",
		Risk: activities.Low, Unchanged: true, Keys: []string{keyPrefix + p.Unit}, Digest: activities.DigestOf(s.With),
	}, err
}

// answer is how a unit is.
type answer struct {
	healthy, asked bool
	detail         string
}

// Bounds on asking: for one question, and between two.
const (
	oneQuestion = 10 * time.Second
	pause       = 200 * time.Millisecond
)

// Apply asks, again and again where the unit may take its time.
func (a *health) Apply(ctx context.Context, _ activities.Entry, s activities.Step,
	want activities.Digest) (r activities.Result, err error) {
	p, err := activities.DecodeParams[healthParams](s.With)
	if err != nil {
		return r, err
	}
	if want != "" && want != activities.DigestOf(s.With) {
		return r, activities.Errorf(activities.StaleApproval, "the question is not the one that was approved")
	}
	within, err := p.within()
	if err != nil {
		return r, err
	}
	u, err := a.find(p.Unit)
	if err != nil {
		return r, err
	}
	giveUp := time.Now().Add(within)
	is := u.ask(ctx)
	for !is.healthy && is.asked && time.Now().Before(giveUp) {
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(pause):
		}
		is = u.ask(ctx)
	}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	r = activities.Result{
		Summary: fmt.Sprintf("the unit %s is healthy: %s", p.Unit, is.detail),
		Outputs: map[string]any{"healthy": is.healthy, "asked": is.asked, "detail": is.detail},
	}
	switch {
	case is.healthy:
	case !is.asked:
		r.Summary = fmt.Sprintf("whether the unit %s is healthy is not known: %s", p.Unit, is.detail)
		r.Notes = []string{r.Summary}
	case p.Must == nil || *p.Must:
		return r, activities.Errorf(activities.CheckFailed, "the unit %s is not healthy: %s", p.Unit, is.detail)
	default:
		r.Summary = fmt.Sprintf("the unit %s is not healthy: %s", p.Unit, is.detail)
		r.Notes = []string{r.Summary}
	}
	return r, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{})
}

// cannotRun is from which exit status on a shell says that it could not run what it was to.
const cannotRun = 126

// ask asks once.
func (u Unit) ask(ctx context.Context) answer {
	ctx, cancel := context.WithTimeout(ctx, oneQuestion)
	defer cancel()
	if u.Health.URL != "" {
		return askURL(ctx, u.Health.URL)
	}
	command := u.Health.Command
	if len(command) == 0 {
		command = u.Running
		if u.Container != "" {
			return u.askContainer(ctx)
		}
	}
	err := runCommand(ctx, command)
	switch exit, ran := errors.AsType[*exec.ExitError](err); {
	case err == nil:
		return answer{healthy: true, asked: true, detail: command[0] + " has exited with status 0"}
	case ran && exit.Exited() && exit.ExitCode() < cannotRun:
		return answer{asked: true, detail: err.Error()}
	case ctx.Err() != nil:
		return answer{asked: true, detail: fmt.Sprintf("%s has not answered within %v", command[0], oneQuestion)}
	}
	return answer{detail: err.Error()}
}

// askContainer asks whether the container runs, and what its own health check says where its image
// has one.
func (u Unit) askContainer(ctx context.Context) answer {
	b, err := subject{Unit: u}.openContainer()
	if err != nil {
		return answer{detail: err.Error()}
	}
	c, err := b.engine.ContainerInspect(ctx, b.name)
	switch {
	case engine.IsNotFound(err):
		return answer{asked: true, detail: "there is no container " + b.name}
	case err != nil:
		return answer{detail: engine.Explain("looking at container "+b.name, err).Error()}
	case c.State.Status != container.StateRunning:
		return answer{asked: true, detail: fmt.Sprintf("container %s is %s", b.name, c.State.Status)}
	case c.State.Health != nil && c.State.Health.Status != container.NoHealthcheck:
		return answer{asked: true, healthy: c.State.Health.Status == container.Healthy,
			detail: fmt.Sprintf("container %s is %s", b.name, c.State.Health.Status)}
	}
	return answer{asked: true, healthy: true, detail: "container " + b.name + " runs"}
}

// asker follows no redirect: a login page elsewhere would be taken for health.
var asker = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{DisableKeepAlives: true},
}

func askURL(ctx context.Context, url string) answer {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer{detail: err.Error()}
	}
	response, err := asker.Do(request)
	if err != nil {
		return answer{asked: true, detail: err.Error()}
	}
	response.Body.Close()
	return answer{healthy: response.StatusCode < http.StatusBadRequest, asked: true,
		detail: url + " answers " + response.Status}
}

func (*health) Undo(context.Context, activities.Entry, activities.Decision) (activities.Undone, error) {
	return activities.Undone{Outcome: activities.Nothing, Observed: "it changed nothing"}, nil
}

func (*health) Observe(context.Context, activities.Entry) (activities.Observation, error) {
	return activities.Observation{State: activities.AsBefore, Detail: "it changes nothing"}, nil
}

func (*health) Release(context.Context, activities.Entry) error { return nil }
