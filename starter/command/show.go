package command

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/workflows"
)

func (p *program) show() *cobra.Command {
	output := outputFlag("text")
	c := &cobra.Command{
		Use:     "show ID",
		GroupID: groupTasks,
		Short:   "Show how a task stands or ended",
		Long: `Show prints a task as it is now: its steps, the gates and the undos that wait for a person, and its report once there is
one. With -o json it prints the answer of the task's query "state".

A closed task is shown from its result, and an open one without a worker from its history.

` + exitStatuses,
		Example: `  starter show release-k3x9q2
  starter show release-k3x9q2 -o json | jq .report.outcomes`,
		Args:              exactly("ID"),
		ValidArgsFunction: p.completeTask(filter{}, nil),
		RunE: p.onTask(func(ctx context.Context, c *connection, t taskRun) error {
			s, _, source, err := c.current(ctx, t)
			if err != nil {
				return err
			}
			if output == "json" {
				return p.printJSON(s)
			}
			p.showState(c, t, s, source)
			return nil
		}),
	}
	output.add(c)
	return c
}

func (p *program) printJSON(v any) error {
	e := json.NewEncoder(p.streams.Out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// showState prints a task as it is now. source says where it was read, if not from its worker.
func (p *program) showState(c *connection, t taskRun, s workflows.State, source string) {
	p.printf("%s · %s\n", title(t, s), phase(s))
	if link := c.link(t.ID, t.RunID); link != "" {
		p.printf("see %s\n", link)
	}
	if source != "" {
		p.printf("%s\n", source)
	}
	unwinding := s.Report != nil && s.Report.Status != compensations.Committed
	if len(s.Steps) > 0 && s.Phase != workflows.Closed || s.Report == nil && len(s.Steps) > 0 {
		p.printf("\n")
		t := table{}
		t.row("STEP", "ACTION", "STATE", "TOOK", "")
		for _, v := range s.Steps {
			spent, text := "", v.Summary
			switch {
			case !v.Ended.IsZero():
				spent = took(v.Ended.Sub(v.Began))
			case !v.Began.IsZero():
				spent = took(time.Since(v.Began))
			}
			if v.Error != "" {
				text = v.Error
			}
			t.row(v.ID, v.Uses, string(v.State), spent, oneLine(text))
		}
		t.write(p.streams.Out)
	}
	for _, g := range s.Gates {
		p.printf("\n")
		writeGate(p.streams.Out, g)
		c.writeWays(p.streams.Out, t.ID, g)
	}
	if s.Report != nil && (unwinding || s.Phase == workflows.Closed) {
		p.printf("\n")
		writeReport(p.streams.Out, *s.Report)
		for _, r := range s.Report.Steps {
			if compensations.UndoState(r.State) == compensations.Parked && r.Digest != "" {
				p.printf("\n")
				writePark(p.streams.Out, t.ID, r)
			}
		}
	}
	for _, why := range s.Ignored {
		if s.Phase != workflows.Closed { // then it is a note of the report
			p.printf("ignored signal: %s\n", oneLine(why))
		}
	}
}
