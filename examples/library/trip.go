package main

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-62bf7108/unwind/activities"
	"github.com/seed-62bf7108/unwind/compensations"
)

// QueryReport is the query for the report of a trip's saga.
const QueryReport = "report"

// Trip books a hotel and a flight in a city: both, or neither. It completes with the saga's report.
func Trip(ctx workflow.Context, city string) (compensations.Report, error) {
	saga := compensations.New(ctx, compensations.Options{
		Undo: activities.UndoPolicy{Attempt: time.Minute, Within: 24 * time.Hour},
	})
	if err := workflow.SetQueryHandler(ctx, QueryReport,
		func() (compensations.Report, error) { return saga.Report(), nil }); err != nil {
		return compensations.Report{}, err
	}
	saga.Listen(ctx) // a person resolves what is parked

	cause := book(ctx, saga, city)
	if cause == nil {
		return compensations.Report{Status: compensations.Committed}, nil
	}
	return saga.Unwind(ctx, *cause), nil
}

// book goes forward. Each compensation is registered before its forward is scheduled, and its entry
// is part of the argument.
func book(ctx workflow.Context, saga *compensations.Saga, city string) *compensations.Cause {
	forward := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute,
		WaitForCancellation: true, // its undo must not begin before it has ended
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 3},
	})

	hotel := saga.Register(ctx, compensations.Step{
		ID: "hotel", Action: "hotel.book", Undo: "hotel.cancel",
	})
	if err := workflow.ExecuteActivity(forward, "hotel.book", booking(ctx, hotel, city)).Get(ctx, nil); err != nil {
		return because(ctx, hotel, err)
	}

	flight := saga.Register(ctx, compensations.Step{
		ID: "flight", Action: "flight.book", Undo: "flight.cancel", Needs: []string{"hotel"},
	})
	if err := workflow.ExecuteActivity(forward, "flight.book", booking(ctx, flight, city)).Get(ctx, nil); err != nil {
		return because(ctx, flight, err)
	}
	return nil
}

// Booking is the argument of the forwards: with the entry in it, the history holds the ledger.
type Booking struct {
	activities.Forward

	City string `json:"city"`
}

func booking(ctx workflow.Context, e activities.Entry, city string) Booking {
	return Booking{
		Forward: activities.Forward{Entry: e, OriginalRunID: workflow.GetInfo(ctx).OriginalRunID},
		City:    city,
	}
}

func because(ctx workflow.Context, e activities.Entry, err error) *compensations.Cause {
	kind := compensations.Failure
	if ctx.Err() != nil {
		kind = compensations.Canceled
	}
	return &compensations.Cause{Kind: kind, Step: e.Step, Text: compensations.Reason(err)}
}
