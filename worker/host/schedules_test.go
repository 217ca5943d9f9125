package host_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/seed-62bf7108/unwind/worker/host"
	"github.com/seed-62bf7108/unwind/workflows/protocol"
)

func TestAStartingWorkerMakesItsSchedulesAndKeepsThemRight(t *testing.T) {
	s := serve(t, host.Config{}, host.Options{})
	for id, want := range map[string]struct {
		workflowType string
		every        time.Duration
	}{
		t.Name() + "-sweep":          {protocol.SweepType, 5 * time.Minute},
		t.Name() + "-retain-build-1": {protocol.RetainType, 10 * time.Minute},
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

func TestRetentionSchedulesOfHostsThatAreGoneAreRemoved(t *testing.T) {
	s := serve(t, host.Config{}, host.Options{})
	schedules := s.Client.ScheduleClient()
	for _, name := range []string{"gone", "paused"} {
		_, err := schedules.Create(t.Context(), client.ScheduleOptions{
			ID: host.RetainSchedule(t.Name(), name), Paused: name == "paused",
			Spec:   client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: time.Hour}}},
			Action: &client.ScheduleWorkflowAction{ID: name, Workflow: protocol.RetainType, TaskQueue: t.Name()},
		})
		require.NoError(t, err)
	}
	isListed := func() bool {
		all, err := schedules.List(t.Context(), client.ScheduleListOptions{})
		require.NoError(t, err)
		left := 2
		for all.HasNext() {
			s, err := all.Next()
			require.NoError(t, err)
			if s.ID == host.RetainSchedule(t.Name(), "gone") || s.ID == host.RetainSchedule(t.Name(), "paused") && s.Paused {
				left--
			}
		}
		return left == 0
	}
	require.Eventually(t, isListed, waitFor, tick, "lists lag")
	drop := func(after time.Duration) []string {
		dropped, err := host.DropSchedulesOfGoneHosts(t.Context(), s.Client, "default", t.Name(), after)
		require.NoError(t, err)
		return dropped
	}
	require.Empty(t, drop(time.Hour), "it may come back")
	require.Equal(t, []string{host.RetainSchedule(t.Name(), "gone")}, drop(0),
		"a worker serves build-1, and an operator has paused the other")
}
