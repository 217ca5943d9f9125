// Command library shows the saga engine as a library: a custom workflow with custom activities,
// which uses nothing of Unwind but packages compensations and activities.
//
//	go run ./examples/library
//
// It starts a Temporal server and books two trips. The second one fails after its flight was
// booked, and nothing of it is left. Your own program would connect to your server instead.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/seed-62bf7108/unwind/compensations"
	"github.com/seed-62bf7108/unwind/deploy/devserver"
)

func main() {
	if err := serveAndRun(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "library:", err)
		os.Exit(1)
	}
}

func serveAndRun(ctx context.Context) (err error) {
	server, err := devserver.Start(ctx, devserver.Options{Log: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	options := server.ClientOptions()
	options.Logger = log.NewStructuredLogger(slog.Default()) // to stderr
	return runExample(ctx, options, os.Stdout)
}

// queue is the worker's task queue.
const queue = "trips"

// register registers the workflow and the activities.
func register(to worker.Registry, a *Agency) {
	to.RegisterWorkflow(Trip)
	for name, fn := range map[string]any{
		"hotel.book": a.BookHotel, "hotel.cancel": a.Cancel, "flight.book": a.BookFlight, "flight.cancel": a.Cancel,
	} {
		to.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
}

// runExample books the trips and prints what became of them.
func runExample(ctx context.Context, server client.Options, out io.Writer) error {
	c, err := client.Dial(server)
	if err != nil {
		return err
	}
	defer c.Close()
	agency := &Agency{}
	w := worker.New(c, queue, worker.Options{})
	register(w, agency)
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	for _, city := range []string{"Rome", "Atlantis"} {
		trip, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: queue}, Trip, city)
		if err != nil {
			return err
		}
		var report compensations.Report
		if err := trip.Get(ctx, &report); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s\n", city, report.Status)
		if report.Cause != nil {
			fmt.Fprintf(out, "  %s at %s: %s\n", report.Cause.Kind, report.Cause.Step, report.Cause.Text)
		}
		for _, s := range report.Steps {
			fmt.Fprintf(out, "  %-7s %s: %s\n", s.Step, s.Outcome, s.Observed)
		}
	}
	fmt.Fprintf(out, "booked: %q\n", agency.Bookings())
	return nil
}
