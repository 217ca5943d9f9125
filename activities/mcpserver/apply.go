package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/activities/declared"
	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/internal/exactjson"
	"github.com/seed-62bf7108/unwind/internal/process"
)

// serverProcess is the process of a server.
type serverProcess = process.Identity

// record is the undo record.
type record struct {
	journal.Owned
	claim
	declared.Call

	Server string `json:"server"`
	URL    string `json:"url,omitempty"` // where it was reached; empty if it was started
	// Local is what was declared of the server.
	Local bool `json:"local,omitempty"`
}

// UnmarshalJSON keeps numbers as they are written.
func (r *record) UnmarshalJSON(raw []byte) error {
	type plain record
	return exactjson.Decode(raw, (*plain)(r))
}

// applied is the document with what the look saw after the call; nil if it sees nothing.
type applied struct {
	Left *declared.Sight `json:"left,omitempty"`
}

func (o *oneCall) callName(n int) string { return fmt.Sprintf("call-%d", n) }

// Apply calls the tool.
func (a *action) Apply(ctx context.Context, e activities.Entry, s activities.Step,
	want activities.Digest) (activities.Result, error) {
	var none activities.Result
	o, err := a.begin(e)
	if err != nil {
		return none, err
	}
	unlock, err := o.token.Lock(ctx)
	if err != nil {
		return none, err
	}
	defer unlock()
	if err := o.token.CheckOpen(); err != nil {
		return none, err
	}
	rec, answer, err := o.callOnce(ctx, s, want)
	if err != nil {
		return none, err
	}
	left, err := o.keep(ctx, rec, answer)
	if err != nil {
		return none, err
	}
	a.reach("applied")
	said := answer.read()
	if err := failureOf(said, rec.Server, rec.Tool); err != nil {
		return none, err
	}
	result := resultOf(rec.Server, rec.Call, said, left)
	return result, activities.RunChecks(ctx, s.Checks, activities.Live, activities.Live, scene{result})
}

func resultOf(server string, c declared.Call, said declared.Answer, left *declared.Sight) activities.Result {
	r := c.Result(said, left)
	r.Summary = fmt.Sprintf("called %s of server %s", c.Tool, server)
	return r
}

// callOnce makes the record and the call, or finds the answer of an earlier attempt.
func (o *oneCall) callOnce(ctx context.Context, s activities.Step, want activities.Digest) (rec record, answer Answer,
	err error) {
	found, err := o.token.Read(journal.Record, &rec)
	if err != nil {
		return rec, answer, err
	}
	var c *connection
	if !found {
		if err := o.token.CheckNotLost(false, answered); err != nil {
			return rec, answer, err
		}
		if rec, c, err = o.makeRecord(ctx, s, want); err != nil {
			return rec, answer, err
		}
	}
	o.reach("recorded")
	if known, err := o.token.Read(answered, &answer); err != nil || known {
		return rec, answer, err
	}
	if err := o.token.CheckNotLost(false); err != nil {
		return rec, answer, err
	}
	if found {
		if c, answer, err = o.retry(ctx, rec); err != nil {
			return rec, answer, err
		}
	}
	if c != nil {
		if err := o.token.CheckOpen(); err != nil { // after the claim: an undo ends the server of every claim that it finds
			return rec, answer, err
		}
		o.reach("still-open")
		if answer, err = c.callStep(ctx, o.entry.Token, rec.Tool, rec.Arguments); err != nil {
			return rec, answer, o.explainNoAnswer(rec, err)
		}
		o.reach("called")
	}
	return rec, answer, nil
}

// keep keeps the answer, and what the look sees after the call. The look is made while the answer
// is written to the disk.
func (o *oneCall) keep(ctx context.Context, rec record, answer Answer) (left *declared.Sight, err error) {
	kept := make(chan error, 1)
	go func(mine Answer) {
		_, err := o.token.Create(answered, &mine)
		o.reach("answered")
		kept <- err
	}(answer)
	left, staged, err := o.stageLeft(ctx, rec, answer)
	if staged != nil {
		defer staged.Drop()
	}
	if errKept := <-kept; errKept != nil {
		return nil, errKept
	}
	if err != nil || staged == nil {
		return left, err
	}
	o.reach("looked-after")
	if err := o.token.CheckOpen(); err != nil { // an undo may already have changed what was seen
		return nil, err
	}
	doc := applied{left}
	_, err = staged.Publish(&doc)
	return doc.Left, err
}

// stageLeft looks after the call, and writes what it sees, without its name: that comes after the
// answer's. What an earlier attempt has kept is not looked at again, and nothing is staged.
func (o *oneCall) stageLeft(ctx context.Context, rec record, answer Answer) (left *declared.Sight,
	staged *journal.Staged, err error) {
	var doc applied
	if found, err := o.token.Read(journal.Applied, &doc); err != nil || found {
		return doc.Left, nil, err
	}
	if doc.Left, err = o.lookAfter(ctx, rec, answer); err != nil {
		return nil, nil, err
	}
	made, err := o.token.Stage(journal.Applied, &doc)
	if err != nil {
		return nil, nil, err
	}
	return doc.Left, &made, nil
}

