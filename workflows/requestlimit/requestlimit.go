// Package requestlimit keeps updates from a worker that no workflow could refuse. To accept an
// update or to reject it, the SDK sends the whole of it back, in one message with all others of a
// workflow task. The server fails a workflow task with a payload of more than 2 MiB, again and
// again, and terminates a workflow whose worker sends more than 4 MB.
package requestlimit

import (
	"context"

	commonpb "go.temporal.io/api/common/v1"
	protocolpb "go.temporal.io/api/protocol/v1"
	updatepb "go.temporal.io/api/update/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"

	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

// frame is about what an update has besides its argument.
const frame = 10_000

// maxTogether bounds the updates of one workflow task. What it schedules, and its answers, go in
// the same message.
const maxTogether = protocol.MaxRequest + frame

// DialOption is for the connection of a worker. An update that is too large, or too large beside
// others that came at the same time, reaches its workflow as protocol.UpdateTooLarge, which is
// refused.
func DialOption() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		if err := invoke(ctx, method, request, reply, c, options...); err != nil {
			return err
		}
		switch r := reply.(type) {
		case *workflowservice.PollWorkflowTaskQueueResponse:
			return limit(r.GetMessages())
		case *workflowservice.RespondWorkflowTaskCompletedResponse:
			return limit(r.GetWorkflowTask().GetMessages())
		}
		return nil
	})
}

// limit replaces the updates that are too large.
func limit(messages []*protocolpb.Message) error {
	total := 0
	for _, m := range messages {
		size := len(m.GetBody().GetValue())
		if total += size; total <= maxTogether || !m.GetBody().MessageIs(&updatepb.Request{}) {
			continue
		}
		total -= size
		if err := replace(m, protocol.TooLarge{Bytes: size, Alone: size > maxTogether}); err != nil {
			return err
		}
	}
	return nil
}

func replace(m *protocolpb.Message, why protocol.TooLarge) error {
	var request updatepb.Request
	if err := m.GetBody().UnmarshalTo(&request); err != nil {
		return err
	}
	argument, err := converter.GetDefaultDataConverter().ToPayload(why)
	if err != nil {
		return err
	}
	request.Input = &updatepb.Input{Name: protocol.UpdateTooLarge,
		Args: &commonpb.Payloads{Payloads: []*commonpb.Payload{argument}}}
	return m.GetBody().MarshalFrom(&request)
}
