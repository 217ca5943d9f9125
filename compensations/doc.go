// Package compensations is a saga engine for Temporal workflows: it undoes what a workflow has
// done, last in first out, whatever ended it. Of the rest of Unwind it knows only the contract in
// package activities, so it serves any workflow with any activities. A complete program of that
// kind is in examples/library.
//
// # Going forward
//
// A [Saga] holds a ledger of entries. A step's entry is registered before its forward is scheduled,
// and is part of the forward's argument:
//
//	saga := compensations.New(ctx, compensations.Options{})
//	hotel := saga.Forward(ctx, compensations.Step{ID: "hotel", Action: "hotel.book", Undo: "hotel.cancel"})
//	err := workflow.ExecuteActivity(ctx, "hotel.book", hotel).Get(ctx, &booked)
//
// So the history holds the compensation no later than the forward. Registering after success, as
// most sagas do, loses every step that acted and then reported an error, timed out, or was
// canceled. Entries are data, never closures: any worker, and any other workflow, can undo from
// them.
//
// If a forward needs more than the entry, embed activities.Forward in a struct of your own. If the
// undo needs more than the token, put it into [Step].Params.
//
// Step.Needs are the steps that a step builds on: they are undone after it, and wait for it while
// its undo is parked. A step without needs waits for none.
//
// Give forwards WaitForCancellation, so that a forward has ended, or is known to be lost, before it
// is undone. The forward of an undone step may still arrive late, from a worker that was cut off:
// the undo must make that harmless.
//
// # An undo
//
// An undo is an activity of yours, registered under the name in Step.Undo, from activities.Backward
// to activities.Undone.
//
//	func (a *Agency) CancelHotel(ctx context.Context, b activities.Backward) (activities.Undone, error) {
//		had, err := a.api.Cancel(ctx, b.Entry.Token) // the forward has booked under the same token
//		if err != nil {
//			return activities.Undone{}, err // retried, for as long as the policy allows
//		}
//		if !had {
//			return activities.Undone{Outcome: activities.Nothing, Observed: "there is no booking"}, nil
//		}
//		return activities.Undone{Outcome: activities.Restored, Observed: "the booking is canceled"}, nil
//	}
//
// It must be correct if the forward never ran, ran in part, ran twice, reported an error after
// acting, or still runs somewhere: it closes the token, so that a late forward is refused. Undoing
// twice is undoing once. It observes before it acts, and returns Drifted if someone else has
// changed the resource since; it observes again afterwards, and returns what it saw. The token
// (Entry.Token) is the same at every attempt, so use it as the idempotency key of the forward.
//
// An error is retried within [Step].Policy, or Options.Undo: by default any number of times for an
// hour. A non-retryable ApplicationError, and the outcomes Drifted, Unknown and Failed, need a
// person: see below.
//
// # Unwinding
//
//	if err != nil {
//		report := saga.Unwind(ctx, compensations.Cause{
//			Kind: compensations.Failure, Step: "hotel", Text: compensations.Reason(err),
//		})
//		return report, report.Err("TripFailed")
//	}
//
// The workflow ends as failed or canceled, and its caller reads the report back with [ReportOf].
// Without Err it completes with the report as its result.
//
// [Saga.Unwind] undoes every entry and returns when each one is settled. Cancelling the workflow
// does not stop it. The failed step is undone as well, because a step that reported an error may
// have acted. [Saga.UnwindSteps] undoes some steps and what builds on them, and the workflow goes
// on.
//
// Do not unwind in a defer: it cannot block during a panic, and evicting a cached workflow runs its
// defers.
//
// The [Report] says for each step what was observed: restored, compensated with losses,
// nothing-to-undo, or what is left over and why. Its status is [Unwound] if nothing is left over,
// and [Remains] if something is.
//
// # What cannot be undone is parked
//
// A parked undo holds back the steps that it needs, and nothing else. A person resolves it:
// [Retry], [Force], [Skip], [Accept], or [Reset]. The decision is a signal, [SignalResolve], which
// [Saga.Listen] receives from the beginning on:
//
//	saga := compensations.New(ctx, compensations.Options{})
//	saga.Listen(ctx)
//
// A signal that decides nothing, even an unreadable one, is in the report's Notes with the reason.
// A workflow that handles its own signals, or must see the payload first, calls [ParseResolution]
// and [Saga.Resolve] itself.
//
// A [Resolution] carries the digest of the park that was shown ([Saga.Report], by a query), so that
// it can decide no other one. [Options].Alert is called when something is parked. An undo that no
// worker takes, or whose activity returns an application error of type BreakerOpen, shows as
// [Waiting], and goes on by itself.
//
// # Endings that run no workflow code
//
// Start the workflow without an execution or run timeout, a retry policy or a cron schedule: these
// end a run with nothing undone. Use a timer instead. A workflow that was terminated nevertheless
// has its ledger in the history of its last run: the [Carry] that it was handed, unless it is the
// first run of its chain, and what it has scheduled since. An activity of yours reads both, and a
// workflow of yours continues from them:
//
//	trace, err := activities.TraceOf(events, dataConverter)
//	left := handed.After(trace) // handed: the Carry in the argument of events[0], or the zero Carry
//
//	saga := compensations.Resume(ctx, compensations.Options{Identity: firstRunID}, left)
//	saga.CommitEntries(isCommitted) // repeat those of the dead run, which are in no event
//	report := saga.Unwind(ctx, cause)
//
// A reset runs the workflow again from some event on. In a forward, activities.SameRun returns an
// error if the run was reset.
//
// # Long workflows
//
// [Saga.Carry] hands a saga to the next run of the chain, where [Resume] continues it, even in the
// middle of an unwinding: see [Options].Pause. [Carry.Shorten] shortens one that does not fit into
// a payload.
package compensations
