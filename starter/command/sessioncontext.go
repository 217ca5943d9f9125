package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/starter/tasks"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
	"github.com/seed-62bf7108/unwind/workflows/session"
)

func (p *program) keepContextCommand() *cobra.Command {
	var request, name string
	c := &cobra.Command{
		Use:   "keep ID FILE",
		Short: "Give the session what its agent must know to go on from here (- is the standard input)",
		Args:  exactArguments("ID", "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			content, err := p.readSource(args[1])
			if err != nil {
				return err
			}
			return p.askSession(func(ctx context.Context, s session.Session) (protocol.Answer, error) {
				return s.KeepContext(ctx, request, name, content)
			})(cmd, args)
		},
	}
	c.Flags().StringVar(&name, "name", "", "`name` of it, which the history shows")
	addRequestTo(c, &request)
	return c
}

// standing is the answer to an agent that asks where it stands.
type standing struct {
	protocol.Context

	// Content is text, or Bytes are what it is otherwise.
	Content string `json:"content,omitempty"`
	Bytes   []byte `json:"bytes,omitempty"`
	// Since are the steps that were done since.
	Since []string `json:"since,omitempty"`
}

func (p *program) sessionContextCommand() *cobra.Command {
	var savepoint, branch, file string
	c := &cobra.Command{
		Use:   "context ID",
		Short: "Print what the agent gave last, and the steps since",
		Args:  exactArguments("ID"),
		RunE: p.withConnection(func(ctx context.Context, c *tasks.Client, args []string) (err error) {
			of := session.Attach(c, args[0])
			var told standing
			var content []byte
			switch {
			case savepoint != "" && branch != "":
				return usage.Errorf("give --savepoint or --branch, and not both")
			case savepoint != "":
				told.Context, content, err = of.ContextOf(ctx, savepoint)
			case branch != "":
				told.Context, content, err = of.ContextOfBranch(ctx, branch)
			default:
				told.Context, content, told.Since, err = of.LastContext(ctx)
			}
			if err != nil {
				return p.printAnswer(nil, protocol.Answer{}, err)
			}
			switch {
			case file != "":
				if err := os.WriteFile(file, content, 0o600); err != nil {
					return fmt.Errorf("write %s: %w", cmp.Or(told.Name, "the context"), err)
				}
			case utf8.Valid(content):
				told.Content = string(content)
			default:
				told.Bytes = content
			}
			raw, err := json.MarshalIndent(told, "", "  ")
			if err != nil {
				return fmt.Errorf("answer: %w", err)
			}
			p.printf("%s\n", raw)
			return nil
		}),
	}
	c.Flags().StringVar(&savepoint, "savepoint", "", "the one of this `savepoint` instead")
	c.Flags().StringVar(&branch, "branch", "", "the last one of this `branch` instead")
	c.Flags().StringVar(&file, "file", "", "write it to this `file`, with mode 0600, instead of printing it")
	return c
}
