package host

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/activities"
)

// Retention is how long a namespace keeps closed workflows, and so how long a task can be recovered
// or rolled back; 0 means for ever. It is an error if that is shorter than a task's default
// rollback window.
func Retention(ctx context.Context, c client.Client, namespace string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	d, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	if err != nil {
		return 0, fmt.Errorf("describe namespace %s: %w", namespace, err)
	}
	keeps := d.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration()
	if keeps > 0 && keeps < activities.DefaultKeep {
		return keeps,
			fmt.Errorf("the Temporal namespace %s keeps closed workflows for only %s, less than the %s for which a task can "+
				"be rolled back; raise it with\n  temporal operator namespace update --namespace %s --retention 720h",
				namespace, keeps, activities.DefaultKeep, namespace)
	}
	return keeps, nil
}
