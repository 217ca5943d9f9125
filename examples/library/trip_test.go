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

// TestATripThatFailsLeavesNothing checks the agency, not the report: see
// TestEachCompensationIsNeeded.
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

// The recipe of package compensations: the ledger of a terminated run is in its history, with what
// it was handed by the run before, and another workflow undoes what is left. Insurance was
// committed by the first run, and stays.
func TestATripThatWasTerminatedIsUndoneByAnother(t *testing.T) {
	c, agency, booked := servertest.Client(t), &Agency{}, make(chan struct{})
	w := worker.New(c, t.Name(), worker.Options{})
	w.RegisterWorkflow(tripInLegs)
	w.RegisterWorkflow(undoLeft)
	for name, fn := range map[string]any{
		"insurance.buy": agency.BookHotel, "insurance.cancel": agency.Cancel, "hotel.book": agency.BookHotel,
		"hotel.cancel": agency.Cancel, "flight.cancel": agency.Cancel,
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

	options := client.StartWorkflowOptions{TaskQueue: t.Name(), ID: t.Name()}
	_, err := c.ExecuteWorkflow(t.Context(), options, tripInLegs, compensations.Carry{})
	require.NoError(t, err)
	<-booked
	require.NoError(t, c.TerminateWorkflow(t.Context(), t.Name(), "", "a test"))
	require.Equal(t, []string{"flight to Rome", "hotel in Rome", "hotel in insurance"}, agency.Bookings())

	last, dc := events(t, c, t.Name()), converter.GetDefaultDataConverter()
	began := last[0].GetWorkflowExecutionStartedEventAttributes()
	var handed compensations.Carry
	require.NoError(t, dc.FromPayloads(began.GetInput(), &handed))
	trace, err := activities.TraceOf(last, dc)
	require.NoError(t, err)
	undo, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: t.Name()}, undoLeft,
		began.GetFirstExecutionRunId(), handed.After(trace))
	require.NoError(t, err)
	var report compensations.Report
	require.NoError(t, undo.Get(t.Context(), &report))
	require.Equal(t, compensations.Unwound, report.Status)
	require.Equal(t, []string{"hotel", "flight"}, []string{report.Steps[0].Step, report.Steps[1].Step})
	require.Len(t, report.Steps, 2)
	require.Equal(t, []string{"hotel in insurance"}, agency.Bookings())
}

// tripInLegs books each part in a run of its own. The insurance is bought for good.
func tripInLegs(ctx workflow.Context, handed compensations.Carry) error {
	forward := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	saga := compensations.Resume(ctx, compensations.Options{Identity: workflow.GetInfo(ctx).FirstRunID}, handed)
	if saga.Last() > 0 {
		flight := saga.Register(ctx,
			compensations.Step{ID: "flight", Action: "flight.book", Undo: "flight.cancel", Needs: []string{"hotel"}})
		return workflow.ExecuteActivity(forward, "flight.book", booking(ctx, flight, "Rome")).Get(ctx, nil)
	}
	insurance := saga.Register(ctx, compensations.Step{ID: "insurance", Action: "insurance.buy", Undo: "insurance.cancel"})
	if err := workflow.ExecuteActivity(forward, "insurance.buy", booking(ctx, insurance, "insurance")).Get(ctx,
		nil); err != nil {
		return err
	}
	saga.CommitEntries(isInsurance)
	hotel := saga.Register(ctx, compensations.Step{ID: "hotel", Action: "hotel.book", Undo: "hotel.cancel"})
	if err := workflow.ExecuteActivity(forward, "hotel.book", booking(ctx, hotel, "Rome")).Get(ctx, nil); err != nil {
		return err
	}
	return workflow.NewContinueAsNewError(ctx, tripInLegs, saga.Carry())
}

func isInsurance(e activities.Entry) bool { return e.Step == "insurance" }

// undoLeft undoes what another run has left.
func undoLeft(ctx workflow.Context, firstRunID string, left compensations.Carry) (compensations.Report, error) {
	saga := compensations.Resume(ctx,
		compensations.Options{Identity: firstRunID, Undo: activities.UndoPolicy{Attempt: time.Minute, Within: time.Hour}},
		left)
	saga.CommitEntries(isInsurance)
	return saga.Unwind(ctx, compensations.Cause{Kind: compensations.Failure, Text: "the run was terminated"}), nil
}

// events are those of the last run of a workflow.
func events(t *testing.T, c client.Client, id string) (events []*historypb.HistoryEvent) {
	history := c.GetWorkflowHistory(t.Context(), id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		e, err := history.Next()
		require.NoError(t, err)
		events = append(events, e)
	}
	return events
}