// makeRecord looks, and makes the record: with it, the server that runs is claimed for the call.
func (o *oneCall) makeRecord(ctx context.Context, s activities.Step, want activities.Digest) (rec record, c *connection,
	err error) {
	it, err := o.prepare(ctx, o.entry.Token, s)
	if err != nil {
		return rec, nil, err
	}
	change := it.change()
	if err := activities.Judge(ctx, change); err != nil {
		return rec, nil, err
	}
	if want != "" && want != change.Digest {
		return rec, nil,
			activities.Errorf(activities.StaleApproval,
				"the call, what it changes, or the tool as its server lists it, is not what was approved; plan and approve "+
					"it again")
	}
	to := o.Servers[it.server]
	rec = record{journal.Own(ctx, o.entry), claim{it.connection.id}, it.Call, it.server, to.URL, to.Declarations.Local}
	_, err = o.token.Create(journal.Record, &rec)
	return rec, it.connection, err
}

// explainNoAnswer is the error of a call without an answer. With a look another attempt can find
// out what became of it.
func (o *oneCall) explainNoAnswer(rec record, err error) error {
	if open := o.token.CheckOpen(); open != nil {
		return open
	}
	if rec.Before != nil {
		return err
	}
	return activities.Errorf(activities.UnknownOutcome,
		"%v; whether the call has happened is not known, as no look is declared for %s", err, rec.Tool)
}

// retry finds out what became of a call that has no answer, once no server can be at it any more.
// It returns a server on which to make the call, if it has not happened.
func (o *oneCall) retry(ctx context.Context, rec record) (c *connection, answer Answer, err error) {
	if rec.Before == nil {
		return nil, answer, activities.Errorf(activities.UnknownOutcome,
			"an earlier attempt has called %s and got no answer; whether the call has happened is not known, as no look is "+
				"declared for it", rec.Tool)
	}
	claims, err := o.endCalls(ctx, rec)
	if err != nil {
		return nil, answer, err
	}
	if c, err = o.reconnect(ctx, rec); err != nil {
		return nil, answer, err
	}
	now, err := c.look(ctx, o.entry.Token, *rec.Declared.Look, rec.Values(nil))
	if err != nil {
		return nil, answer, err
	}
	switch {
	case rec.IsBefore(&now) && !rec.Local:
		return nil, answer, activities.Errorf(activities.UnknownOutcome,
			"an earlier attempt has called %s and got no answer; %s shows no change so far, but the server may have passed "+
				"the call on (local: true is not declared)", rec.Tool, rec.Declared.Look.Tool)
	case rec.IsBefore(&now):
		_, err := o.token.Create(o.callName(claims+1), &claim{c.id})
		return c, answer, err
	case rec.IsHappened(now):
		return nil, Answer{Lost: true}, nil
	}
	return nil, answer, activities.Errorf(activities.UnknownOutcome,
		"an earlier attempt has called %s and got no answer; %s shows neither what was there before, nor what the call "+
			"makes (happened)", rec.Tool, rec.Declared.Look.Tool)
}

// reconnect connects to the server of a call. Another one that has its name since knows nothing of
// the call.
func (a *action) reconnect(ctx context.Context, rec record) (*connection, error) {
	if now := a.Servers[rec.Server]; now.URL != rec.URL {
		return nil, activities.Errorf(activities.WrongPlace,
			"%s of server %s was called at %s, and that name now stands for %s: give the server its old address again",
			rec.Tool, rec.Server, describeAddress(rec.URL), describeAddress(now.URL))
	}
	return a.connect(ctx, rec.Server)
}

func describeAddress(url string) string {
	if url == "" {
		return "a command"
	}
	return url
}

// endCalls ends every server that a call of this token may still be written to, or worked at, and
// counts them.
func (o *oneCall) endCalls(ctx context.Context, rec record) (n int, err error) {
	claims, err := o.listClaims(rec)
	for _, each := range claims {
		err = errors.Join(err, each.By.EndSession(ctx))
	}
	return len(claims), err
}

// listClaims are the servers that were claimed for the call. After the fate is decided, nothing is
// written to one that is claimed later.
func (o *oneCall) listClaims(rec record) ([]claim, error) {
	all := []claim{rec.claim}
	for {
		var next claim
		if found, err := o.token.Read(o.callName(len(all)+1), &next); err != nil || !found {
			return all, err
		}
		all = append(all, next)
	}
}

// lookAfter is what the look sees after the call; nil if it sees nothing.
func (o *oneCall) lookAfter(ctx context.Context, rec record, answer Answer) (*declared.Sight, error) {
	said := answer.read()
	if !rec.CanLook(&said) {
		return nil, nil
	}
	c, err := o.reconnect(ctx, rec)
	if err != nil {
		return nil, err
	}
	seen, err := c.look(ctx, o.entry.Token, *rec.Declared.Look, rec.Values(&said))
	if err != nil {
		return nil, fmt.Errorf("after %s: %w", rec.Tool, err)
	}
	return &seen, nil
}

// scene shows checks the outputs of the step.
type scene struct{ result activities.Result }

func (scene) Target() string { return "outputs" }

func (s scene) ReadFile(_ context.Context, name string) ([]byte, error) {
	if name != s.Target() {
		return nil, fs.ErrNotExist
	}
	return json.Marshal(s.result.Outputs)
}

func (scene) Run(context.Context, []string) ([]byte, error) {
	return nil, errors.New(
		"no command can run in an MCP server; use a json check of its outputs, or a step of another world")
}
