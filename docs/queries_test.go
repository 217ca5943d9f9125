package docs_test

import (
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
)

// runQueries has the server answer every query that the page on operations gives for the Temporal
// UI, with tasks of each kind there.
func (p *place) runQueries() {
	page, err := os.ReadFile("operations.md")
	require.NoError(p, err)
	queries := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| ([^|]+) \\| `([^`]+)` \\|$").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(row[2], " = ") || strings.Contains(row[2], " IN ") {
			queries[row[1]] = row[2]
		}
	}
	gate, parked, remains, undone := p.atGate(), p.parked(), p.parked(), p.rolledBack()
	p.sh("starter resolve " + remains + " infrastructure --do accept --why documentation --yes")
	for what, finds := range map[string]struct{ with, without []string }{
		"tasks that need a person": {[]string{gate, parked}, []string{remains, undone}},
		"undos that are parked":    {[]string{parked}, []string{gate, remains, undone}},
		"what fails and is tried on: a commit that is owed, a hold, an undo": {nil, []string{gate, parked, remains, undone}},
		"tasks that left something behind": {[]string{remains},
			[]string{gate, parked, undone}},
		"everything about one task": {[]string{undone, "rollback-" + undone},
			[]string{gate, parked, remains}},
	} {
		require.Contains(p, queries, what)
		query := strings.ReplaceAll(queries[what], "release-k3x9q2", undone)
		delete(queries, what)
		require.Eventually(p, func() bool { // visibility follows
			found, err := p.client.ListWorkflow(p.Context(), &workflowservice.ListWorkflowExecutionsRequest{
				Namespace: servertest.Shared(p.T).Namespace, Query: query, PageSize: 1000,
			})
			require.NoError(p, err, query)
			var ids strings.Builder
			for _, e := range found.Executions {
				ids.WriteString("\n" + e.Execution.WorkflowId)
			}
			for _, id := range finds.with {
				if !strings.Contains(ids.String(), "\n"+id) {
					return false
				}
			}
			for _, id := range finds.without {
				if strings.Contains(ids.String(), "\n"+id) {
					return false
				}
			}
			return true
		}, patience, 20*time.Millisecond, what)
	}
	require.Empty(p, queries, "the page has a query that is not tried")
}
