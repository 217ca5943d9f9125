package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver/servertest"
)

// TestATripThatFailsLeavesNothing checks the agency, not the report: see TestEachCompensationIsNeeded.
func TestATripThatFailsLeavesNothing(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(2 * time.Minute)
	agency := &Agency{}
	register(env, agency)
	env.ExecuteWorkflow(Trip, "Atlantis")
	require.NoError(t, env.GetWorkflowError())
	require.Empty(t, agency.Bookings())
}

func TestTheProgramTellsWhatBecameOfItsTrips(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, runExample(t.Context(), servertest.Shared(t).ClientOptions(), &out))
	require.Equal(t, `Rome: committed
Atlantis: unwound
  failed at flight: LineDead: the line went dead
  hotel   restored: canceled: hotel in Atlantis
  flight  restored: canceled: flight to Atlantis
booked: ["flight to Rome" "hotel in Rome"]
`, out.String())
}

// The ledger of a terminated run is in its history, and another workflow unwinds it.
func TestATripThatWasTerminatedIsUnwoundByAnother(t *testing.T) {
	c, agency, booked := servertest.Client(t), &Agency{}, make(chan struct{})
	w := worker.New(c, t.Name(), worker.Options{})
	w.RegisterWorkflow(Trip)
	w.RegisterWorkflow(unwindOther)
	for name, fn := range map[string]any{
		"hotel.book": agency.BookHotel, "hotel.cancel": agency.Cancel, "flight.cancel": agency.Cancel,
		"flight.book": func(ctx context.Context, b Booking) error {
			err := agency.BookFlight(ctx, b)
			close(booked)
			<-ctx.Done()
			return err
		},
	} {
		w.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	require.NoError(t, w.Start())
	defer w.Stop()

	options := client.StartWorkflowOptions{TaskQueue: t.Name()}
	trip, err := c.ExecuteWorkflow(t.Context(), options, Trip, "Rome")
	require.NoError(t, err)
	<-booked
	require.NoError(t, c.TerminateWorkflow(t.Context(), trip.GetID(), trip.GetRunID(), "a test"))
	require.Equal(t, []string{"flight to Rome", "hotel in Rome"}, agency.Bookings())

	entries, err := activities.EntriesIn(events(t, c, trip), converter.GetDefaultDataConverter())
	require.NoError(t, err)
	other, err := c.ExecuteWorkflow(t.Context(), options, unwindOther, entries)
	require.NoError(t, err)
	var report compensations.Report
	require.NoError(t, other.Get(t.Context(), &report))
	require.Equal(t, compensations.Unwound, report.Status)
	require.Empty(t, agency.Bookings())
}

// unwindOther undoes what another run has left.
func unwindOther(ctx workflow.Context, entries []activities.Entry) (compensations.Report, error) {
	saga := compensations.New(ctx, compensations.Options{})
	saga.Adopt(entries)
	return saga.Unwind(ctx, compensations.Cause{Kind: compensations.Failure, Text: "the run was terminated"}), nil
}

func events(t *testing.T, c client.Client, run client.WorkflowRun) (events []*historypb.HistoryEvent) {
	history := c.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		e, err := history.Next()
		require.NoError(t, err)
		events = append(events, e)
	}
	return events
}
