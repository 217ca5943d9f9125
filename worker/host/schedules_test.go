package host_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows"
)

func TestAStartingWorkerMakesItsSchedulesAndKeepsThemRight(t *testing.T) {
	s := serve(t, host.Config{}, host.Options{})
	for id, want := range map[string]struct {
		workflowType string
		every        time.Duration
	}{
		t.Name() + "-sweep":          {workflows.SweepType, 5 * time.Minute},
		t.Name() + "-retain-build-1": {workflows.RetainType, 10 * time.Minute},
	} {
		handle := s.Client.ScheduleClient().GetHandle(t.Context(), id)
		made, err := handle.Describe(t.Context())
		require.NoError(t, err)
		action := made.Schedule.Action.(*client.ScheduleWorkflowAction)
		require.Equal(t, want.workflowType, action.Workflow)
		require.Equal(t, t.Name(), action.TaskQueue)
		require.Equal(t, []client.ScheduleIntervalSpec{{Every: want.every}}, made.Schedule.Spec.Intervals)
		require.Equal(t, enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, made.Schedule.Policy.Overlap)

		require.NoError(t, handle.Pause(t.Context(), client.SchedulePauseOptions{Note: "by an operator"}))
		require.NoError(t, handle.Update(t.Context(), client.ScheduleUpdateOptions{
			DoUpdate: func(now client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
				now.Description.Schedule.Spec.Intervals[0].Every = time.Hour // as another version made it
				return &client.ScheduleUpdate{Schedule: &now.Description.Schedule}, nil
			},
		}))
		s.worker.Stop()
		s = serve(t, host.Config{}, host.Options{})
		require.Eventually(t, func() bool { // an update takes effect by and by
			made, err = handle.Describe(t.Context())
			return err == nil && made.Schedule.Spec.Intervals[0].Every == want.every
		}, waitFor, tick)
		require.True(t, made.Schedule.State.Paused, "what an operator has paused stays so")
	}
}

func TestWithoutSchedulesNoneIsMade(t *testing.T) {
	s := serve(t, host.Config{Schedules: "off"}, host.Options{})
	for _, id := range []string{host.SweepSchedule(t.Name()), host.RetainSchedule(t.Name(), "build-1")} {
		_, err := s.Client.ScheduleClient().GetHandle(t.Context(), id).Describe(t.Context())
		var missing *serviceerror.NotFound
		require.ErrorAs(t, err, &missing)
	}
}
