package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
)

// TestDecisionsAreTakenInTheOrderInWhichTheyHaveCome has those that came last ask first.
func TestDecisionsAreTakenInTheOrderInWhichTheyHaveCome(t *testing.T) {
	env := (&testsuite.WorkflowTestSuite{}).NewTestWorkflowEnvironment()
	env.ExecuteWorkflow(func(ctx workflow.Context) (taken []string, err error) {
		p := &proofs{ctx: ctx, lines: map[string]*line{}}
		var turns []turn
		for range maxInLine {
			t, err := p.lineUp("s")
			if err != nil {
				return nil, err
			}
			turns = append(turns, t)
		}
		_, full := p.lineUp("s")
		if _, err := p.lineUp("other"); err != nil {
			return nil, err
		}
		taken, left := []string{fmt.Sprint(full)}, len(turns)
		for i, turn := range slices.Backward(turns) {
			workflow.Go(ctx, func(ctx workflow.Context) {
				_ = turn.take(ctx, func(ctx workflow.Context) error {
					if i%2 == 0 {
						_ = workflow.Sleep(ctx, 1)
					}
					taken = append(taken, fmt.Sprint(i))
					return fmt.Errorf("%d proves nothing", i)
				})
				left--
			})
		}
		if err := workflow.Await(ctx, func() bool { return left == 0 }); err != nil {
			return nil, err
		}
		_, err = p.lineUp("s")
		return taken, err
	})
	require.NoError(t, env.GetWorkflowError())
	var taken []string
	require.NoError(t, env.GetWorkflowResult(&taken))
	want := []string{`step "s": 20 decisions wait to be verified already, so this one decided nothing; send it again`}
	for i := range maxInLine {
		want = append(want, fmt.Sprint(i))
	}
	require.Equal(t, want, taken)
}
