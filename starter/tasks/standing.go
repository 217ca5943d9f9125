package tasks

import (
	"context"
	"time"

	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/workflows/environment"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/recovery"
)

// Standing is how a task stands now: its own state, and what was done about it since it ended.
type Standing struct {
	protocol.State
	// Paused is when, by whom and why the task was paused; absent if it is not.
	Paused *recovery.Pause `json:"paused,omitempty"`
	// Source says where the state was read, if not from its worker or its report.
	Source string `json:"source,omitempty"`
	// Now says what became of the task after its end: "rolled back", "rolled back in part", "redone",
	// "redone in part", "recovered", with or without remains, or that this is under way. By is the
	// workflow that made it so. Both are empty where nothing was done about it.
	Now string `json:"now,omitempty"`
	By  string `json:"by,omitempty"`
	// TakenBack are rollbacks of environments that have taken back what the task had changed, and
	// Unknown says which environments do not tell.
	TakenBack []environment.TakenBack `json:"takenBack,omitempty"`
	Unknown   []string                `json:"unknown,omitempty"`
	// Of is the workflow that this one recovers, rolls back or redoes; empty for a task. Part says
	// which part of it.
	Of   string `json:"of,omitempty"`
	Part string `json:"part,omitempty"`
	// After are the workflows that have acted on it since, in the order in which they were started.
	After []Act `json:"after,omitempty"`
	// Next is the command that takes the last of all this back; empty where none can.
	Next string `json:"next,omitempty"`
	// Horizon is until when Next can be begun, at the latest, if it is a rollback: limits of retention
	// may end it sooner.
	Horizon time.Time `json:"horizon,omitzero"`
	// NextVerb is the verb of that command, and NextID the workflow that it is about.
	NextVerb string `json:"-"`
	NextID   string `json:"-"`
}

// Act is a recovery, a rollback or a redo.
type Act struct {
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	Of      string    `json:"of"`
	Part    string    `json:"part,omitempty"`
	Status  string    `json:"status"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
}

// WholeStanding is Standing with what only the history has: of a closed task its outputs, and how
// far each step had come; of an open one the steps that were done before it continued as new.
func (c *Client) WholeStanding(ctx context.Context, t Run) (Standing, error) {
	s, err := c.Standing(ctx, t)
	if err == nil && s.Source == "" && (t.Closed() || len(s.Steps) < s.Total) {
		err = c.addHistory(ctx, t, &s.State)
	}
	return s, err
}

// Standing reads how a task stands.
func (c *Client) Standing(ctx context.Context, t Run) (Standing, error) {
	state, _, source, err := c.CurrentState(ctx, t)
	if err != nil {
		return Standing{}, err
	}
	if !t.Closed() {
		progress, err := c.Progress(ctx, t.ID)
		if err != nil {
			return Standing{}, err
		}
		progress.AddTo(&state)
	}
	s := Standing{State: state, Paused: t.Pause, Source: source}
	run, err := c.Recoveries().Describe(ctx, t.ID, t.RunID)
	if err != nil {
		return s, err
	}
	s.Of, s.Part = run.Of, run.Part
	if run.Alive() {
		return s, nil
	}
	family, err := c.Recoveries().Family(ctx, run)
	if err != nil {
		return s, c.explainMissingAttributes(ctx, err)
	}
	var by recovery.Run
	s.Now, by = family.Of(t.ID)
	s.By = by.WorkflowID
	back, err := c.takenBack(ctx, t.Started)
	if err != nil {
		return s, err
	}
	s.TakenBack, s.Unknown = back.of(t.ID, s.By), back.unknown
	for _, r := range family {
		s.After = append(s.After, Act{r.WorkflowID, r.Type, r.Of, r.Part, string(r.Unwind), r.Started, r.Closed})
	}
	next, err := c.nextAct(ctx, family, run)
	if next.verb != "" {
		s.Next, s.NextVerb, s.NextID, s.Horizon = commandOf(next), next.verb, next.id, next.until
	}
	return s, err
}

// nextCommand is the command line for what can be done about a run now; empty where nothing can.
func (c *Client) nextCommand(ctx context.Context, family recovery.Family, run recovery.Run) (string, error) {
	next, err := c.nextAct(ctx, family, run)
	if next.verb == "" {
		return "", err
	}
	return commandOf(next), err
}

// nextAct is what can be done about a run now: a verb, and the workflow that it is about; zero where
// nothing can.
type nextAct struct {
	verb, id string
	until    time.Time // of a rollback
}

func commandOf(n nextAct) string { return "starter " + n.verb + " " + terminal.ShellQuote(n.id) }

func (c *Client) nextAct(ctx context.Context, family recovery.Family, run recovery.Run) (next nextAct, err error) {
	next.verb, next.id = family.Next(run)
	can := next.verb != ""
	switch next.verb {
	case "rollback":
		next.until, err = c.Horizon(ctx, next.id, recovery.Part{})
		can = !next.until.IsZero()
	case "redo":
		var back recovery.Run
		if back, err = c.Recoveries().Describe(ctx, next.id, ""); err == nil {
			can, err = c.Recoveries().CanRedo(ctx, back, c.DataConverter())
		}
	}
	if err != nil || !can {
		return nextAct{}, err
	}
	return next, nil
}

// Horizon is until when a rollback of a part of what a workflow has done can begin, at the latest; zero
// if none would begin now.
func (c *Client) Horizon(ctx context.Context, id string, part recovery.Part) (time.Time, error) {
	run, err := c.Recoveries().Describe(ctx, id, "")
	if err != nil {
		return time.Time{}, err
	}
	return c.Recoveries().Horizon(ctx, run, part, c.DataConverter())
}
