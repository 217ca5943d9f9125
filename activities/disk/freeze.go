package disk

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/seed-62bf7108/unwind/activities/journal"
	"github.com/seed-62bf7108/unwind/internal/childenv"
	"github.com/seed-62bf7108/unwind/internal/supervisor"
)

// A guest that stays frozen is as good as dead, so a process of its own freezes and thaws it. It
// thaws when it is asked to, when who has started it is gone, and when that takes too long.
var freezer = &supervisor.Role[freezeJob]{Name: "unwind-thaw"}

// freezeJob names the socket of the agent of the guest to freeze.
type freezeJob struct {
	Agent string `json:"agent"`
	// OnlyThaw is for a guest that may have been left frozen.
	OnlyThaw bool `json:"only_thaw,omitempty"`
}

// said is what the freezer reports, in a line: that it has frozen, and then that it has thawed.
type said struct {
	Error string `json:"error,omitempty"`
	// Late says that it was frozen for as long as it may, before anybody asked to thaw it.
	Late bool `json:"late,omitempty"`
}

// Bounds on freezing: how long an agent has to answer, to freeze, the guest stays frozen, and the
// freezer tries to thaw.
const (
	agentAnswer = 3 * time.Second
	oneFreeze   = 10 * time.Second
	maxFrozen   = 20 * time.Second
	maxThawing  = 5 * time.Minute
)

// freeze is the freezer.
func freeze(job freezeJob, starter io.Reader) error {
	report := json.NewEncoder(os.Stdout)
	ctx := context.Background()
	if job.OnlyThaw {
		return report.Encode(thaw(ctx, nil, job.Agent))
	}
	agent, err := callAgent(ctx, job.Agent)
	if err != nil {
		return report.Encode(said{Error: err.Error()})
	}
	defer func() { agent.close() }()
	err = agent.call(ctx, oneFreeze, "guest-fsfreeze-freeze", nil, nil)
	if err != nil {
		thaw(ctx, agent, job.Agent) // it may have frozen some, or freeze them late
		return report.Encode(said{Error: err.Error()})
	}
	asked := make(chan struct{})
	go func() {
		_, _ = starter.Read(make([]byte, 1)) // it ends with who has started this process
		close(asked)
	}()
	_ = report.Encode(said{}) // who has started it may be gone
	late := false
	select {
	case <-asked:
	case <-time.After(maxFrozen):
		late = true
	}
	end := thaw(ctx, agent, job.Agent)
	end.Late = late
	return report.Encode(end)
}

// callAgent connects to an agent that answers. What it answers to somebody else comes first.
func callAgent(ctx context.Context, socket string) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, agentAnswer)
	defer cancel()
	agent, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	want := time.Now().UnixMicro()
	var got json.RawMessage
	err = agent.call(ctx, agentAnswer, "guest-sync", map[string]any{"id": want}, &got)
	for err == nil && string(got) != fmt.Sprint(want) {
		err = agent.hear(ctx, agentAnswer, "guest-sync", &got)
	}
	if err != nil {
		agent.close()
		return nil, fmt.Errorf("the guest agent at %s does not answer: %w", socket, err)
	}
	return agent, nil
}

// thaw thaws a guest, however long its agent takes to answer.
func thaw(ctx context.Context, agent *peer, socket string) said {
	var err error
	retry := time.NewTicker(pause)
	defer retry.Stop()
	for giveUp := time.Now().Add(maxThawing); ; <-retry.C {
		if agent == nil {
			agent, err = callAgent(ctx, socket)
		}
		if agent != nil {
			if err = agent.call(ctx, oneFreeze, "guest-fsfreeze-thaw", nil, nil); err == nil {
				return said{}
			}
			agent.close()
			agent = nil
		}
		if time.Now().After(giveUp) {
			return said{Error: err.Error()}
		}
	}
}

// guest is the guest of a machine that runs.
type guest struct {
	name, agent string
	token       *journal.Token

	process *supervisor.Process
	reports *bufio.Reader
	frozen  bool
}

// The documents of a token that say that a guest is about to be frozen, and was thawed.
const (
	frozenDoc = "frozen"
	thawedDoc = "thawed"
)

// start starts a freezer. An undo does not end it: it has no variable by which it could be found.
func (g *guest) start(job freezeJob) error {
	reports, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	g.process, err = freezer.Start(job, supervisor.Setup{
		Env: childenv.List(childenv.Minimal("GORACE", "GOCOVERDIR")), Dir: "/", Stdout: out, Stderr: os.Stderr,
	})
	g.reports = bufio.NewReader(reports)
	return err
}

// report reads what the freezer says next.
func (g *guest) report() (s said, err error) {
	line, err := g.reports.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	if err == nil && s.Error != "" {
		err = errors.New(s.Error)
	}
	return s, err
}

// freeze freezes the filesystems in the guest.
func (g *guest) freeze() error {
	if _, err := g.token.Create(frozenDoc, &freezeJob{Agent: g.agent}); err != nil {
		return err
	}
	if err := g.start(freezeJob{Agent: g.agent}); err != nil {
		return err
	}
	_, err := g.report()
	g.frozen = err == nil
	return err
}

// thaw thaws the guest, and says whether it was frozen until now.
func (g *guest) thaw() (was bool, err error) {
	if g.process == nil {
		return false, nil
	}
	if g.frozen {
		g.process.Interrupt()
		s, rerr := g.report()
		was, err = rerr == nil && !s.Late, rerr
	}
	g.process.Kill() // it has said its last
	_, _ = g.process.Wait()
	if err != nil {
		err = thawLeft(g.agent)
	}
	if err == nil {
		_, err = g.token.Create(thawedDoc, &struct{}{})
	}
	return was, err
}

// thawLeft thaws a guest that may have been left frozen.
func thawLeft(agent string) error {
	g := &guest{agent: agent}
	err := g.start(freezeJob{Agent: agent, OnlyThaw: true})
	if err == nil {
		_, err = g.report()
		_, _ = g.process.Wait()
	}
	if err != nil {
		err = fmt.Errorf("the guest may still be frozen: %w; thaw it by guest-fsfreeze-thaw at %s", err, agent)
	}
	return err
}

// thawForgotten thaws the guest that a call of the token has frozen whose freezer was killed with it.
func (c *call) thawForgotten() error {
	var left freezeJob
	found, err := c.token.Read(frozenDoc, &left)
	if err != nil || !found {
		return err
	}
	if thawed, err := c.token.Has(thawedDoc); err != nil || thawed {
		return err
	}
	if err := thawLeft(left.Agent); err != nil {
		return err
	}
	_, err = c.token.Create(thawedDoc, &struct{}{})
	return err
}
