package task

import (
	"encoding/json"
	"time"

	"github.com/seed-62bf7108/unwind/activities"
)

// file is a task file as it is written. This type and those that it is made of are the only list of
// what a task file may hold: the parser reads their fields, and the JSON Schema and
// docs/task-file-reference.md are derived from them. The tags of a field:
//
//	json        its name; without omitempty or omitzero it is required
//	jsonschema  what it means, for the schema, the reference and the message that it is missing
//	default     what holds where it is left out
//	expressions which expressions may stand in it: "vars", or "all" three kinds; none where there is no such tag
type file struct {
	Schema    link        `json:"$schema,omitempty" jsonschema:"Where an editor finds the schema of this file."`
	Name      title       `json:"name" jsonschema:"What the task does, in one line."`
	Agent     title       `json:"agent,omitempty" jsonschema:"Who carries the task out; shown, and searchable."`
	Vars      vars        `json:"vars,omitempty" jsonschema:"Values of any kind, used as ${{ vars.NAME }}. starter run --var NAME=VALUE overrides them."`
	Timeout   duration    `json:"timeout,omitempty" jsonschema:"The deadline of the task: when it passes, the task unwinds. Without one, there is no time limit."`
	OnFailure FailureMode `default:"unwind" json:"on_failure,omitempty" jsonschema:"What happens when a step fails that has no on_failure of its own: unwind undoes the whole task, rollback_step undoes that step only, continue leaves it as it is and goes on, ask undoes that step and parks it until a person decides. Left out in a session: rollback_step."`
	Unwind    UnwindMode  `default:"lifo" json:"unwind,omitempty" jsonschema:"In which order the task is undone: lifo undoes one step after the other, the last one first; parallel undoes independent branches at the same time."`
	Keep      duration    `default:"1h" json:"keep,omitempty" jsonschema:"How long the task can be rolled back after it has committed."`
	Pinned    toggle      `default:"false" json:"pinned,omitempty" jsonschema:"Whether the records that a rollback needs are kept for all of keep, whatever the retention limits of the worker say."`
	Session   *session    `json:"session,omitempty" jsonschema:"Makes the task a session: it takes further steps while it runs, until it is told to finish."`
	Steps     steps       `json:"steps" jsonschema:"A list of steps, in the order in which they run. That of a session may be empty."`
}

// session is what a task says that takes its steps as they come.
type session struct {
	Idle     duration `default:"1h" json:"idle,omitempty" jsonschema:"How long the agent may be silent while no step runs and no gate is open."`
	Gone     GoneMode `default:"ask" json:"gone,omitempty" jsonschema:"What happens then: ask alerts a person and waits, unwind undoes everything."`
	Failures Decider  `default:"person" json:"failures,omitempty" jsonschema:"Who decides about a step with on_failure: ask that has failed: a person alone, or the agent as well."`
	// A name of another form is refused where environments are known.
	Environment identifier `json:"environment,omitempty" jsonschema:"An environment of which each savepoint is a checkpoint: rolling back to a savepoint ends with the environment put back to that."`
	Restores    Decider    `default:"person" json:"restores,omitempty" jsonschema:"Who decides that the environment is put back where others have changed it since: a person, at a gate, or the agent that rolls back."`
}

