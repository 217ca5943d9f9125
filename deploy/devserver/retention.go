package devserver

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"
)

// retention is how long a closed task can be inspected, and so rolled back. A development server's
// default is a day.
const retention = 30 * 24 * time.Hour

func keepHistories(ctx context.Context, c client.Client, name string) error {
	service := c.WorkflowService()
	now, err := service.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: name})
	if err != nil {
		return fmt.Errorf("describe namespace %s: %w", name, err)
	}
	if now.Config.GetWorkflowExecutionRetentionTtl().AsDuration() >= retention {
		return nil
	}
	_, err = service.UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{Namespace: name,
		Config: &namespace.NamespaceConfig{WorkflowExecutionRetentionTtl: durationpb.New(retention)}})
	if err != nil {
		return fmt.Errorf("set the retention of namespace %s: %w", name, err)
	}
	return nil
}
