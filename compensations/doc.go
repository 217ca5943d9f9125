// Package compensations is a saga engine for Temporal workflows: it undoes what a workflow has done, last in first out,
// whatever ended it. It knows nothing of the rest of Unwind but the contract in package activities, and serves any
// workflow with any activities. A whole program of that kind is in examples/library.
//
// # Going forward
//
// A [Saga] holds a ledger of entries. A step's entry is registered before its forward is scheduled, and is a part of the
// forward's argument:
//
//	saga := compensations.New(ctx, compensations.Options{})
//	hotel := saga.Forward(ctx, compensations.Step{ID: "hotel", Action: "hotel.book", Undo: "hotel.cancel"})
//	err := workflow.ExecuteActivity(ctx, "hotel.book", hotel).Get(ctx, &booked)
//
// So the history holds the compensation no later than the forward. Registering after success, as sagas are mostly written,
// loses every step that acted and then reported an error, timed out, or was canceled. Entries are data, never closures:
// any worker, and any other workflow, can undo from them.
//
// Embed activities.Forward in a struct of your own for what your forward needs beside the entry. What the undo needs and
// the token does not tell goes into [Step].Params.
//
// Step.Needs are the steps that a step builds on: they are undone after it, and wait for it where its undo is parked. A
// step without needs waits for nobody.
//
// Give forwards WaitForCancellation, so that they have ended when they are undone, or are known to be lost. The forward of
// a step that was undone may still come late, from a worker that was cut off: that is for the undo to make harmless.
//
// # An undo
//
// An undo is an activity of yours under the name in Step.Undo: from activities.Backward to activities.Undone.
//
//	func (a *Agency) CancelHotel(ctx context.Context, b activities.Backward) (activities.Undone, error) {
//		had, err := a.api.Cancel(ctx, b.Entry.Token) // the forward has booked under the same token
//		if err != nil {
//			return activities.Undone{}, err // tried again, for as long as the policy lasts
//		}
//		if !had {
//			return activities.Undone{Outcome: activities.Nothing, Observed: "there is no booking"}, nil
//		}
//		return activities.Undone{Outcome: activities.Restored, Observed: "the booking is canceled"}, nil
//	}
//
// It must be right when the forward never ran, ran half, ran twice, reported an error after acting, or still runs
// somewhere: it closes the token, so that a forward that comes late is refused. Undoing twice is undoing once. It looks
// before it acts, and returns Drifted for what someone else has changed since; and it looks afterwards, and returns what
// it saw. The token (Entry.Token) is the same at every attempt, so it is the idempotency key of the forward.
//
// An error is retried within [Step].Policy, or Options.Undo: by default for an hour, as often as it takes. A
// non-retryable ApplicationError, and the outcomes Drifted, Unknown and Failed, are for a person: see below.
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
// The workflow ends as failed, or as canceled, and whoever waits for it reads the report back with [ReportOf]. Without Err it
// completes with the report as its result.
//
// [Saga.Unwind] undoes every entry and returns when each one is settled. It runs on a context that no cancellation
// reaches. The failed step is undone as well, for a step that reported an error may have acted. [Saga.UnwindSteps] undoes
// some steps and what builds on them, and the workflow goes on.
//
// Do not unwind inside a defer: under a panic it cannot block, and the eviction of a cached workflow runs its defers.
//
// The [Report] says of each step what was seen: restored, compensated with losses, nothing-to-undo, or what is left over
// and why. Its status is [Unwound] where nothing is left to tell, and [Remains] where something is.
//
// # What cannot be undone is parked
//
// A parked undo holds back the steps that it needs, and nothing else. A person resolves it: [Retry], [Force], [Skip],
// [Accept], or [Reset]. That comes as a signal, [SignalResolve], which [Saga.Listen] takes from the beginning on:
//
//	saga := compensations.New(ctx, compensations.Options{})
//	saga.Listen(ctx)
//
// A signal that decides nothing, also an unreadable one, is in the report's Notes with the reason. A workflow with signals of its
// own, or one that must see the payload first, calls [ParseResolution] and [Saga.Resolve] itself.
//
// A [Resolution] carries the digest of the park that was shown ([Saga.Report], by a query), so that it never decides
// another one. [Options].Alert is called when something is parked. An undo that no worker takes shows as [Waiting], and
// goes on by itself when one is back.
//
// # Endings that run no workflow code
//
// Start the workflow without an execution or run timeout, without a retry policy and not by cron: those end a run with
// nothing undone. Use a timer. What was terminated all the same has its ledger in the history of its last run: the [Carry] that it
// was handed, where it is not the first run of its chain, and what it has scheduled since. An activity of yours reads both, and a
// workflow of your own takes them over:
//
//	trace, err := activities.TraceOf(events, dataConverter)
//	left := handed.After(trace) // handed: the Carry in the argument of events[0], or the zero Carry
//
//	saga := compensations.Resume(ctx, compensations.Options{Identity: firstRunID}, left)
//	saga.CommitEntries(isCommitted) // what the dead run has taken off its ledger for good: no event tells of that
//	report := saga.Unwind(ctx, cause)
//
// A reset runs the workflow again from some event on. In a forward, activities.SameRun returns an error where the run was reset.
//
// # Long workflows
//
// [Saga.Carry] hands a saga to the next run of the chain, and [Resume] takes it up there, also in the middle of an
// unwinding, of all or of a part: see [Options].Pause. [Carry.Shorten] cuts what does not fit into a payload.
package compensations