// step is one item of steps.
type step struct {
	ID      identifier `json:"id" jsonschema:"A short name for the step, unique in the file."`
	Name    label      `expressions:"vars" json:"name,omitempty" jsonschema:"A title for people."`
	Uses    actionName `json:"uses" jsonschema:"The action, as in file.write."`
	With    params     `expressions:"all" json:"with,omitzero" jsonschema:"The parameters of the action."`
	Needs   needs      `json:"needs,omitzero" jsonschema:"The ids of the steps that must be done first. Left out: all steps above. []: none."`
	Check   checks     `expressions:"vars" json:"check,omitempty" jsonschema:"Conditions on the result; the step fails where one does not hold."`
	Gate    gate       `expressions:"vars" json:"gate,omitzero" jsonschema:"When a person must approve the step: ask always, auto where the change has medium or high risk, none never. Left out: always for a risky or irreversible action, else where the change has high risk."`
	Retry   retry      `json:"retry,omitzero" jsonschema:"How often the step is tried, and the wait between two attempts."`
	Timeout duration   `default:"5m" json:"timeout,omitempty" jsonschema:"How long one attempt may take."`
	On      hostName   `expressions:"vars" json:"on,omitempty" jsonschema:"The host whose worker runs the step. Left out: any worker, or for an action that is bound to a host the worker that compiles the task."`
	Undo    undo       `json:"undo,omitzero" jsonschema:"How the step is undone."`
	// OnFailure is nil where the step does as the task says.
	OnFailure *OnFailure `json:"on_failure,omitempty" jsonschema:"What happens when the step has failed, its retries used up. Left out: what the on_failure of the task says."`
	Savepoint identifier `json:"savepoint,omitempty" jsonschema:"A name for the place just before this step, for unwind_to and for starter rollback --to."`
	Pivot     toggle     `default:"false" json:"pivot,omitempty" jsonschema:"Whether the step is a pivot: once it is done, neither it nor anything before it is unwound any more."`

	Again toggle `default:"false" json:"again,omitempty" jsonschema:"In a session: whether the step is meant to happen although one that is done has the same purpose, such as a second payment of the same amount to the same customer."`

	node *node
	at   *trail
}

// gate is a mode alone, or a map.
type gate struct {
	// empty: the risk of the action decides
	Mode    GateMode `default:"ask" json:"mode,omitempty" jsonschema:"When it asks: ask, auto or none, as above."`
	Timeout duration `json:"timeout,omitempty" jsonschema:"How long the gate waits for a person; then the step counts as rejected. Left out: 24h for auto, else 365d."`
	Why     reason   `json:"why,omitempty" jsonschema:"A reason, shown to the person who decides."`
}

type retry struct {
	Attempts attempts `default:"3" json:"attempts,omitempty" jsonschema:"How often the step is tried."`
	Backoff  duration `default:"1s" json:"backoff,omitempty" jsonschema:"The wait before the second attempt; each further wait is twice as long."`
	Max      duration `default:"30s" json:"max,omitempty" jsonschema:"The longest wait."`
}

type undo struct {
	Within      duration    `default:"1h" json:"within,omitempty" jsonschema:"For how long the undo is tried before it is parked for a person."`
	Attempts    attempts    `json:"attempts,omitempty" jsonschema:"How often the undo is tried before it is parked. Left out: as often as within allows."`
	Drift       drift       `default:"ask" json:"drift,omitempty" jsonschema:"What the undo does where somebody else has changed the resource since: ask parks it for a person, force overwrites that change, skip leaves it."`
	Criticality criticality `default:"normal" json:"criticality,omitempty" jsonschema:"What becomes of an undo that cannot be done: normal parks it for a person, low accepts the world as it is and reports it."`
}

// unwindTo is an on_failure that goes back to a savepoint.
type unwindTo struct {
	Savepoint identifier `json:"unwind_to" jsonschema:"The savepoint to go back to, on this step or on one above it. Everything from there on is undone and done again."`
	Times     times      `default:"1" json:"times,omitempty" jsonschema:"How often that is done; then the task unwinds."`
}

