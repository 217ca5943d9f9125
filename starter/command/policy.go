package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-62bf7108/unwind/starter/terminal"
	"github.com/seed-62bf7108/unwind/starter/usage"
	"github.com/seed-62bf7108/unwind/worker/policy"
)

func (p *program) policyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "policy",
		GroupID: groupLook,
		Short:   "The rules by which workers judge changes",
		Long: `A policy is a file of rules that a worker's config names: which changes happen without a person,
which ones who must approve, and which are not made at all.

` + exitStatuses,
		Example: "  starter policy test policy.yaml\n  starter policy try policy.yaml release-k3x9q2",
		Args:    noArguments,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.policyTestCommand(), p.policyTryCommand())
	return c
}

func (p *program) policyTestCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "test FILE",
		Short: "Check a policy, and try its examples",
		Long: `Test checks a policy as a starting worker does, and has its rules decide about each of the examples
that stand in it. It fails if one is decided otherwise than the example wants, or if an OPA that the
policy asks gives no verdict about it.

` + exitStatuses,
		Example: "  starter policy test policy.yaml",
		Args:    exactArguments("FILE"),
		RunE:    func(c *cobra.Command, args []string) error { return p.testPolicy(c.Context(), args[0]) },
	}
}

func (p *program) testPolicy(ctx context.Context, file string) error {
	rules, err := policy.Load(file, "")
	if err != nil {
		return usage.Errorf("%v", err)
	}
	tried, wrong, untried := rules.TryExamples(ctx), 0, 0
	for _, t := range tried {
		switch {
		case t.Untried != "":
			untried++
			p.printf("untried  %s: %s\n", terminal.OneLine(t.Example), terminal.OneLine(t.Untried))
		case t.Wrong != "":
			wrong++
			p.printf("FAIL  %s: %s\n", terminal.OneLine(t.Example), terminal.OneLine(t.Wrong))
		default:
			p.printf("pass  %s\n", terminal.OneLine(t.Example))
		}
	}
	parts := slices.Concat([]string{terminal.Plural(rules.Size(), "rule")}, rules.Engines(),
		[]string{terminal.Plural(len(tried), "example")})
	p.printf("policy %s: %s\n", rules.Version.Short(), strings.Join(parts, ", "))
	var failed []string
	if wrong > 0 {
		failed = append(failed, terminal.Plural(wrong, "example")+" not as wanted")
	}
	if untried > 0 {
		failed = append(failed, terminal.Plural(untried, "example")+" not tried")
	}
	if len(failed) > 0 {
		return exit{statusFailed, fmt.Errorf("%s: %s", file, strings.Join(failed, ", "))}
	}
	return nil
}
