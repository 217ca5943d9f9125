package command

import (
	"fmt"

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
that stand in it. It fails if one is decided otherwise than the example wants.

` + exitStatuses,
		Example: "  starter policy test policy.yaml",
		Args:    exactArguments("FILE"),
		RunE:    func(_ *cobra.Command, args []string) error { return p.testPolicy(args[0]) },
	}
}

func (p *program) testPolicy(file string) error {
	rules, err := policy.Load(file, "")
	if err != nil {
		return usage.Errorf("%v", err)
	}
	tried, failed := rules.TryExamples(), 0
	for _, t := range tried {
		if t.Wrong == "" {
			p.printf("pass  %s\n", terminal.OneLine(t.Example))
			continue
		}
		failed++
		p.printf("FAIL  %s: %s\n", terminal.OneLine(t.Example), terminal.OneLine(t.Wrong))
	}
	p.printf("policy %s: %s, %s\n", rules.Version.Short(), terminal.Plural(rules.Size(), "rule"),
		terminal.Plural(len(tried), "example"))
	if failed > 0 {
		return exit{statusFailed, fmt.Errorf("%s: %s not as wanted", file, terminal.Plural(failed, "example"))}
	}
	return nil
}