// check is one item of check; it has exactly one of checkKinds.
type check struct {
	Command command      `json:"command,omitempty" jsonschema:"A program and its arguments as a list, without a shell; it must exit with status 0. {path} stands for the checked file; where there are several, name each by its path."`
	JSON    *jsonCheck   `json:"json,omitempty" jsonschema:"What must stand in a JSON file."`
	Syntax  *syntaxCheck `json:"syntax,omitempty" jsonschema:"What a file must be readable as: json, yaml, toml, hcl, sh or bash; no tool is needed for it."`
	HTTP    *httpCheck   `json:"http,omitempty" jsonschema:"What an address must answer to a GET request from the worker's host. Always a live check; no redirect is followed. The config of the worker names the addresses."`
	Exists  *existsCheck `json:"exists,omitempty" jsonschema:"A path that must be there; {} is the target of the step."`
	Query   statement    `json:"query,omitempty" jsonschema:"An SQL statement that reads one value from the database of the step, by default in the transaction of the step before it commits."`
	Expect  anyValue     `json:"expect,omitempty" jsonschema:"The value that query must return: that of the only column of the only row, or null where there is no row."`
	When    when         `json:"when,omitempty" jsonschema:"When the condition is checked: staged on the new content before it takes its place, live on the target afterwards. Left out: staged for an action that stages its change and for query, else live."`
	Within  duration     `json:"within,omitempty" jsonschema:"How long the condition may take to hold: it is checked again until it does. This makes it a live check, and does not go with when: staged. Left out: it must hold at once."`
	Timeout duration     `default:"1m" json:"timeout,omitempty" jsonschema:"How long one try may take; then the condition does not hold."`
}

// syntaxCheck is a format alone, or a map.
type syntaxCheck struct {
	Format format `json:"format" jsonschema:"What the file must be."`
	File   line   `json:"file,omitempty" jsonschema:"The file. Left out: the target of the step."`
}

// httpCheck is a URL alone, or a map.
type httpCheck struct {
	URL      line       `json:"url" jsonschema:"The address, http or https."`
	Status   httpStatus `default:"200" json:"status,omitempty" jsonschema:"The status of the answer."`
	Contains line       `json:"contains,omitempty" jsonschema:"A text that must stand in the body."`
	At       pointer    `json:"at,omitempty" jsonschema:"A JSON Pointer into the body, as in /status. Left out: the whole document, where equals is given."`
	Equals   anyValue   `json:"equals,omitempty" jsonschema:"The value that must stand there. Left out: any."`
}

type jsonCheck struct {
	File   line     `json:"file,omitempty" jsonschema:"The file. Left out: the target of the step."`
	At     pointer  `json:"at,omitempty" jsonschema:"A JSON Pointer, as in /server/port. Left out: the whole document."`
	Equals anyValue `json:"equals,omitempty" jsonschema:"The value that must stand there. Left out: any."`
}

// existsCheck is a path alone, or a map.
type existsCheck struct {
	Path line `json:"path,omitempty" jsonschema:"The path. Left out: the target of the step."`
}

// actions returns the checks as actions take them.
func (c checks) actions() []activities.Check {
	var all []activities.Check
	for _, one := range c {
		all = append(all, one.action())
	}
	return all
}

// action returns the check as actions take it.
func (c check) action() activities.Check {
	a := activities.Check{When: activities.When(c.When), Within: time.Duration(c.Within),
		Timeout: time.Duration(c.Timeout)}
	if a.Within > 0 {
		a.When = activities.Live
	}
	switch {
	case c.Command != nil:
		a.Command = &activities.CommandCheck{Run: c.Command}
	case c.JSON != nil:
		a.JSON = &activities.JSONCheck{File: string(c.JSON.File), At: string(c.JSON.At),
			Equals: json.RawMessage(c.JSON.Equals)}
	case c.Syntax != nil:
		a.Syntax = &activities.SyntaxCheck{Format: string(c.Syntax.Format), File: string(c.Syntax.File)}
	case c.HTTP != nil:
		a.HTTP = &activities.HTTPCheck{URL: string(c.HTTP.URL), Status: int(c.HTTP.Status),
			Contains: string(c.HTTP.Contains), At: string(c.HTTP.At), Equals: json.RawMessage(c.HTTP.Equals)}
	case c.Exists != nil:
		a.Exists = &activities.ExistsCheck{Path: string(c.Exists.Path)}
	case c.Query != "":
		a.Query = &activities.QueryCheck{SQL: string(c.Query), Expect: json.RawMessage(c.Expect)}
	}
	return a
}
